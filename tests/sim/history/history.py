"""What the clients of one simulated run asked and heard, in order, and what the nodes held at its end. Checkers read nothing else.

Law: an operation begins once and ends at most once. `ok` definitely happened, `fail` definitely did not and never will, `info`
may happen once, now or later; an operation that never ended is an `info`. *began* and *ended* number all events of a run, so
"a was over before b began" is `a.ended < b.began`, without ties. Owner: the run; clients write, checkers read.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple, cast

from tern_wire.link.codec import encode_msgpack
from tests.sim.history.answers import (
    Answered,
    Browsed,
    Committed,
    EndState,
    GraveEnd,
    Held,
    Letter,
    LogRow,
    NodeEnd,
    Pulled,
    QueueEnd,
    QueueEnds,
    Read,
    Sent,
    Sought,
    Stored,
    Task,
)
from tests.sim.history.questions import (
    REJECT,
    Asked,
    Browse,
    CommitOffsets,
    Create,
    GroupOffsets,
    Offsets,
    Pull,
    Recall,
    Receive,
    Redrive,
    Seek,
    Send,
    Sending,
    Settle,
    Settling,
)
from tests.sim.history.transaction_values import Check, Described, Ended

__all__ = [
    "LATER",
    "REJECT",
    "Answered",
    "Asked",
    "Browse",
    "Browsed",
    "CommitOffsets",
    "Committed",
    "Create",
    "EndState",
    "GraveEnd",
    "GroupOffsets",
    "Held",
    "History",
    "Letter",
    "LogRow",
    "NodeEnd",
    "Note",
    "Offsets",
    "Operation",
    "Outcome",
    "Pull",
    "Pulled",
    "QueueEnd",
    "QueueEnds",
    "Read",
    "Recall",
    "Receive",
    "Redrive",
    "Seek",
    "Send",
    "Sending",
    "Sent",
    "Settle",
    "Settling",
    "Sought",
    "Stored",
    "Task",
    "Violation",
]

# The number of an event that has not happened: later than all others.
LATER = 1 << 62


class Outcome(StrEnum):
    """How an operation ended."""

    OPEN = "open"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(slots=True)
class Operation:
    """One request of one client. Owner: the history."""

    number: int
    client: str
    asked: Asked
    began: int
    began_s: float
    outcome: Outcome = Outcome.OPEN
    ended: int = LATER
    ended_s: float = float("inf")
    # Who answered last, how many attempts before the last one had no known outcome, and the code of the error, if it was one.
    node: str = ""
    lost_attempts: int = 0
    error: str = ""
    answer: Answered = None

    @property
    def is_ok(self) -> bool:
        """Whether it definitely happened."""
        return self.outcome is Outcome.OK

    @property
    def may_have_happened(self) -> bool:
        """Whether it happened, or could have, or still can."""
        return self.outcome is not Outcome.FAIL

    @property
    def over(self) -> int:
        """The event after which it can have no effect any more: its end, or never when any attempt may still be under way."""
        is_known = self.outcome in {Outcome.OK, Outcome.FAIL} and not self.lost_attempts
        return self.ended if is_known else LATER

    # The answer as what the question wants; only of an operation that is ok.
    @property
    def sent(self) -> tuple[Sent, ...]:
        """Of a Send or Begin, one a message."""
        return cast(tuple[Sent, ...], self.answer)

    @property
    def held(self) -> tuple[Held, ...]:
        """Of a Receive."""
        return cast(tuple[Held, ...], self.answer)

    @property
    def statuses(self) -> bytes:
        """Of a Settle or Report, one a row."""
        return cast(bytes, self.answer)

    @property
    def pulled(self) -> Pulled:
        """Of a Pull."""
        return cast(Pulled, self.answer)

    @property
    def ends(self) -> tuple[QueueEnds, ...]:
        """Of an Offsets."""
        return cast(tuple[QueueEnds, ...], self.answer)

    @property
    def committed(self) -> tuple[Committed, ...]:
        """Of a GroupOffsets or CommitOffsets."""
        return cast(tuple[Committed, ...], self.answer)

    @property
    def sought(self) -> tuple[Sought, ...]:
        """Of a Seek, one a queue."""
        return cast(tuple[Sought, ...], self.answer)

    @property
    def browsed(self) -> Browsed:
        """Of a Browse."""
        return cast(Browsed, self.answer)

    @property
    def closed(self) -> tuple[Ended, ...]:
        """Of an End or Resolve, one a transaction."""
        return cast(tuple[Ended, ...], self.answer)

    @property
    def checks(self) -> tuple[Check, ...]:
        """Of a Claim."""
        return cast(tuple[Check, ...], self.answer)

    @property
    def described(self) -> tuple[Described, ...]:
        """Of a Describe (one), or a ListTransactions."""
        return cast(tuple[Described, ...], self.answer)

    @property
    def found(self) -> tuple[Stored, ...]:
        """Of a Search."""
        return cast(tuple[Stored, ...], self.answer)

    @property
    def task(self) -> Task:
        """Of a Redrive."""
        return cast(Task, self.answer)

    def __str__(self) -> str:
        return (
            f"#{self.number} {self.client} {self.asked} at {self.began_s:.3f}..{self.ended_s:.3f} s "
            f"{self.outcome.value} {self.node} {self.error} {self.answer!r}"
        )


class Note(NamedTuple):
    """Something that was done to the run, a fault for instance."""

    event: int
    at_s: float
    text: str


@dataclass(slots=True)
class History:
    """All operations of a run. *now_s* is the virtual time."""

    now_s: Callable[[], float]
    operations: list[Operation] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    events: int = 0

    def invoke(self, client: str, asked: Asked) -> Operation:
        """*client* begins to ask."""
        operation = Operation(len(self.operations), client, asked, self._next(), self.now_s())
        self.operations.append(operation)
        return operation

    def ok(self, operation: Operation, node: str, answer: Answered) -> None:
        """It was done; *node* said so."""
        self._end(operation, Outcome.OK, node)
        operation.answer = answer

    def fail(self, operation: Operation, node: str, error: str) -> None:
        """It was not done and will not be."""
        self._end(operation, Outcome.FAIL, node)
        operation.error = error

    def info(self, operation: Operation, node: str, error: str) -> None:
        """Nobody knows."""
        self._end(operation, Outcome.INFO, node)
        operation.error = error

    def note(self, text: str) -> None:
        """Keep *text* with the time; it counts for the hash."""
        self.notes.append(Note(self._next(), self.now_s(), text))

    def hash(self) -> str:
        """Hex digest of everything that happened, notes included."""
        digest = blake2b(digest_size=16)
        for operation in self.operations:
            digest.update(encode_msgpack(operation))
        for note in self.notes:
            digest.update(encode_msgpack(note))
        return digest.hexdigest()

    def _end(self, operation: Operation, outcome: Outcome, node: str) -> None:
        assert operation.outcome is Outcome.OPEN, f"{operation} ends twice"
        operation.outcome, operation.node = outcome, node
        operation.ended, operation.ended_s = self._next(), self.now_s()

    def _next(self) -> int:
        self.events += 1
        return self.events


class Violation(NamedTuple):
    """A promise that was broken: which checker says so, and what it saw."""

    checker: str
    text: str
