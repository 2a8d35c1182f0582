"""Lag and skew of groups, from samples of the admin API. Pure: samples in, rows out."""

from collections.abc import Sequence

import msgspec

from tern_spark.ranges import QueueRange


class QueueLag(msgspec.Struct, frozen=True):
    """Lag of a group in one queue, as GET /v1/groups/GROUP/lag answers."""

    queue: str
    max_offset: int
    lag: int
    lag_ms: int
    committed: int | None = None


class TopicLag(msgspec.Struct, frozen=True):
    """Lag of a group in one topic."""

    topic: str
    queues: list[QueueLag]


class GroupLag(msgspec.Struct, frozen=True):
    """Lag of a group."""

    group: str
    lag: int
    lag_ms: int
    dead_letters: int
    topics: list[TopicLag]


class Sample(msgspec.Struct, frozen=True):
    """All groups at one time."""

    at_ms: int
    groups: list[GroupLag]


class TopicTrend(msgspec.Struct, frozen=True, kw_only=True):
    """What the samples say about one group and topic.

    *in_per_s* and *out_per_s* are messages a second over all samples, None with one sample.
    *drain_s*: seconds until the lag is 0 at these rates; None when it does not shrink. *skew*: lag
    of the fullest queue over the mean of all queues; 1.0 is even. *hottest* is the queue with the
    most new messages, with one sample that with the most lag.
    """

    group: str
    topic: str
    queues: int
    lag: int
    lag_ms: int
    in_per_s: float | None
    out_per_s: float | None
    drain_s: float | None
    skew: float
    hottest: str
    idle_queues: int


def trends(samples: Sequence[Sample]) -> list[TopicTrend]:
    """Return a row for each group and topic of the last sample, the most lag first."""
    first, last = samples[0], samples[-1]
    span_s = (last.at_ms - first.at_ms) / 1_000
    before = {
        (group.group, topic.topic, queue.queue): queue
        for group in first.groups
        for topic in group.topics
        for queue in topic.queues
    }
    found = [_trend(group.group, topic, before, span_s) for group in last.groups for topic in group.topics]
    return sorted(found, key=lambda row: (-row.lag, row.group, row.topic))


def _trend(group: str, topic: TopicLag, before: dict[tuple[str, str, str], QueueLag], span_s: float) -> TopicTrend:
    lag = sum(queue.lag for queue in topic.queues)
    incoming: dict[str, int] = {}
    lag_before = 0
    for queue in topic.queues:
        # A queue that is new was empty before.
        old = before.get((group, topic.topic, queue.queue))
        incoming[queue.queue] = queue.max_offset - (old.max_offset if old else 0)
        lag_before += old.lag if old else 0
    rate_in = rate_out = drain_s = None
    if span_s > 0:
        rate_in = sum(incoming.values()) / span_s
        rate_out = max(rate_in - (lag - lag_before) / span_s, 0.0)
        drain_s = 0.0 if not lag else lag / (rate_out - rate_in) if rate_out > rate_in else None
    elif not lag:
        drain_s = 0.0
    heat = incoming if span_s > 0 and any(incoming.values()) else {queue.queue: queue.lag for queue in topic.queues}
    fullest = max((queue.lag for queue in topic.queues), default=0)
    return TopicTrend(
        group=group,
        topic=topic.topic,
        queues=len(topic.queues),
        lag=lag,
        lag_ms=max((queue.lag_ms for queue in topic.queues), default=0),
        in_per_s=rate_in,
        out_per_s=rate_out,
        drain_s=drain_s,
        skew=fullest * len(topic.queues) / lag if lag else 1.0,
        hottest=max(heat, key=lambda name: (heat[name], name)) if heat and any(heat.values()) else "",
        idle_queues=sum(1 for count in incoming.values() if not count) if span_s > 0 else 0,
    )


def fresh_ranges(samples: Sequence[Sample], group: str, topic: str) -> list[QueueRange]:
    """Return what *group* has not settled in *topic*, and what came between the samples."""
    before = {
        queue.queue: queue.max_offset
        for each in samples[0].groups
        for found in each.topics
        for queue in found.queues
        if (each.group, found.topic) == (group, topic)
    }
    return [
        QueueRange(
            topic=topic,
            queue=queue.queue,
            start=max(0, min(queue.max_offset - queue.lag, before.get(queue.queue, queue.max_offset))),
            end=queue.max_offset,
        )
        for each in samples[-1].groups
        for found in each.topics
        for queue in found.queues
        if (each.group, found.topic) == (group, topic)
    ]
