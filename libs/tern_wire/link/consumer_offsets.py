"""Link requests for the offsets of consumer groups in a topic: list, commit and seek."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

SEEK_TIME_MAX_MS = (1 << 53) - 1
SEEK_SHIFT_MAX = (1 << 62) - 1
# In place of an offset: the group has not begun in the queue.
NOT_BEGUN = -1
# Number of a queue in its broker group, as text: keys of maps are texts.
QueueText = Annotated[str, msgspec.Meta(pattern=r"^(?:0|[1-9][0-9]{0,17})\Z")]


# Commits ------------------------------------------------------------------------------------------
class GroupOffsets(LinkReply, frozen=True, kw_only=True):
    """Reply: the committed offset of each queue that the group has begun.

    All messages below it are settled.
    """

    offsets: dict[str, int]


class ListGroupOffsets(LinkRequest[GroupOffsets], frozen=True, kw_only=True):
    """Request the committed offsets of *group* in *topic*."""

    code: ClassVar = RequestCode.GROUP_OFFSETS
    reply: ClassVar = GroupOffsets

    group: str
    topic: str


class OffsetsCommitted(LinkReply, frozen=True, kw_only=True):
    """Reply: the offsets that are committed now in the requested queues."""

    offsets: dict[str, int]


class CommitOffsets(LinkRequest[OffsetsCommitted], frozen=True, kw_only=True):
    """Commit *offsets* of *group* in *topic*, by queue: in all these queues, or in none.

    *expected*: commit only where this offset is committed now, or NOT_BEGUN where the group has not
    begun, else OffsetMoved. *epochs*: commit only if the lock of the queue has had no other holder
    since this epoch, else QueueLockLost. Queues that these do not name are committed
    unconditionally.
    """

    code: ClassVar = RequestCode.COMMIT_OFFSETS
    reply: ClassVar = OffsetsCommitted

    group: str
    topic: str
    offsets: dict[QueueText, int] = msgspec.field(default_factory=dict)
    expected: dict[QueueText, int] = msgspec.field(default_factory=dict)
    epochs: dict[QueueText, int] = msgspec.field(default_factory=dict)


# Seeks --------------------------------------------------------------------------------------------
class SeekMove(msgspec.Struct, frozen=True, array_like=True):
    """Move of the group in *queue*, between committed offsets; *before* is -1 where it had not
    begun.
    """

    queue: int
    before: int
    after: int


class GroupMoved(LinkReply, frozen=True, kw_only=True):
    """Reply: the group's move in each queue, applied unless the request was a dry run."""

    queues: list[SeekMove]


class SeekTo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Target of a seek, exactly one of three; None marks the others.

    The first offset that was visible at *time_ms* (ms since 1970) or later, *shift* messages from
    the group's offset (+ forward, - backward), or *offsets* by queue.
    """

    time_ms: Annotated[int, msgspec.Meta(ge=0, le=SEEK_TIME_MAX_MS)] | None = None
    shift: Annotated[int, msgspec.Meta(ge=-SEEK_SHIFT_MAX, le=SEEK_SHIFT_MAX)] | None = None
    offsets: dict[QueueText, int] | None = None


class SeekGroup(LinkRequest[GroupMoved], frozen=True, kw_only=True):
    """Move *group* in *queues* of *topic*: in all of them, or in none.

    *queues* None: all queues, or those of the offsets in *to*. *to*: `earliest`, `latest`, or a
    SeekTo. *dry_run*: return the moves without applying them.
    """

    code: ClassVar = RequestCode.SEEK
    reply: ClassVar = GroupMoved

    group: str
    topic: str
    to: str | SeekTo
    dry_run: bool
    queues: list[int] | None = None
