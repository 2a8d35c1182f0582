"""Link requests for statistics of topics and groups in one broker group: sizes, rates and lag."""

from typing import ClassVar

import msgspec

from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


class FlowNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Traffic: total messages and bytes, and the rates of both over the last minute."""

    messages: int
    size_bytes: int = msgspec.field(name="bytes")
    messages_per_s: float
    bytes_per_s: float


# Topics -------------------------------------------------------------------------------------------
class QueueNumbers(msgspec.Struct, frozen=True, array_like=True):
    """Queue: its oldest and next offset, the time of its last visible message (ms since 1970; 0:
    none), and its rate.
    """

    queue: int
    min_offset: int
    max_offset: int
    last_visible_ms: int
    messages_per_s: float


class TopicStatistics(LinkReply, frozen=True, kw_only=True):
    """Reply: incoming traffic, traffic to consumers since this leader was elected, *groups* that
    read it, queues by number.

    *scheduled* counts messages that wait for their delivery time.
    """

    came_in: FlowNumbers = msgspec.field(name="in")
    went_out: FlowNumbers = msgspec.field(name="out")
    groups: list[str]
    queues: list[QueueNumbers]
    scheduled: int


class GetTopicStatistics(LinkRequest[TopicStatistics], frozen=True, kw_only=True):
    """Request the statistics of *topic*."""

    code: ClassVar = RequestCode.TOPIC_STATS
    reply: ClassVar = TopicStatistics

    topic: str


# Groups -------------------------------------------------------------------------------------------
class QueueLag(msgspec.Struct, frozen=True, array_like=True):
    """Lag of a group in a queue: *lag* messages are not settled, the first of them visible for
    *lag_ms*.

    *committed* is the offset below which all messages are settled, -1 if the group has not begun;
    *max_offset* is the queue's next offset. *leased*, *resting* (in a retry delay) and *dying*
    count messages in these states.
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
    """Lag of a group in *topic*; traffic to it since this leader was elected, and the redelivered
    part of that.
    """

    topic: str
    queues: list[QueueLag]
    went_out: FlowNumbers = msgspec.field(name="out")
    went_again: FlowNumbers = msgspec.field(name="again")


class GroupStatistics(LinkReply, frozen=True, kw_only=True):
    """Reply: the topics by name, and the group's number of *dead_letters* in this broker group."""

    topics: list[TopicLag]
    dead_letters: int


class GetGroupStatistics(LinkRequest[GroupStatistics], frozen=True, kw_only=True):
    """Request the statistics of *group* in *topic*, or None for each that it has begun."""

    code: ClassVar = RequestCode.GROUP_STATS
    reply: ClassVar = GroupStatistics

    group: str
    topic: str | None = None
