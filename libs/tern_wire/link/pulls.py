"""Link requests for reads by offset: the offsets of queues, and messages of one queue from an
offset on.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import PULL_MESSAGES_MAX, RECEIVE_SIZE_MAX_BYTES, WAIT_MAX_MS
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

_TIME_MAX_MS, _OFFSET_MAX = (1 << 53) - 1, (1 << 63) - 1
# [queue, oldest offset, next offset], and if a time is requested, a fourth number: the first offset
# that was visible from then on, or the next offset when there is none. An array of two possible
# lengths; a struct would always write one.
QueueOffsets = Annotated[list[int], msgspec.Meta(min_length=3)]


# Offsets ------------------------------------------------------------------------------------------
class Offsets(LinkReply, frozen=True, kw_only=True):
    """Reply: the offsets of all queues of the topic in this broker group."""

    queues: list[QueueOffsets]


class ListOffsets(LinkRequest[Offsets], frozen=True, kw_only=True):
    """Request the offsets of *topic*'s queues.

    *time_ms* (since 1970): also those of that time; -1 for none. *wait_ms*, only without a time:
    how long to wait while the next offsets of all queues add up to *seen*; 0 for no wait. A node of
    a release before answers at once.
    """

    code: ClassVar = RequestCode.OFFSETS
    reply: ClassVar = Offsets

    topic: str
    time_ms: Annotated[int, msgspec.Meta(ge=-1, le=_TIME_MAX_MS)] = -1
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)] = 0
    seen: Annotated[int, msgspec.Meta(ge=-1, le=_OFFSET_MAX)] = -1


# Pulls --------------------------------------------------------------------------------------------
class Pulled(LinkReply, frozen=True, kw_only=True):
    """Reply: the messages found, possibly none.

    Raw bytes: their records, in the order of their offsets. *next_offset*: the offset to continue
    at. *min_offset*, *max_offset*: the queue's oldest and next offset. *suggested_node*: the
    follower to read old messages from next; "" for none. *heads_only*: the raw bytes are heads.
    """

    next_offset: int
    min_offset: int
    max_offset: int
    suggested_node: str = ""
    heads_only: bool = False


class Pull(LinkRequest[Pulled], frozen=True, kw_only=True):
    """Read at most *max_messages* messages of one queue, of *max_bytes* together, from *offset* to
    before *end_offset*.

    An *end_offset* of -1 is no end. One message always fits. *tags* or *sql*: return only matching
    messages; both None for all. *reader*: the reading principal, "" without one; readers share a
    link's read window equally. *wait_ms*: how long to wait for the first message; 0 for no wait.
    *heads_only*: answer the heads of the records alone (HEAD_ROWS), which *max_bytes* then counts.
    A node of a release before answers whole records.
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
    heads_only: bool = False


class PullAnywhere(Pull, frozen=True, kw_only=True):
    """Pull from any node: it answers at once with its applied state, and suggests no node.

    *wait_ms* has no effect.
    """

    code: ClassVar = RequestCode.PULL_ANYWHERE
