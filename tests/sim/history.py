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

from tern_wire.codec import encode_msgpack

# The number of an event that has not happened: later than all others.
LATER = 1 << 62


class Outcome(StrEnum):
    """How an operation ended."""

    OPEN = "open"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


# What is asked ----------------------------------------------------------------------------------------------------
class Sending(NamedTuple):
    """One message of a send: its *name* (client and number, also the beginning of its body), and its body's size in bytes."""

    queue: int
    name: str
    key: str
    size_bytes: int


class Send(NamedTuple):
    """Messages for queues of one topic; those with a key may be repeated by the client under the same key."""

    topic: str
    messages: tuple[Sending, ...]


class Receive(NamedTuple):
    """Lease up to *messages_max* messages for *invisible_ms* of the group's time (what was in force, never 0)."""

    group: str
    topic: str
    messages_max: int
    invisible_ms: int


class Settling(NamedTuple):
    """One settled message; *action* is ACK, EXTEND or RELEASE of tern_wire.rows."""

    topic: str
    queue: int
    offset: int
    lease: int
    action: int
    invisible_ms: int


class Settle(NamedTuple):
    """Acks, extensions and releases of one group."""

    group: str
    rows: tuple[Settling, ...]


class Pull(NamedTuple):
    """Read messages of a queue from *offset* on, without a group."""

    topic: str
    queue: int
    offset: int


class Offsets(NamedTuple):
    """Read the oldest and the next offset of every queue of a topic."""

    topic: str


class GroupOffsets(NamedTuple):
    """Read the committed offsets of a group."""

    group: str
    topic: str


class CommitOffsets(NamedTuple):
    """Set committed offsets (pairs of queue and offset), each a seek; with *expected* only if all of these are committed now."""

    group: str
    topic: str
    offsets: tuple[tuple[int, int], ...]
    expected: tuple[tuple[int, int], ...]


class Create(NamedTuple):
    """Declare a topic with queues, or a group with its invisible time."""

    what: str
    name: str
    number: int


Asked = Send | Receive | Settle | Pull | Offsets | GroupOffsets | CommitOffsets | Create


# What was answered ------------------------------------------------------------------------------------------------
class Sent(NamedTuple):
    """The verdict over one message (statuses of tern_wire.rows); *first_id*: of a replay, the message id of the first send."""

    status: int
    queue: int
    offset: int
    first_id: str = ""


class Held(NamedTuple):
    """One leased message; granted at *deadline_ms* minus the receive's invisible time. *body_name*: what its body says it is."""

    queue: int
    offset: int
    lease: int
    attempt: int
    deadline_ms: int
    body_name: str


class Read(NamedTuple):
    """One pulled message."""

    offset: int
    body_name: str


class Pulled(NamedTuple):
    """A pull's answer."""

    next_offset: int
    min_offset: int
    max_offset: int
    messages: tuple[Read, ...]


class QueueEnds(NamedTuple):
    """Oldest and next offset of a queue."""

    queue: int
    min_offset: int
    max_offset: int


class Committed(NamedTuple):
    """A group's committed offset in a queue that it has begun; what a commit answers too."""

    queue: int
    offset: int


# One a message, leased message, queue; the status bytes of a settle.
Answered = tuple[Sent, ...] | tuple[Held, ...] | tuple[QueueEnds, ...] | tuple[Committed, ...] | Pulled | bytes | None


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
        """Of a Send, one a message."""
        return cast(tuple[Sent, ...], self.answer)

    @property
    def held(self) -> tuple[Held, ...]:
        """Of a Receive."""
        return cast(tuple[Held, ...], self.answer)

    @property
    def statuses(self) -> bytes:
        """Of a Settle, one a row."""
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


# The end of a run -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LogRow:
    """One entry of a node's log."""

    index: int
    term: int
    crc: int
    position: int


class Stored(NamedTuple):
    """One message of a queue as a node reads it (bodies.read_records makes these of a pull's bytes)."""

    offset: int
    body_name: str
    message_id: str
    stored_ms: int


class QueueEnd(NamedTuple):
    """What a queue holds on a node: oldest offset, and all messages from there on."""

    min_offset: int
    messages: tuple[Stored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """One node when everything had come to rest. *queues* by (topic, queue); *digest*: hex, of its encoded state machine."""

    node: str
    applied: int
    commit: int
    first_index: int
    log: tuple[LogRow, ...]
    digest: str
    queues: dict[tuple[str, int], QueueEnd]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndState:
    """All nodes that had to be equal; *absent* are those that nothing is promised of (out for good)."""

    nodes: tuple[NodeEnd, ...]
    is_drained: bool
    absent: tuple[str, ...] = ()


class Violation(NamedTuple):
    """A promise that was broken: which checker says so, and what it saw."""

    checker: str
    text: str
