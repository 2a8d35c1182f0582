"""Documents of statistics of topics and groups: sizes, rates and lag."""

from typing import Annotated

from msgspec import Meta, Struct

from tern_proxy.core.documents.values import Count, Offset, Queue, Time

Rate = Annotated[float, Meta(ge=0, description="Of the last minute.")]
DurationMs = Annotated[int, Meta(ge=0, description="Milliseconds.")]


class Flow(Struct, kw_only=True):
    """Traffic since the leader was elected, and its rate."""

    messages: Count
    bytes: Count
    messages_per_s: Rate
    bytes_per_s: Rate


class QueueStats(Struct, kw_only=True):
    """One queue."""

    queue: Queue
    min_offset: Offset
    max_offset: Offset
    messages: Count
    last_visible_at: Time | None
    in_messages_per_s: Rate


class TopicStats(Struct, kw_only=True, rename={"came_in": "in"}):
    """One topic."""

    topic: str
    messages: Count
    scheduled: Annotated[int, Meta(ge=0, description="Messages that wait for their delivery time.")]
    came_in: Flow
    out: Flow
    groups: list[str]
    queues: list[QueueStats]


class QueueLag(Struct, kw_only=True):
    """Lag of a group in one queue; `committed` is null where it has not begun."""

    queue: Queue
    committed: Offset | None
    max_offset: Offset
    lag: Count
    lag_ms: DurationMs
    leased: Count
    resting: Count
    dying: Count


class TopicLag(Struct, kw_only=True):
    """Lag of a group in one topic. `again`: redelivered messages."""

    topic: str
    lag: Count
    leased: Count
    resting: Count
    dying: Count
    lag_ms: DurationMs
    out: Flow
    again: Flow
    queues: list[QueueLag]


class GroupLag(Struct, kw_only=True):
    """Lag of a group."""

    group: str
    lag: Count
    lag_ms: DurationMs
    dead_letters: Count
    topics: list[TopicLag]
