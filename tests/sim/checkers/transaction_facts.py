"""What the history says of transactions, for both checkers that ask: who began, ended, claimed and saw them, by number.

A transaction's number is known from who began it, from checks, and from where its first message lies; its messages' names from its begin.
What an operation of unknown outcome may have done, it may have done.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tern_wire.errors import StorageDamaged
from tern_wire.link.rows import PREPARED, PREPARED_BEFORE
from tern_wire.transactions import BY_HAND, COMMIT, ENDED, ENDED_BEFORE, OTHER_OUTCOME, ROLLBACK
from tests.sim.history.history import LATER, Create, EndState, History, Operation
from tests.sim.history.transaction_values import (
    Begin,
    Check,
    Claim,
    Describe,
    Described,
    End,
    Ended,
    Half,
    ListTransactions,
    Report,
    Resolve,
)


class Beginning(NamedTuple):
    """One transaction of one Begin; *row*: of its first message in the request."""

    operation: Operation
    row: int
    halves: tuple[Half, ...]

    @property
    def asked(self) -> Begin:
        """The whole request."""
        asked = self.operation.asked
        assert isinstance(asked, Begin)
        return asked


class Try(NamedTuple):
    """One end that was asked for and not refused as a whole; *verdict* is None when nobody knows it."""

    operation: Operation
    outcome: int
    by: int
    verdict: Ended | None

    @property
    def may_have_ended(self) -> bool:
        """Whether it may be the one that did: when it was repeated, the first attempt may be what the answer calls an end before."""
        if self.verdict is None or self.verdict.status == ENDED:
            return True
        return self.verdict.status == ENDED_BEFORE and self.operation.lost_attempts > 0


class Granted(NamedTuple):
    """One claimed check."""

    operation: Operation
    check: Check
    granted_ms: int


class Reported(NamedTuple):
    """One report that may have been heard; *status* is -1 when nobody knows it."""

    operation: Operation
    answer: str
    status: int


class ProducerRules(NamedTuple):
    """What a producer group was declared with."""

    max_checks: int
    check_after_ms: int
    check_interval_ms: int
    has_url: bool
    timeout_ms: int = 0

    def in_vain(self, from_ms: int, until_ms: int) -> int:
        """How many checks may have been due in vain, nobody asking, between two times of the group; with a URL none ever is."""
        return 0 if self.has_url else max(0, until_ms - from_ms) // self.check_interval_ms


@dataclass(slots=True)
class Deal:
    """All that is known of one number."""

    number: int
    name: str = ""
    tries: list[Try] = field(default_factory=list)
    claims: list[Granted] = field(default_factory=list)
    shown: list[tuple[Operation, Described]] = field(default_factory=list)

    @property
    def begun_ms(self) -> int:
        """When it was begun, 0 if nobody has told."""
        told = [claimed.check.begun_ms for claimed in self.claims] + [described.begun_ms for _, described in self.shown]
        return max(told, default=0)

    @property
    def ended(self) -> tuple[int, Operation | None]:
        """The first event by which a client had been told that it has ended, and by which operation; LATER: none was."""
        found: list[tuple[int, Operation]] = [
            (tried.operation.ended, tried.operation)
            for tried in self.tries
            if tried.verdict is not None and tried.verdict.status in {ENDED, ENDED_BEFORE, OTHER_OUTCOME}
        ]
        found += [(operation.ended, operation) for operation, described in self.shown if described.by]
        return min(found, key=lambda one: one[0], default=(LATER, None))

    def may_be(self, outcome: int, event: int) -> bool:
        """Whether somebody may have ended it so before *event*: the one who was told that it did, or else anybody who asked."""
        told = [tried for tried in self.tries if tried.verdict is not None and tried.verdict.status == ENDED]
        asked = told or [tried for tried in self.tries if tried.may_have_ended]
        return any(tried.outcome == outcome and tried.operation.began < event for tried in asked)


class TransactionFacts:
    """Of one history."""

    def __init__(self, history: History, end: EndState) -> None:
        self.rules: dict[str, ProducerRules] = {}
        # By the first message's name.
        self.begins: dict[str, list[Beginning]] = {}
        self.deals: dict[int, Deal] = {}
        # (number, claim) -> reports.
        self.reports: dict[tuple[int, int], list[Reported]] = {}
        self.claims: list[Operation] = []
        # Claims that may have taken what nobody heard of.
        self.unseen: list[Operation] = []
        for operation in history.operations:
            self._note(operation)
        # The first message of each transaction that is visible at the end, by where it lies.
        for node in end.nodes[:1]:
            places = {
                (topic, queue, stored.offset): stored.body_name
                for (topic, queue), held in node.queues.items()
                for stored in held.messages
            }
            for number, kept in node.transactions.items():
                deal = self.deal(number)
                first = next(iter(kept.described.places), ("", 0, -1))
                deal.name = deal.name or next(iter(kept.names), "") or places.get(first, "")

    def deal(self, number: int) -> Deal:
        """What is known of *number*, perhaps nothing yet."""
        return self.deals.setdefault(number, Deal(number))

    def halves(self, name: str) -> tuple[Half, ...]:
        """The messages of the transaction whose first one is *name*."""
        return self.begins[name][0].halves if name in self.begins else ()

    def unseen_before(self, event: int, producer_group: str) -> int:
        """How many checks of the group may have been handed out before *event* to claims that nobody heard of, at most one of each number."""
        wanted = {producer_group, ""} if self.rules[producer_group].has_url else {producer_group}
        return sum(
            claim.began < event and isinstance(claim.asked, Claim) and claim.asked.producer_group in wanted
            for claim in self.unseen
        )

    def _note(self, operation: Operation) -> None:
        match operation.asked:
            case Create("producer_group", name, max_checks, settings):
                said = dict(settings)
                times = (said["check_after_ms"], said["check_interval_ms"])
                url = bool(said.get("check_url"))
                self.rules[name] = ProducerRules(max_checks, *times, url, said.get("timeout_ms", 3_000) if url else 0)
            case Begin(_, _, transactions):
                row = 0
                for halves in transactions:
                    begins = self.begins.setdefault(halves[0].name, [])
                    begins.append(Beginning(operation, row, halves))
                    if operation.is_ok and operation.sent[row].status in {PREPARED, PREPARED_BEFORE}:
                        self.deal(operation.sent[row].offset).name = halves[0].name
                    row += len(halves)
            case End(endings) if operation.may_have_happened:
                for number, ending in enumerate(endings):
                    verdict = operation.closed[number] if operation.is_ok else None
                    self.deal(ending.number).tries.append(Try(operation, ending.outcome, ending.by, verdict))
            case Resolve(number, _, outcome) if operation.may_have_happened:
                verdict = operation.closed[0] if operation.is_ok else None
                self.deal(number).tries.append(Try(operation, outcome, BY_HAND, verdict))
            case Claim(_, _, _, claim_ms, _):
                if operation.is_ok:
                    self.claims.append(operation)
                    for check in operation.checks:
                        deal = self.deal(check.number)
                        called_ms = self.rules[check.producer_group].timeout_ms
                        deal.claims.append(Granted(operation, check, check.until_ms - claim_ms - called_ms))
                        deal.name = deal.name or next(iter(check.names), "")
                elif operation.may_have_happened or operation.error == StorageDamaged.code:
                    self.unseen.append(operation)
            case Report(reports) if operation.may_have_happened:
                for number, report in enumerate(reports):
                    status = operation.statuses[number] if operation.is_ok else -1
                    told = Reported(operation, report.answer, status)
                    self.reports.setdefault((report.number, report.claim), []).append(told)
            case Describe() | ListTransactions() if operation.is_ok:
                for described in operation.described:
                    self.deal(described.number).shown.append((operation, described))


def told_outcome(verdict: Ended, asked: int) -> int:
    """The outcome that *verdict* says the transaction has, 0 if none; who asked wanted *asked*."""
    if verdict.status == OTHER_OUTCOME:
        return COMMIT + ROLLBACK - asked
    return asked if verdict.status in {ENDED, ENDED_BEFORE} else 0


def transaction_facts(history: History, end: EndState) -> TransactionFacts:
    """The facts of one run as it is now; kept until something is added, since both checkers ask."""
    kept = _KEPT[0] if _KEPT else None
    if kept is None or kept[0] is not history or kept[1] is not end or kept[2] != history.events:
        kept = (history, end, history.events, TransactionFacts(history, end))
        _KEPT[:] = [kept]
    return kept[3]


_KEPT: list[tuple[History, EndState, int, TransactionFacts]] = []
