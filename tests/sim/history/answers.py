"""What simulated clients were answered, and what nodes hold at the end of a run, as values of the history."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.sim.history.publication_values import PublicationAnswered
from tests.sim.history.transaction_values import Check, Described, Ended, TransactionEnd


class Sent(NamedTuple):
    """The verdict over one message (statuses of tern_wire.link.rows); *first_id*: of a replay, the message id of the first send. Of one that
    waits for its time, *offset* is its timer's id.
    """

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
    stored_ms: int = 0


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


class Sought(NamedTuple):
    """What a seek did in one queue: what was committed *before* (-1: the group had not begun), and is *after*."""

    queue: int
    before: int
    after: int


class Letter(NamedTuple):
    """One dead letter: its offset, where its message was to be delivered, after how many attempts and why it died, and which it is."""

    offset: int
    topic: str
    queue: int
    origin: int
    attempts: int
    cause: str
    died_ms: int
    body_name: str


class Browsed(NamedTuple):
    """A page of dead letters; *next_offset* is -1 behind the last one, *total* is of all."""

    next_offset: int
    total: int
    letters: tuple[Letter, ...]


class Task(NamedTuple):
    """How a redrive is going."""

    state: str
    redriven: int
    failed: int


class Stored(NamedTuple):
    """One message of a queue as a node reads it (bodies.read_records makes these of a pull's bytes)."""

    offset: int
    body_name: str
    message_id: str
    stored_ms: int


# One a message, leased message, queue; the status bytes of a settle or report.
Answered = (
    tuple[Sent, ...]
    | tuple[Held, ...]
    | tuple[QueueEnds, ...]
    | tuple[Committed, ...]
    | tuple[Sought, ...]
    | tuple[Ended, ...]
    | tuple[Check, ...]
    | tuple[Described, ...]
    | tuple[Stored, ...]
    | Pulled
    | Browsed
    | Task
    | PublicationAnswered
    | bytes
    | None
)


# The end of a run -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LogRow:
    """One entry of a node's log."""

    index: int
    term: int
    crc: int
    position: int


class GraveEnd(NamedTuple):
    """What a group's dead letters are on a node: the oldest offset kept, and all that were neither redriven nor dropped."""

    min_offset: int
    letters: tuple[Letter, ...]


class QueueEnd(NamedTuple):
    """What a queue holds on a node: oldest offset, and all messages from there on."""

    min_offset: int
    messages: tuple[Stored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnd:
    """One node when everything had come to rest. *queues* by (topic, queue), *graves* by group, *transactions* by number; *digest*: hex, of its
    encoded state machine.
    """

    node: str
    applied: int
    commit: int
    first_index: int
    log: tuple[LogRow, ...]
    digest: str
    queues: dict[tuple[str, int], QueueEnd]
    graves: dict[str, GraveEnd] = field(default_factory=dict)
    transactions: dict[int, TransactionEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndState:
    """All nodes that had to be equal; *absent* are those that nothing is promised of (out for good)."""

    nodes: tuple[NodeEnd, ...]
    is_drained: bool
    absent: tuple[str, ...] = ()
