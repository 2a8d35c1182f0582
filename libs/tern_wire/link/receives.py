"""Link requests of consumer groups: receive (lease), wait for messages, and settle."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import (
    INVISIBLE_MAX_MS,
    RECEIVE_MESSAGES_MAX,
    RECEIVE_SIZE_MAX_BYTES,
    SETTLE_ENTRIES_MAX,
    WAIT_MAX_MS,
)
from tern_wire.link.heads import Done, LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

# Size of the hash of a client's attempt id.
ATTEMPT_ID_SIZE_BYTES = 16
# One frame carries the settles of many requests.
SETTLE_ROWS_MAX = 64 * SETTLE_ENTRIES_MAX


class LeasedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The next *count* records are of *queue*, under *lease* until *deadline_ms* (since 1970), in
    delivery attempt *attempt*.
    """

    queue: int
    lease: int
    attempt: int
    deadline_ms: int
    count: int


class Leased(LinkReply, frozen=True, kw_only=True):
    """Reply: the messages leased by the consumer, possibly none.

    Raw bytes: their records, in the order of *runs*.
    """

    topic_id: int
    group_id: int
    runs: list[LeasedRun]


class Receive(LinkRequest[Leased], frozen=True, kw_only=True):
    """Lease at most *max_messages* messages of *topic*, of *max_bytes* together, to a consumer of
    *group*.

    One message always fits. *reader*: the reading principal, "" without one; readers share a link's
    read window equally. *invisible_ms*: the visibility timeout, 0 for the group's. *attempt_id*: a
    repeated receive with the same id gets the same messages; b"" for none. *again_only*: return
    only the messages of the earlier receive. *tags* or *sql*: return only matching messages; both
    None for the subscription of the group's members.
    """

    code: ClassVar = RequestCode.RECEIVE
    reply: ClassVar = Leased

    topic: str
    group: str
    reader: str = ""
    max_messages: Annotated[int, msgspec.Meta(ge=1, le=RECEIVE_MESSAGES_MAX)]
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=RECEIVE_SIZE_MAX_BYTES)]
    invisible_ms: Annotated[int, msgspec.Meta(ge=0, le=INVISIBLE_MAX_MS)]
    attempt_id: Annotated[bytes, msgspec.Meta(max_length=ATTEMPT_ID_SIZE_BYTES)] = b""
    again_only: bool = False
    tags: str | None = None
    sql: str | None = None


class Available(LinkReply, frozen=True, kw_only=True):
    """Reply: the number of messages that can be received now; 0 if there were none until the
    deadline.
    """

    available: int


class AwaitMessages(LinkRequest[Available], frozen=True, kw_only=True):
    """Wait at most *wait_ms* until *group* can receive messages of *topic*."""

    code: ClassVar = RequestCode.NOTIFY
    reply: ClassVar = Available

    topic: str
    group: str
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)]


class Settle(LinkRequest[Done], frozen=True, kw_only=True):
    """Ack, nack, extend or release.

    Raw bytes: SETTLE_ROWS, one a row; of the reply: one status byte a row.
    """

    code: ClassVar = RequestCode.SETTLE
    reply: ClassVar = Done

    rows: Annotated[int, msgspec.Meta(ge=1, le=SETTLE_ROWS_MAX)]
