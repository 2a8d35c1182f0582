"""Link requests for dead letters of consumer groups: reject, list and purge.

Redrives are in `redrive.py`.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import DEAD_LETTERS_PAGE_MAX, RECEIVE_SIZE_MAX_BYTES, SETTLE_ENTRIES_MAX
from tern_wire.link.heads import Done, LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

_OFFSET_MAX = (1 << 62) - 1


class RejectedMessage(msgspec.Struct, frozen=True, array_like=True):
    """Message at *offset* of a queue that a consumer holds by *lease* and rejects; *reason* is ""
    if none is given.
    """

    group_id: int
    topic_id: int
    queue: int
    offset: int
    lease: int
    reason: str


class RejectMessages(LinkRequest[Done], frozen=True, kw_only=True):
    """Make dead letters of received messages.

    Raw bytes of the reply: one status byte a row, as in a settle.
    """

    code: ClassVar = RequestCode.DEAD_LETTER
    reply: ClassVar = Done

    rows: Annotated[list[RejectedMessage], msgspec.Meta(min_length=1, max_length=SETTLE_ENTRIES_MAX)]


class DeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """Dead letter at *offset* of its group's dead letters: the message at *origin_offset* of
    *queue* of *topic*.

    It died at *died_ms* after *attempts* attempts, of *cause* (`expired`, `nacked` or `rejected`),
    with the consumer's *reason* or "". *size_bytes* is the size of its record.
    """

    offset: int
    topic: str
    queue: int
    origin_offset: int
    attempts: int
    cause: str
    reason: str
    died_ms: int
    size_bytes: int


class DeadLetters(LinkReply, frozen=True, kw_only=True):
    """Reply: dead letters, oldest first; possibly none although there are more.

    Raw bytes: their records, in the same order. *next* is the offset to continue at, -1 at the end.
    *count* is the number of the group's dead letters in this broker group.
    """

    letters: list[DeadLetter]
    next: int
    count: int


class ListDeadLetters(LinkRequest[DeadLetters], frozen=True, kw_only=True):
    """List at most *count* dead letters of *group* from *offset* on, whose records have about
    *max_bytes* together.

    The list holds those of *topic*, with *tag*, with *reason* as a part of their reason, died in
    [*from_ms*, *to_ms*). "" and a *to_ms* of 0 select all.
    """

    code: ClassVar = RequestCode.DEAD_LETTERS
    reply: ClassVar = DeadLetters

    group: str
    offset: Annotated[int, msgspec.Meta(ge=0, le=_OFFSET_MAX)]
    count: Annotated[int, msgspec.Meta(ge=1, le=DEAD_LETTERS_PAGE_MAX)]
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=RECEIVE_SIZE_MAX_BYTES)]
    topic: str
    tag: str
    reason: str
    from_ms: int
    to_ms: int


class Purged(LinkReply, frozen=True, kw_only=True):
    """Reply: the number of dropped dead letters."""

    purged: int


class PurgeDeadLetters(LinkRequest[Purged], frozen=True, kw_only=True):
    """Drop all dead letters of *group*."""

    code: ClassVar = RequestCode.PURGE
    reply: ClassVar = Purged

    group: str
