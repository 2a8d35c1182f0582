"""Topics and groups as maps that travel over the link. Pure reading; every answer is bounded."""

import heapq
from typing import Any

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.topics import Group, Names, Topic
from tern_wire.limits import LISTED_MAX, QUEUES_SHOWN_MAX
from tern_wire.names import is_of, own_name

Deliveries = dict[tuple[int, int], list[Delivery | None]]


def topic_settings(topic: Topic) -> dict[str, Any]:
    """Return the settings of *topic* in this broker group."""
    return {
        "topic_id": topic.topic_id,
        "queues": topic.queues,
        "type": topic.kind,
        "perm": topic.perm,
        "attributes": topic.attributes,
        "created_ms": topic.created_ms,
        "placement": topic.placement_text,
        "placed_ms": topic.placed_ms,
        "keyed_ms": topic.keyed_ms,
    }


def group_settings(group: Group) -> dict[str, Any]:
    """Return the settings of *group*."""
    return {
        "group_id": group.group_id,
        "group": group.name,
        "invisible_ms": group.invisible_ms,
        "start": group.start,
        "start_ms": group.start_ms,
        "max_attempts": group.max_attempts,
        "retry": group.retry.packed(),
        "retry_delays_ms": list(group.retry_delays_ms),
        "fifo": group.is_fifo,
        "consume": group.consume_enabled,
        "broadcast": group.is_broadcast,
        "attributes": group.attributes,
    }


def describe_topic(names: Names, deliveries: Deliveries, topic: Topic) -> dict[str, Any]:
    """Return settings, [queue, min, max] of every queue, and the names of groups that have begun
    it, at most LISTED_MAX.
    """
    groups = (group.name for group in names.groups_by_id.values() if (group.group_id, topic.topic_id) in deliveries)
    bounds = [[queue, topic.mins[queue], end] for queue, end in enumerate(topic.ends)]
    return {**topic_settings(topic), "bounds": bounds, "groups": heapq.nsmallest(LISTED_MAX, groups)}


def describe_group(names: Names, deliveries: Deliveries, group: Group, only: str) -> dict[str, Any]:
    """Return settings and the group's progress in each topic that it has begun, or in the topic
    *only*.

    `more`: not all topics are shown.
    """
    begun = [
        topic
        for topic in (names.topics_by_id.values() if not only else filter(None, [names.topics.get(only)]))
        if (group.group_id, topic.topic_id) in deliveries
    ]
    shown: list[dict[str, Any]] = []
    left = QUEUES_SHOWN_MAX
    for topic in sorted(begun, key=lambda each: each.name):
        left -= topic.queues
        if shown and left < 0:
            break
        shown.append(_progress(group, topic, deliveries[group.group_id, topic.topic_id]))
    return {**group_settings(group), "topics": shown, "more": len(shown) < len(begun)}


def _progress(group: Group, topic: Topic, row: list[Delivery | None]) -> dict[str, Any]:
    """Return the committed offset by queue, and numbers of messages: unsettled, leased, available
    to lease, parked behind their message group.
    """
    committed: dict[str, int] = {}
    lag = leased = available = parked = 0
    for queue, end in enumerate(topic.ends):
        delivery = row[queue] if queue < len(row) else None
        if delivery is not None:
            committed[str(queue)] = done = delivery.committed()
            lag += end - done
            leased += delivery.leased
            parked += delivery.parked.count if isinstance(delivery, FifoDelivery) else 0
            available += delivery.available(end)
        elif group.starts_at_min:
            lag += end - topic.mins[queue]
            available += end - topic.mins[queue]
    counts = {"lag": lag, "leased": leased, "available": available, "parked": parked}
    return {"topic": topic.name, "committed": committed, **counts}


def list_groups(
    names: Names, *, namespace: str | None, pattern: str, after: str, limit: int, descending: bool
) -> dict[str, Any]:
    """Return up to *limit* groups of *namespace* ("": without one; None: all) whose names contain
    *pattern* (lower case), in order of names after *after*. `more`: there are others.
    """
    found = (
        name
        for name in names.groups
        if (namespace is None or is_of(namespace, name))
        and pattern in own_name(name).lower()
        and (not after or (name < after if descending else name > after))
    )
    page = heapq.nlargest(limit + 1, found) if descending else heapq.nsmallest(limit + 1, found)
    groups = [group_settings(names.groups[name]) for name in page[:limit]]
    return {"groups": groups, "more": len(page) > limit}
