"""Hand-made histories with transactions: of one producer group, which is asked two times, first after 100 ms, then every 50 ms."""

from dataclasses import replace

from tern_wire.link.rows import PREPARED
from tern_wire.transactions import BY_CLIENT, BY_HAND, BY_TEXTS, CHECK_NOTED, COMMIT, ENDED, OPEN, OUTCOME_STATES
from tests.sim.checkers import transactions, unexpected
from tests.sim.history.history import Create, LogRow, NodeEnd, Operation, Pull, Pulled, Read, Sent, Stored
from tests.sim.history.transaction_values import (
    Begin,
    Check,
    CheckNote,
    Claim,
    Describe,
    Described,
    End,
    Ended,
    Ending,
    Half,
    Report,
    Reporting,
    Resolve,
    Search,
    TransactionEnd,
)
from tests.unit.sim.stories import TOPIC, Story

BANK = "bank"
MAX_CHECKS, AFTER_MS, INTERVAL_MS, CLAIM_MS = 2, 100, 50, 30
NUMBER, NAME, SECOND = 7 << 20, "t0.1", "t0.2"
BEGUN_MS = 1_000


class TransactionStory(Story):
    """Owner: the test. What it tells of ends goes into the state of all nodes, unless it says otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.halves: dict[int, tuple[Half, ...]] = {}
        self.kept: dict[int, TransactionEnd] = {}
        settings = (("check_after_ms", AFTER_MS), ("check_interval_ms", INTERVAL_MS))
        self.ok(self.begin(Create("producer_group", BANK, MAX_CHECKS, settings), "setup"), None)

    def calls(self) -> None:
        """The producer group has a check URL, and answers in no time."""
        times = (("check_after_ms", AFTER_MS), ("check_interval_ms", INTERVAL_MS), ("timeout_ms", 0))
        settings = (*times, ("check_url", "http://127.0.0.1:9/"))
        self.ok(self.begin(Create("producer_group", BANK, MAX_CHECKS, settings), "setup"), None)

    @staticmethod
    def begin_of(*names: str, key: str = "", after_ms: int = 0) -> Begin:
        """The question alone: a message in each queue from 0 on."""
        halves = [Half(TOPIC, queue, name, "" if queue else key, 20) for queue, name in enumerate(names)]
        return Begin(BANK, after_ms, (tuple(halves),))

    def begins(
        self,
        *names: str,
        number: int = NUMBER,
        status: int = PREPARED,
        key: str = "",
        after_ms: int = 0,
        first_id: str = "",
    ) -> Operation:
        """A good begin of one transaction."""
        asked = self.begin_of(*names, key=key, after_ms=after_ms)
        self.halves.setdefault(number, asked.transactions[0])
        self.kept.setdefault(number, TransactionEnd(self.described(number), names))
        told = [Sent(status, half.queue, number, "" if half.queue else first_id) for half in asked.transactions[0]]
        return self.ok(self.begin(asked, "t0"), tuple(told))

    def described(
        self,
        number: int = NUMBER,
        state: str = OPEN,
        *,
        attempts: int = 0,
        by: str = "",
        offset: int = -1,
        notes: tuple[CheckNote, ...] = (),
    ) -> Described:
        """As people see it; of an ended one the first message alone."""
        halves = self.halves[number]
        shown = halves[:1] if by else halves
        places = tuple((half.topic, half.queue, offset) for half in shown)
        return Described(number, BANK, state, BEGUN_MS, attempts, by, len(halves), places, notes)

    def is_now(
        self,
        state: str,
        *,
        number: int = NUMBER,
        attempts: int = 0,
        by: str = "",
        offset: int = -1,
        notes: tuple[CheckNote, ...] = (),
    ) -> None:
        """What all nodes have in the end."""
        names = () if by else tuple(half.name for half in self.halves[number])
        self.kept[number] = TransactionEnd(
            self.described(number, state, attempts=attempts, by=by, offset=offset, notes=notes), names
        )

    # Ends ------------------------------------------------------------------------------------------------------
    @staticmethod
    def end_of(outcome: int, *, number: int = NUMBER, by: int = BY_CLIENT) -> End:
        """The question alone."""
        return End((Ending(number, BANK, outcome, by, 0),))

    def verdict(
        self, status: int, outcome: int, *, number: int = NUMBER, by: int = BY_CLIENT, offset: int = -1
    ) -> tuple[Ended]:
        """What it is told."""
        first = self.halves[number][0]
        return (Ended(status, outcome, by, len(self.halves[number]), first.topic, first.queue, offset),)

    def visible(self, *, number: int = NUMBER, offset: int = 0, attempts: int = 0, by: int = BY_CLIENT) -> None:
        """All nodes hold its messages at *offset* of their queues, and know it as committed."""
        for half in self.halves[number]:
            self.queues.setdefault((half.topic, half.queue), []).append(Stored(offset, half.name, "", 5))
        self.is_now(OUTCOME_STATES[COMMIT], number=number, attempts=attempts, by=BY_TEXTS[by], offset=offset)

    def ends(
        self,
        outcome: int,
        status: int = ENDED,
        *,
        number: int = NUMBER,
        by: int = BY_CLIENT,
        told: int = 0,
        offset: int = -1,
        attempts: int = 0,
    ) -> Operation:
        """Somebody ends it; with ENDED it does end so. *told*: the outcome of the answer, if it is another one."""
        offset = 0 if outcome == COMMIT and offset < 0 and not told else offset
        if status == ENDED and outcome == COMMIT:
            self.visible(number=number, offset=offset, attempts=attempts, by=by)
        elif status == ENDED:
            self.is_now(OUTCOME_STATES[outcome], number=number, attempts=attempts, by=BY_TEXTS[by])
        asked = Resolve(number, BANK, outcome) if by == BY_HAND else self.end_of(outcome, number=number, by=by)
        answer = self.verdict(status, told or outcome, number=number, by=by, offset=offset)
        return self.ok(self.begin(asked, "t0"), answer)

    # Looks -----------------------------------------------------------------------------------------------------
    def describes(
        self, state: str = OPEN, *, attempts: int = 0, by: str = "", offset: int = -1, notes: tuple[CheckNote, ...] = ()
    ) -> Operation:
        """Somebody looks at it."""
        described = self.described(NUMBER, state, attempts=attempts, by=by, offset=offset, notes=notes)
        return self.ok(self.begin(Describe(NUMBER, BANK), "clerk"), (described,))

    def searches(self, name: str, *offsets: int) -> Operation:
        """Somebody looks for a message by its id, and finds it at *offsets*."""
        found = tuple(Stored(offset, name, "id", 5) for offset in offsets)
        return self.ok(self.begin(Search(TOPIC, name, "id"), "t0"), found)

    def pulls_queue(self, queue: int, *names: str) -> Operation:
        """All that a queue has."""
        found = tuple(Read(offset, name) for offset, name in enumerate(names))
        return self.ok(self.begin(Pull(TOPIC, queue, 0), "r0"), Pulled(len(names), 0, len(names), found))

    # Checks ----------------------------------------------------------------------------------------------------
    def check(self, claim: int, attempt: int, granted_ms: int, number: int = NUMBER) -> Check:
        """What a claim gets."""
        halves = self.halves[number]
        places, names = tuple((half.topic, half.queue) for half in halves), tuple(half.name for half in halves)
        return Check(number, claim, attempt, BANK, BEGUN_MS, granted_ms + CLAIM_MS, places, names)

    def claims(self, claim: int, attempt: int, granted_ms: int) -> Operation:
        """A claim that gets one check."""
        asked = Claim("i0", BANK, 4, CLAIM_MS, 0)
        return self.ok(self.begin(asked, "i0"), (self.check(claim, attempt, granted_ms),))

    def claims_nothing(self) -> Operation:
        """A claim that gets no check."""
        return self.ok(self.begin(Claim("i0", BANK, 4, CLAIM_MS, 0), "i0"), ())

    @staticmethod
    def report_of(claim: int) -> Report:
        """The question alone."""
        return Report((Reporting(NUMBER, claim, "unknown", 5),))

    def reports(self, claim: int, status: int = CHECK_NOTED) -> Operation:
        """A report."""
        return self.ok(self.begin(self.report_of(claim), "i0"), bytes((status,)))

    # The end ---------------------------------------------------------------------------------------------------
    def node(self, name: str, *, applied: int = 3, log: tuple[LogRow, ...] = (), digest: str = "d") -> NodeEnd:
        """As Story; with the transactions."""
        return replace(super().node(name, applied=applied, log=log, digest=digest), transactions=dict(self.kept))


def begun(key: str = "") -> TransactionStory:
    """One transaction of two messages, in queues 0 and 1."""
    story = TransactionStory()
    story.begins(NAME, SECOND, key=key)
    return story


def found(story: TransactionStory) -> list[str]:
    """What the checkers say."""
    end = story.end()
    return [text for checker in (transactions, unexpected) for _, text in checker.check(story.history, end)]
