"""Statistics of topics and groups, merged from the answers of the broker groups. Pure.

Rates are those of the last minute. A leader counts outgoing traffic since its election; all other
counts survive a change of leader.
"""

from collections.abc import Callable, Iterable, Sequence

from tern_proxy.core.documents import statistics
from tern_proxy.core.documents.statistics import Flow, GroupLag, QueueLag, QueueStats, TopicStats
from tern_wire.link.statistics import FlowNumbers, GroupStatistics, TopicLag, TopicStatistics


def topic_stats(topic: str, answers: Sequence[tuple[str, TopicStatistics]]) -> TopicStats:
    """Return the statistics of a topic, and all groups that have begun to read it."""
    queues = [
        QueueStats(
            queue=f"{name}:{row.queue}",
            min_offset=row.min_offset,
            max_offset=row.max_offset,
            messages=row.max_offset - row.min_offset,
            last_visible_at=row.last_visible_ms or None,
            in_messages_per_s=row.messages_per_s,
        )
        for name, told in answers
        for row in told.queues
    ]
    return TopicStats(
        topic=topic,
        messages=sum(queue.messages for queue in queues),
        scheduled=sum(told.scheduled for _, told in answers),
        came_in=_flow(told.came_in for _, told in answers),
        out=_flow(told.went_out for _, told in answers),
        groups=sorted({name for _, told in answers for name in told.groups}),
        queues=queues,
    )


def group_lag(group: str, answers: Sequence[tuple[str, GroupStatistics]], sees: Callable[[str], bool]) -> GroupLag:
    """Return the lag of a group in the topics that the principal *sees*; other topics are not
    counted.
    """
    topics: dict[str, list[tuple[str, TopicLag]]] = {}
    for name, told in answers:
        for part in (part for part in told.topics if sees(part.topic)):
            topics.setdefault(part.topic, []).append((name, part))
    rows = [_topic_lag(name, parts) for name, parts in sorted(topics.items())]
    return GroupLag(
        group=group,
        lag=sum(row.lag for row in rows),
        lag_ms=max((row.lag_ms for row in rows), default=0),
        dead_letters=sum(told.dead_letters for _, told in answers),
        topics=rows,
    )


def _topic_lag(topic: str, parts: Sequence[tuple[str, TopicLag]]) -> statistics.TopicLag:
    queues = [
        QueueLag(
            queue=f"{name}:{row.queue}",
            committed=row.committed if row.committed >= 0 else None,
            max_offset=row.max_offset,
            lag=row.lag,
            lag_ms=row.lag_ms,
            leased=row.leased,
            resting=row.resting,
            dying=row.dying,
        )
        for name, part in parts
        for row in part.queues
    ]
    return statistics.TopicLag(
        topic=topic,
        lag=sum(queue.lag for queue in queues),
        leased=sum(queue.leased for queue in queues),
        resting=sum(queue.resting for queue in queues),
        dying=sum(queue.dying for queue in queues),
        lag_ms=max((queue.lag_ms for queue in queues), default=0),
        out=_flow(part.went_out for _, part in parts),
        again=_flow(part.went_again for _, part in parts),
        queues=queues,
    )


def _flow(flows: Iterable[FlowNumbers]) -> Flow:
    """Return the sum of several flows."""
    known = list(flows)
    return Flow(
        messages=sum(flow.messages for flow in known),
        bytes=sum(flow.size_bytes for flow in known),
        messages_per_s=round(sum(flow.messages_per_s for flow in known), 2),
        bytes_per_s=round(sum(flow.bytes_per_s for flow in known), 2),
    )
