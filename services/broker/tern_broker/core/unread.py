"""Messages that may not be dropped to make room: younger than the retention, and unread by a
consumer group of their topic.

A topic that no group has begun is unread: all of it stays for its retention, since the first group
begins with the oldest message. Topics with `when_full: drop-oldest` spare nothing. Messages that
are leased, resting or dying are not counted here: the trimmer copies them in any case. Pure: the
caller knows which messages are older than the retention.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.topics import Names, Topic
from tern_wire.dead_letters import PREFIX
from tern_wire.names import SEPARATOR, namespace_of
from tern_wire.settings.group_settings import LATEST
from tern_wire.settings.when_full import REFUSE, when_full_of

Deliveries = Mapping[tuple[int, int], Sequence[Delivery | None]]
# Topic id -> each group that reads the topic (its id) and its delivery of each queue.
_Readers = dict[int, list[tuple[int, Sequence[Delivery | None]]]]
# (topic id, queue, oldest offset kept) -> the first offset that is not older than the retention.
Young = Callable[[int, int, int], int]


class Spared(NamedTuple):
    """Offsets [*first*, *last*) of a queue that group *group_id* has not read; 0: no group has
    begun the topic.
    """

    topic_id: int
    queue: int
    first: int
    last: int
    group_id: int


class Holder(NamedTuple):
    """The largest holder of space that cannot be freed: *messages* of *topic* that *group* has not
    read ("": no group reads it).

    Both are whole names.
    """

    topic: str
    group: str
    messages: int


def spare_unread(
    ends: Sequence[tuple[int, Sequence[int]]], names: Names, deliveries: Deliveries, young: Young
) -> tuple[list[tuple[int, list[int]]], list[Spared]]:
    """Return the new first offsets of queues if everything before *ends* [(topic id, [offset of
    queue 0, ...])] is to be dropped, and the spared offsets.
    """
    readers: _Readers = {}
    for (group_id, topic_id), row in deliveries.items():
        readers.setdefault(topic_id, []).append((group_id, row))
    mins: list[tuple[int, list[int]]] = []
    spared: list[Spared] = []
    for topic_id, offsets in ends:
        topic = names.topics_by_id.get(topic_id)
        if topic is None or when_full_of(topic.name, topic.attributes) != REFUSE:
            mins.append((topic_id, list(offsets)))
            continue
        begins: list[int] = []
        for queue, end in enumerate(offsets):
            first, group_id = _first_unread(topic, queue, names, readers.get(topic_id, ()))
            if first < end:
                first = max(first, young(topic_id, queue, topic.mins[queue]))
            if first < end:
                spared.append(Spared(topic_id, queue, first, end, group_id))
            begins.append(min(first, end))
        mins.append((topic_id, begins))
    return mins, spared


def _first_unread(
    topic: Topic, queue: int, names: Names, readers: Sequence[tuple[int, Sequence[Delivery | None]]]
) -> tuple[int, int]:
    """Return the lowest offset of *queue* that a group has not read, and the id of that group."""
    least = topic.mins[queue]
    if not readers:
        return least, 0
    found = (topic.ends[queue], 0)
    for group_id, row in readers:
        delivery = row[queue] if queue < len(row) else None
        if delivery is not None:
            found = min(found, (max(least, delivery.unread_from()), group_id))
        elif names.groups_by_id[group_id].start != LATEST:
            # The first offset of a group that starts from a time is unknown until it begins; it is
            # not before the oldest one.
            found = min(found, (least, group_id))
    return found


def holder_of(spared: Sequence[Spared], names: Names) -> Holder | None:
    """Return the largest holder in *spared*; None if it is empty."""
    counts: dict[tuple[int, int], int] = {}
    for each in spared:
        key = (each.topic_id, each.group_id)
        counts[key] = counts.get(key, 0) + each.last - each.first
    if not counts:
        return None
    topic_id, group_id = max(counts, key=lambda key: counts[key])
    group = names.groups_by_id.get(group_id)
    return Holder(
        names.topics_by_id[topic_id].name, group.name if group is not None else "", counts[topic_id, group_id]
    )


def held_by(holder: Holder | None) -> str:
    """Return a sentence for clients whose sends are refused: what holds the space, and what to do.
    "" without a holder.

    For a topic or group in a namespace only the namespace is named, since clients of other
    namespaces see the sentence too.
    """
    if holder is None:
        return ""
    count = f"{holder.messages:,} message{'s' if holder.messages != 1 else ''}"
    if holder.topic.startswith(PREFIX):
        group = holder.topic.removeprefix(PREFIX)
        whose = f"a group of namespace '{namespace_of(group)}'" if SEPARATOR in group else f"group '{group}'"
        return f"{count} among the dead letters of {whose} hold the space: redrive or purge them."
    if SEPARATOR in holder.topic:
        what, own = f"a topic of namespace '{namespace_of(holder.topic)}'", "TOPIC"
    else:
        what, own = f"topic '{holder.topic}'", holder.topic
    if not holder.group:
        who, then = "No consumer group has begun to read", "let one read it, or delete it"
    elif SEPARATOR in holder.group:
        who, then = (
            f"A group of namespace '{namespace_of(holder.group)}' has not read",
            "let it read on, seek it forward",
        )
    else:
        who, then = f"Group '{holder.group}' has not read", "let it read on, seek it forward or delete it"
    return (
        f"{who} {count} of {what}, younger than the retention, which hold the space: {then}, add disk space, or allow the topic to drop "
        f"its oldest messages (`ternmq topic alter {own} --when-full drop-oldest`)."
    )
