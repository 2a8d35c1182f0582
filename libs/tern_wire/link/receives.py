"""Receives of consumer groups, as proxies ask for them: messages leased, waited for, settled."""

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

# What stands for a client's attempt id: its hash.
ATTEMPT_ID_SIZE_BYTES = 16
# One flight has the settles of many requests.
SETTLE_ROWS_MAX = 64 * SETTLE_ENTRIES_MAX


class LeasedRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The next *count* records are of *queue*, held by *lease* until *deadline_ms* (since 1970), and this is their *attempt*-th delivery."""

    queue: int
    lease: int
    attempt: int
    deadline_ms: int
    count: int


class Leased(LinkReply, frozen=True, kw_only=True):
    """What the consumer has now, perhaps nothing. Behind it: the messages' records, in the order of *runs*."""

    topic_id: int
    group_id: int
    runs: list[LeasedRun]


class Receive(LinkRequest[Leased], frozen=True, kw_only=True):
    """Lease at most *max_messages* messages of *topic* to a consumer of *group*, whose records have *max_bytes* together; one always fits.

    *reader*: the principal that reads, "" without one: readers share the room of a link equally. *invisible_ms*: how long nobody else gets them,
    0: as the group says. *attempt_id*: a receive that is repeated with it gets the same messages; b"": it has none. *again_only*: get just what it
    got before. *tags* or *sql*: only those that it lets through; both None: as the group's members subscribe.
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
    """So many messages can be received now; 0: none was there until the deadline."""

    available: int


class AwaitMessages(LinkRequest[Available], frozen=True, kw_only=True):
    """Say when *group* can receive messages of *topic*; wait for them for *wait_ms* at most."""

    code: ClassVar = RequestCode.NOTIFY
    reply: ClassVar = Available

    topic: str
    group: str
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)]


class Settle(LinkRequest[Done], frozen=True, kw_only=True):
    """Ack, nack, extend or release: behind it are so many SETTLE_ROWS. Behind the reply: one status byte a row."""

    code: ClassVar = RequestCode.SETTLE
    reply: ClassVar = Done

    rows: Annotated[int, msgspec.Meta(ge=1, le=SETTLE_ROWS_MAX)]
