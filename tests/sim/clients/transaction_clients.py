"""Clients for transactions: producers that begin and end them, checkers that ask about open ones, and a clerk who resolves by hand.

teller     begins transactions, and ends them: at once, late, twice, differently twice, not at all, again when it was not answered
inspector  claims checks, answers them from the producers' books, or says that it does not know; dies in each step, or comes too late
clerk      looks at what is open or parked, and ends some of it
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from tern_wire.link.rows import PREPARED, PREPARED_BEFORE
from tern_wire.transactions import BY_CHECK, BY_CLIENT, COMMIT, EXPIRED, ROLLBACK
from tests.sim.clients.bodies import message_id
from tests.sim.clients.plan import QUEUES, TRANSACTION_TOPICS, Plan
from tests.sim.clients.repeats import Repeats
from tests.sim.history.history import Asked, Operation
from tests.sim.history.transaction_values import (
    Begin,
    Check,
    Claim,
    Describe,
    End,
    Ending,
    Half,
    ListTransactions,
    Report,
    Reporting,
    Resolve,
    Search,
)

# What a producer makes of a transaction: shares of all; the rest is ended once, at once.
_SILENT, _TWICE, _DIFFERENTLY, _LATE = 0.25, 0.08, 0.12, 0.22
_COMMITS, _ROLLBACKS = 0.6, 0.25
_AT_ONCE_MAX_S, _LATE_MAX_S = 0.8, 4.0
# Those that are asked about as their producer group says, and those that want more time than a run has: retention must leave them.
_USUAL, _LONG = 0.5, 0.12
LONG_MS = 60_000
# Who looks for a message by its id, before its transaction ends or afterwards.
_SEARCHES = 0.25
# An end that nobody has answered is asked for again, so often.
_REPEATS_MAX = 3
# What an inspector makes of what it has claimed.
_DIES_WITH_CLAIM, _DIES_BEFORE_REPORT, _COMES_LATE, _DOES_NOT_KNOW = 0.2, 0.2, 0.2, 0.4
_UNKNOWN = ("unknown", "timeout", "http-503")
# So many of the parked and of the open transactions on his list the clerk ends; one in _LEFT of those that nobody has ended stays as it is.
_ENDS_PARKED = 0.5
_ENDS_OPEN, _LEFT = 0.04, 5


@dataclass(slots=True)
class Books:
    """What producers have decided, whether they ever say so or not; every checker looks here. Owner: the clients."""

    # Name of the first message -> COMMIT, ROLLBACK, or 0: nobody knows.
    decisions: dict[str, int] = field(default_factory=dict)
    # Number -> name of the first message, and producer group; of those whose number a producer has heard.
    heard: dict[int, tuple[str, str]] = field(default_factory=dict)

    def decision(self, number: int) -> int:
        """COMMIT, ROLLBACK, or 0: nobody can say."""
        name, _ = self.heard.get(number, ("", ""))
        return self.decisions.get(name, 0)

    def last_word(self, number: int) -> int:
        """How a person ends it when all is over; 0: it is left as it is."""
        entry = number >> 20
        return 0 if entry % _LEFT == 0 else self.decision(number) or (ROLLBACK if entry % 2 else COMMIT)


class ClientContext(Protocol):
    """What these clients use of the clients' shared part; see workload.ClientContext."""

    rng: Random
    plan: Plan
    books: Books

    def is_open(self) -> bool:
        """Whether more operations may be issued."""
        ...

    def issue(self, client: str, asked: Asked, done: Callable[[Operation], None]) -> Operation:
        """Ask; *done* is told when the operation has ended. The caller has looked at `is_open`."""
        ...

    def later(self, delay_s: float, step: Callable[[], None]) -> None:
        """Go on with *step* later."""
        ...


def _nothing(_operation: Operation) -> None:
    """Nobody cares for the answer."""


