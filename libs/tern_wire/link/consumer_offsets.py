"""Where consumer groups are in the queues of a topic, as proxies ask for it, commit it and move it."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

SEEK_TIME_MAX_MS = (1 << 53) - 1
SEEK_SHIFT_MAX = (1 << 62) - 1
# The number of a queue in its broker group, as text: keys of maps are texts.
QueueText = Annotated[str, msgspec.Meta(pattern=r"^(?:0|[1-9][0-9]{0,17})\Z")]


# Committed ---------------------------------------------------------------------------------------------------------
class GroupOffsets(LinkReply, frozen=True, kw_only=True):
    """The offset that is committed in each queue that the group has begun: all before it is settled."""

    offsets: dict[str, int]


class ListGroupOffsets(LinkRequest[GroupOffsets], frozen=True, kw_only=True):
    """Where *group* is in *topic*."""

    code: ClassVar = RequestCode.GROUP_OFFSETS
    reply: ClassVar = GroupOffsets

    group: str
    topic: str


class OffsetsCommitted(LinkReply, frozen=True, kw_only=True):
    """What is committed now in the queues that were named."""

    offsets: dict[str, int]


class CommitOffsets(LinkRequest[OffsetsCommitted], frozen=True, kw_only=True):
    """Commit *offsets* of *group* in *topic*, by queue: in all these queues, or in none.

    *expected*: only where this is committed now, else OffsetMoved. *epochs*: only if nobody else has had the lock of the queue since this epoch,
    else QueueLockLost. Queues that they do not name are committed whatever is there.
    """

    code: ClassVar = RequestCode.COMMIT_OFFSETS
    reply: ClassVar = OffsetsCommitted

    group: str
    topic: str
    offsets: dict[QueueText, int] = msgspec.field(default_factory=dict)
    expected: dict[QueueText, int] = msgspec.field(default_factory=dict)
    epochs: dict[QueueText, int] = msgspec.field(default_factory=dict)


# Moved -------------------------------------------------------------------------------------------------------------
class SeekMove(msgspec.Struct, frozen=True, array_like=True):
    """The group's move in *queue*, between committed offsets; *before* is -1 where it had not begun."""

    queue: int
    before: int
    after: int


class GroupMoved(LinkReply, frozen=True, kw_only=True):
    """Where the group goes in each queue: it is there now, unless it was asked for a dry run."""

    queues: list[SeekMove]


class SeekTo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place that is no word, one of three: the first offset that was visible at *time_ms* (ms since 1970) or later, *shift* messages from where the
    group is (+ forward, - backward), or *offsets* by queue. None: not this one."""

    time_ms: Annotated[int, msgspec.Meta(ge=0, le=SEEK_TIME_MAX_MS)] | None = None
    shift: Annotated[int, msgspec.Meta(ge=-SEEK_SHIFT_MAX, le=SEEK_SHIFT_MAX)] | None = None
    offsets: dict[QueueText, int] | None = None


class SeekGroup(LinkRequest[GroupMoved], frozen=True, kw_only=True):
    """Move *group* in *queues* of *topic* (None: in all of them, or in those that *to* has offsets of): in all of them, or in none.

    *to*: `earliest`, `latest`, or a place. *dry_run*: tell where it would go, and move nothing.
    """

    code: ClassVar = RequestCode.SEEK
    reply: ClassVar = GroupMoved

    group: str
    topic: str
    to: str | SeekTo
    dry_run: bool
    queues: list[int] | None = None
