"""What simulated clients ask, as values of the history."""

from typing import Any, NamedTuple

from tests.sim.history.publication_values import PublicationAsked
from tests.sim.history.transaction_values import TransactionAsked

# As the actions of tern_wire.link.rows; on the link it is a request of its own.
REJECT = 100


class Sending(NamedTuple):
    """One message of a send: its *name* (client and number, also the beginning of its body), and its body's size in bytes.

    One with a *message_group* names no queue (0): the broker decides. *deliver_ms*: not before that time of the group (0: at once).
    """

    queue: int
    name: str
    key: str
    size_bytes: int
    message_group: str = ""
    deliver_ms: int = 0


class Send(NamedTuple):
    """Messages for queues of one topic; those with a key may be repeated by the client under the same key."""

    topic: str
    messages: tuple[Sending, ...]


class Receive(NamedTuple):
    """Lease up to *messages_max* messages for *invisible_ms* of the group's time (what was in force, never 0).

    *attempt*: what stands for its attempt id, "" without one. All receives of one attempt are one receive that is repeated.
    """

    group: str
    topic: str
    messages_max: int
    invisible_ms: int
    attempt: str = ""


class Settling(NamedTuple):
    """One settled message; *action* is ACK, EXTEND, RELEASE or NACK of tern_wire.link.rows (*invisible_ms* of a NACK: its delay, -1 for the
    group's own), or REJECT: to the dead letters at once. A Settle has either no REJECT or nothing else.
    """

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


class Seek(NamedTuple):
    """Move a group in all queues of a topic to *to*: earliest, latest, shift (by *number* messages), or time (*number*, ms of the group)."""

    group: str
    topic: str
    to: str
    number: int


class Recall(NamedTuple):
    """Call back the message *name*, which waits for *deliver_ms* as timer *timer_id*."""

    topic: str
    name: str
    deliver_ms: int
    timer_id: int


class Browse(NamedTuple):
    """Look at a group's dead letters, from *offset* on."""

    group: str
    offset: int


class Redrive(NamedTuple):
    """Have all dead letters of a group delivered again, as task *task*; or, with *is_asking*, look how far that is."""

    group: str
    task: str
    is_asking: bool


class Create(NamedTuple):
    """Declare a topic with queues, a group with its invisible time, or a producer_group with how often it is asked; *settings*: pairs of
    what else the request says.
    """

    what: str
    name: str
    number: int
    settings: tuple[tuple[str, Any], ...] = ()


Asked = (
    Send
    | Receive
    | Settle
    | Pull
    | Offsets
    | GroupOffsets
    | CommitOffsets
    | Seek
    | Recall
    | Browse
    | Redrive
    | Create
    | TransactionAsked
    | PublicationAsked
)