class Teller:
    """A producer of transactions."""

    def __init__(self, context: ClientContext, name: str, mean_s: float, producer_group: str) -> None:
        self._context, self._name, self._mean_s, self._group = context, name, mean_s, producer_group
        self._number = 0
        self._repeats = Repeats[Begin](context)

    def step(self) -> None:
        """Begin some."""
        context, rng = self._context, self._context.rng
        if not context.is_open():
            return
        if self._repeats.asked and rng.random() < 2 * context.plan.repeat_share:
            asked = rng.choice(self._repeats.asked)
        else:
            dice = rng.random()
            after_ms = 0 if dice < _USUAL else rng.randint(100, context.plan.check_after_max_ms)
            after_ms = after_ms if dice < 1 - _LONG else LONG_MS
            is_keyed = rng.random() < context.plan.keyed_share
            count = rng.choice((1, 1, 1, 2, 3))
            asked = Begin(self._group, after_ms, tuple(self._transaction(is_keyed=is_keyed) for _ in range(count)))
            if is_keyed:
                self._repeats.add(asked)
        context.issue(self._name, asked, self._begun)
        context.later(self._mean_s * rng.uniform(0.4, 1.6), self.step)

    def _transaction(self, *, is_keyed: bool) -> tuple[Half, ...]:
        rng = self._context.rng
        halves = []
        for number in range(rng.choice((1, 1, 2, 3, 5))):
            self._number += 1
            name, topic = f"{self._name}.{self._number}", rng.choice(TRANSACTION_TOPICS)
            key = f"key-{name}" if is_keyed and not number else ""
            halves.append(Half(topic, rng.randrange(QUEUES[topic]), name, key, rng.randint(16, 200)))
        dice = rng.random()
        decision = COMMIT if dice < _COMMITS else ROLLBACK if dice < _COMMITS + _ROLLBACKS else 0
        self._context.books.decisions[halves[0].name] = decision
        return tuple(halves)

    def _begun(self, operation: Operation) -> None:
        rng, asked = self._context.rng, operation.asked
        assert isinstance(asked, Begin)
        if not operation.is_ok:
            if asked in self._repeats.asked and rng.random() < 0.5:
                self._later(rng.uniform(0.0, 1.0), asked, self._begun)
            return
        prompt: list[Ending] = []
        row = 0
        for halves in asked.transactions:
            verdict = operation.sent[row]
            if verdict.status in {PREPARED, PREPARED_BEFORE}:
                self._context.books.heard[verdict.offset] = (halves[0].name, self._group)
                prompt += self._decide(verdict.offset, halves[0].name, asked.check_after_ms)
            if verdict.status == PREPARED and rng.random() < _SEARCHES:
                search = Search(halves[0].topic, halves[0].name, message_id(operation.number, row))
                self._later(rng.uniform(0.0, 2 * _AT_ONCE_MAX_S), search, _nothing)
            row += len(halves)
        if prompt and rng.random() < 0.5:
            self._end(rng.uniform(0.0, _AT_ONCE_MAX_S), *prompt)
        else:
            for ending in prompt:
                self._end(rng.uniform(0.0, _AT_ONCE_MAX_S), ending)

    def _decide(self, number: int, name: str, after_ms: int) -> list[Ending]:
        """What is to be ended at once; the rest is put off, or never done."""
        rng, outcome = self._context.rng, self._context.books.decisions[name]
        dice = rng.random()
        if not outcome or dice < _SILENT or after_ms == LONG_MS:
            return []
        ending = Ending(number, self._group, outcome, BY_CLIENT, 0)
        dice -= _SILENT
        if dice < _LATE:
            self._end(rng.uniform(_AT_ONCE_MAX_S, _LATE_MAX_S), ending)
            return []
        dice -= _LATE
        if dice < _TWICE:
            self._end(rng.uniform(_AT_ONCE_MAX_S, _LATE_MAX_S), ending)
        elif dice < _TWICE + _DIFFERENTLY:
            other = ending._replace(outcome=COMMIT + ROLLBACK - outcome)
            self._end(rng.uniform(0.0, 2 * _AT_ONCE_MAX_S), other)
        return [ending]

    def _end(self, delay_s: float, *endings: Ending, tries: int = 1) -> None:
        def ended(operation: Operation) -> None:
            if not operation.is_ok and tries <= _REPEATS_MAX and rng.random() < 0.7:
                self._end(rng.uniform(0.0, _AT_ONCE_MAX_S), *endings, tries=tries + 1)

        rng = self._context.rng
        self._later(delay_s, End(endings), ended)

    def _later(self, delay_s: float, asked: Asked, done: Callable[[Operation], None]) -> None:
        def ask() -> None:
            if self._context.is_open():
                self._context.issue(self._name, asked, done)

        self._context.later(delay_s, ask)


