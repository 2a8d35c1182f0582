"""The topics that a broker group hosts, and the unread messages of every group: both must be zero
before the broker group may be removed.

The page is computed in steps, so that tens of thousands of topics delay no other request. Between
two steps the state may change; a page describes each topic as of a moment of its own. A page ends
after a number of topics, or of rows of groups.

A group's unread messages are those that it has not settled: never received, leased, resting or
dying. Where a group has not begun a queue, they are the messages that it would receive. A group
that has begun a topic in other broker groups alone is unknown here: a caller that queries all
broker groups finds it.
"""

import heapq
from collections.abc import Generator
from typing import Any

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.timing import Timing
from tern_broker.core.topics import Group, Names, Topic
from tern_wire.limits import HOSTED_ROWS_MAX, LEFT_SHOWN_MAX

# Pairs of groups and topics that one step visits: a tenth of a millisecond.
_PAIRS_PER_STEP = 1_024


def hosted_page(
    names: Names, leasing: Leasing, timing: Timing, *, after: str, limit: int
) -> Generator[None, None, dict[str, Any]]:
    """Return at most *limit* topics after *after*, in order of their names, as `HOSTED` has them.
    `more`: there are others.
    """
    page = heapq.nsmallest(limit + 1, (name for name in names.topics if name > after))
    topics = [names.topics[name] for name in page[:limit]]
    readers: dict[int, list[int]] = {topic.topic_id: [] for topic in topics}
    for number, (group_id, topic_id) in enumerate(list(leasing.deliveries), 1):
        if topic_id in readers:
            readers[topic_id].append(group_id)
        if not number % _PAIRS_PER_STEP:
            yield
    rows: list[list[Any]] = []
    count = 0
    for topic in topics:
        groups: list[list[Any]] = []
        for group_id in readers[topic.topic_id]:
            group, row = names.groups_by_id.get(group_id), leasing.deliveries.get((group_id, topic.topic_id))
            if group is not None and row is not None:
                groups.append([group.name, *_left(group, topic, row)])
            yield
        count += 1 + len(groups)
        if rows and count > HOSTED_ROWS_MAX:
            break
        messages = sum(topic.ends) - sum(topic.mins)
        rows.append([topic.name, messages, timing.pending[topic.topic_id], sorted(groups)])
        yield
    return {"topics": rows, "more": len(rows) < len(page)}


def dead_groups(names: Names, leasing: Leasing) -> dict[str, Any]:
    """Return the number of dead letters, and the groups that have the most."""
    counts = leasing.dead_topics.counts()
    most = heapq.nlargest(LEFT_SHOWN_MAX, counts, key=lambda group_id: (counts[group_id], -group_id))
    found = [[group.name, counts[group.group_id]] for each in most if (group := names.groups_by_id.get(each))]
    return {"dead_letters": sum(counts.values()), "dead_groups": found}


def _left(group: Group, topic: Topic, row: list[Delivery | None]) -> tuple[int, int]:
    """Return the group's unsettled messages, and how many of them are leased."""
    unread = leased = 0
    for queue, end in enumerate(topic.ends):
        delivery = row[queue] if queue < len(row) else None
        if delivery is None:
            unread += end - group.start_in(topic, queue, topic.mins[queue])
        else:
            unread += end - delivery.cursor + delivery.unsettled
            leased += delivery.leased
    return unread, leased
