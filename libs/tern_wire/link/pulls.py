"""Reads by offset, as proxies ask for them: which offsets queues have, and messages of one queue from an offset on."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import PULL_MESSAGES_MAX, RECEIVE_SIZE_MAX_BYTES, WAIT_MAX_MS
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

_TIME_MAX_MS, _OFFSET_MAX = (1 << 53) - 1, (1 << 63) - 1
# [queue, oldest offset, next offset], and as the fourth, where a time was named, the first offset that was visible from then on: the next one
# when nothing is that young. An array of two lengths, which a struct would write as one.
QueueOffsets = Annotated[list[int], msgspec.Meta(min_length=3)]


# Offsets -----------------------------------------------------------------------------------------------------------
class Offsets(LinkReply, frozen=True, kw_only=True):
    """The offsets of every queue that the broker group has of the topic."""

    queues: list[QueueOffsets]


class ListOffsets(LinkRequest[Offsets], frozen=True, kw_only=True):
    """The offsets of *topic*'s queues. *time_ms* (since 1970): also those of that time; -1: of none."""

    code: ClassVar = RequestCode.OFFSETS
    reply: ClassVar = Offsets

    topic: str
    time_ms: Annotated[int, msgspec.Meta(ge=-1, le=_TIME_MAX_MS)] = -1


# Pulls -------------------------------------------------------------------------------------------------------------
class Pulled(LinkReply, frozen=True, kw_only=True):
    """What was found, perhaps nothing. Behind it: the messages' records, in the order of their offsets.

    *next_offset*: where to go on; *min_offset*, *max_offset*: the queue's oldest and next offset. *suggested_node*: the follower that should be
    asked for what comes next, which is old; "": none.
    """

    next_offset: int
    min_offset: int
    max_offset: int
    suggested_node: str = ""


class Pull(LinkRequest[Pulled], frozen=True, kw_only=True):
    """At most *max_messages* messages of one queue, whose records have *max_bytes* together, from *offset* to before *end_offset* (-1: no end).

    One message always fits. *tags* or *sql*: only those that it lets through; both None: all. *reader*: the principal that reads, "" without one:
    readers share the room of a link equally. *wait_ms*: how long to wait for the first message; 0: do not.
    """

    code: ClassVar = RequestCode.PULL
    reply: ClassVar = Pulled

    topic: str
    queue: int
    reader: str = ""
    offset: Annotated[int, msgspec.Meta(ge=0, le=_OFFSET_MAX)]
    end_offset: Annotated[int, msgspec.Meta(ge=-1, le=_OFFSET_MAX)]
    max_messages: Annotated[int, msgspec.Meta(ge=1, le=PULL_MESSAGES_MAX)]
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=RECEIVE_SIZE_MAX_BYTES)]
    tags: str | None = None
    sql: str | None = None
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)] = 0


class PullAnywhere(Pull, frozen=True, kw_only=True):
    """As Pull, of any node: it answers at once with what it has applied, and suggests nobody. *wait_ms* means nothing."""

    code: ClassVar = RequestCode.PULL_ANYWHERE
