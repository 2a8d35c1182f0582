"""What may not go to make room: messages that are younger than the retention and that a consumer group of their topic has not read.

A topic that no group has begun to read is read by nobody: all of it stays for its retention, since the first group begins with the oldest message.
Topics that say `when_full: drop-oldest` spare nothing. What is leased, rests or dies is not counted here: the trimmer copies it in any case.
Pure: who asks knows what is older than the retention.
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
# By topic id, each group that reads the topic (its id) and its delivery of each queue.
_Readers = dict[int, list[tuple[int, Sequence[Delivery | None]]]]
# (topic id, queue, oldest offset kept) -> the first offset that is not older than the retention.
Young = Callable[[int, int, int], int]


class Spared(NamedTuple):
    """Offsets [*first*, *last*) of a queue, which group *group_id* has not read; 0: no group has begun to read the topic."""

    topic_id: int
    queue: int
    first: int
    last: int
    group_id: int


class Holder(NamedTuple):
    """Who holds the most of the space that cannot be freed: *messages* of *topic* that *group* has not read ("": nobody reads it). Whole names."""

    topic: str
    group: str
    messages: int


def spare_unread(
    ends: Sequence[tuple[int, Sequence[int]]], names: Names, deliveries: Deliveries, young: Young
) -> tuple[list[tuple[int, list[int]]], list[Spared]]:
    """Where queues may begin if everything before *ends* [(topic id, [offset of queue 0, ...])] is to go, and what stays for that."""
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
    """The lowest offset of *queue* that a group has not read, and which group that is."""
    least = topic.mins[queue]
    if not readers:
        return least, 0
    found = (topic.ends[queue], 0)
    for group_id, row in readers:
        delivery = row[queue] if queue < len(row) else None
        if delivery is not None:
            found = min(found, (max(least, delivery.unread_from()), group_id))
        elif names.groups_by_id[group_id].start != LATEST:
            # Where a group begins that starts from a time is known when it does; it is not before the oldest.
            found = min(found, (least, group_id))
    return found


def holder_of(spared: Sequence[Spared], names: Names) -> Holder | None:
    """Of whom there is most in *spared*."""
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
    """A sentence for those whose sends are refused: who holds the space, and what to do. Of what is in a namespace, the namespace alone is named,
    since others hear it, too. "" for nobody."""
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