class Inspector:
    """A checker."""

    def __init__(self, context: ClientContext, name: str, mean_s: float, producer_group: str) -> None:
        """*producer_group*: "" stands for all that have a check URL."""
        self._context, self._name, self._mean_s, self._group = context, name, mean_s, producer_group

    def step(self) -> None:
        """One claim."""
        context, rng = self._context, self._context.rng
        if context.is_open():
            claim_ms = rng.randint(context.plan.claim_ms // 2, context.plan.claim_ms)
            asked = Claim(self._name, self._group, rng.choice((1, 4, 16)), claim_ms, rng.choice((0, 300)))
            context.issue(self._name, asked, self._claimed)

    def _claimed(self, operation: Operation) -> None:
        context, rng, asked = self._context, self._context.rng, operation.asked
        assert isinstance(asked, Claim)
        context.later(self._mean_s * rng.uniform(0.4, 1.6), self.step)
        if not operation.is_ok or not operation.checks or rng.random() < _DIES_WITH_CLAIM:
            return
        claim_s = asked.claim_ms / 1000
        delay_s = rng.uniform(claim_s, 3 * claim_s) if rng.random() < _COMES_LATE else rng.uniform(0.0, claim_s / 2)
        context.later(delay_s, partial(self._answer, operation.checks))

    def _answer(self, checks: tuple[Check, ...]) -> None:
        context, rng = self._context, self._context.rng
        endings, reports = [], []
        for check in checks:
            # The producer may not have heard its transaction's number, but it knows its messages.
            outcome = context.books.decisions.get(check.names[0], 0) if check.names else 0
            if not outcome or rng.random() < _DOES_NOT_KNOW:
                reports.append(Reporting(check.number, check.claim, rng.choice(_UNKNOWN), rng.randint(1, 90)))
            else:
                endings.append(Ending(check.number, check.producer_group, outcome, BY_CHECK, check.claim))
        if endings and context.is_open():
            context.issue(self._name, End(tuple(endings)), _nothing)
        if reports and context.is_open() and rng.random() >= _DIES_BEFORE_REPORT:
            context.issue(self._name, Report(tuple(reports)), _nothing)


class Clerk:
    """A person with a list."""

    def __init__(self, context: ClientContext, name: str, mean_s: float) -> None:
        self._context, self._name, self._mean_s = context, name, mean_s

    def step(self) -> None:
        """One look at the list."""
        context, rng = self._context, self._context.rng
        if context.is_open():
            context.issue(self._name, ListTransactions(rng.choice(("", "", EXPIRED))), self._listed)

    def _listed(self, operation: Operation) -> None:
        context, rng, books = self._context, self._context.rng, self._context.books
        context.later(self._mean_s * rng.uniform(0.4, 1.6), self.step)
        if not operation.is_ok:
            return
        if books.heard and context.is_open():
            number, (_, group) = rng.choice([*books.heard.items()])
            context.issue(self._name, Describe(number, group), _nothing)
        for described in operation.described:
            is_chosen = rng.random() < (_ENDS_PARKED if described.state == EXPIRED else _ENDS_OPEN)
            if is_chosen and context.is_open():
                outcome = books.decision(described.number) or rng.choice((COMMIT, ROLLBACK))
                context.issue(self._name, Resolve(described.number, described.producer_group, outcome), _nothing)
