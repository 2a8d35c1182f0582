"""Numbers of topics and groups in one broker group, as proxies ask for them: how much is there, how fast it moves, how far groups are behind."""

from typing import ClassVar

import msgspec

from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


class FlowNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What has passed: messages and their bytes so far, and both a second over the last minute."""

    messages: int
    size_bytes: int = msgspec.field(name="bytes")
    messages_per_s: float
    bytes_per_s: float


# Topics ------------------------------------------------------------------------------------------------------------
class QueueNumbers(msgspec.Struct, frozen=True, array_like=True):
    """A queue's oldest and next offset, since when its last message is visible (ms since 1970; 0: it has none), and how many come a second."""

    queue: int
    min_offset: int
    max_offset: int
    last_visible_ms: int
    messages_per_s: float


class TopicStatistics(LinkReply, frozen=True, kw_only=True):
    """What came in, and went out to consumers since this leader leads; *groups* that have begun to read it; its queues by number.

    *scheduled*: messages that wait for their delivery time.
    """

    came_in: FlowNumbers = msgspec.field(name="in")
    went_out: FlowNumbers = msgspec.field(name="out")
    groups: list[str]
    queues: list[QueueNumbers]
    scheduled: int


class GetTopicStatistics(LinkRequest[TopicStatistics], frozen=True, kw_only=True):
    """The numbers of *topic*."""

    code: ClassVar = RequestCode.TOPIC_STATS
    reply: ClassVar = TopicStatistics

    topic: str


# Groups ------------------------------------------------------------------------------------------------------------
class QueueLag(msgspec.Struct, frozen=True, array_like=True):
    """How far a group is behind in a queue: *lag* messages are not settled, the first of them visible for *lag_ms*.

    *committed*: the offset below which all is settled, -1: the group has not begun; *max_offset*: the queue's next one. Of the messages so many
    are *leased*, *resting* after a failed attempt, *dying*.
    """

    queue: int
    committed: int
    max_offset: int
    lag: int
    lag_ms: int
    leased: int
    resting: int
    dying: int


class TopicLag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group is behind in *topic*; what went out to it since this leader leads, and of that what it had received before."""

    topic: str
    queues: list[QueueLag]
    went_out: FlowNumbers = msgspec.field(name="out")
    went_again: FlowNumbers = msgspec.field(name="again")


class GroupStatistics(LinkReply, frozen=True, kw_only=True):
    """The topics by name, and how many *dead_letters* the group has in this broker group."""

    topics: list[TopicLag]
    dead_letters: int


class GetGroupStatistics(LinkRequest[GroupStatistics], frozen=True, kw_only=True):
    """The numbers of *group* in *topic*; None: in every topic that it has begun to read."""

    code: ClassVar = RequestCode.GROUP_STATS
    reply: ClassVar = GroupStatistics

    group: str
    topic: str | None = None
