"""Dead letters of consumer groups, as proxies ask for them: made by a consumer, listed, purged. Redrives are in `redrive.py`."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import DEAD_LETTERS_PAGE_MAX, RECEIVE_SIZE_MAX_BYTES, SETTLE_ENTRIES_MAX
from tern_wire.link.heads import Done, LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

_OFFSET_MAX = (1 << 62) - 1


class RejectedMessage(msgspec.Struct, frozen=True, array_like=True):
    """The message at *offset* of a queue, which a consumer holds by *lease*, and why it will not have it ("": it does not say)."""

    group_id: int
    topic_id: int
    queue: int
    offset: int
    lease: int
    reason: str


class RejectMessages(LinkRequest[Done], frozen=True, kw_only=True):
    """Make dead letters of messages that were received. Behind the reply: one status byte a row, as of a settle."""

    code: ClassVar = RequestCode.DEAD_LETTER
    reply: ClassVar = Done

    rows: Annotated[list[RejectedMessage], msgspec.Meta(min_length=1, max_length=SETTLE_ENTRIES_MAX)]


class DeadLetter(msgspec.Struct, frozen=True, array_like=True):
    """The dead letter at *offset* among its group's: a message of *topic*, where it is at *origin_offset* of *queue*.

    It died at *died_ms* after so many *attempts*, of *cause* (`expired`, `nacked` or `rejected`), for a *reason* if somebody said one.
    *size_bytes*: of its record.
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
    """Some dead letters, the oldest first, perhaps none though there are more. Behind it: their messages' records, in the same order.

    *next*: the offset to go on at, -1 when there are no more; *count*: how many the group has in this broker group.
    """

    letters: list[DeadLetter]
    next: int
    count: int


class ListDeadLetters(LinkRequest[DeadLetters], frozen=True, kw_only=True):
    """At most *count* dead letters of *group*, from *offset* on, whose records have about *max_bytes* together.

    Only those of *topic*, with *tag*, with *reason* somewhere in their reason, died from *from_ms* to before *to_ms*; "" and a *to_ms* of 0
    mean all.
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
    """So many dead letters are gone."""

    purged: int


class PurgeDeadLetters(LinkRequest[Purged], frozen=True, kw_only=True):
    """Drop all dead letters of *group*."""

    code: ClassVar = RequestCode.PURGE
    reply: ClassVar = Purged

    group: str
