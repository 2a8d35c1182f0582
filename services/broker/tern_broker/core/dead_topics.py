"""The internal topics that hold groups' dead letters: `%DLQ%` and the group's name, two queues
each.

     queue 0   entries that point at the original records, in place: nothing is copied
     queue 1   entries that point at notes: what died, its origin, time and cause; the same offsets

No client can name such a topic (names have no %), and no list contains it: it is in
`Names.topics_by_id` alone, for the code that stores, trims and reads queues. Its id comes from the
same counter as all topic ids, since ids name directories.
"""

from typing import Any

from tern_broker.core.topics import Group, Names, Topic
from tern_wire.dead_letters import NOTES_QUEUE, ORIGINALS_QUEUE, PREFIX

ORIGINALS, NOTES = ORIGINALS_QUEUE, NOTES_QUEUE


class DeadTopics:
    """One topic for each group, created when its first message dies. Owner: the state machine."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._by_group: dict[int, Topic] = {}

    def of(self, group_id: int) -> Topic | None:
        """Return the group's topic; None if none of its messages ever died."""
        return self._by_group.get(group_id)

    def counts(self) -> dict[int, int]:
        """Return the number of dead letters by group id, for groups that have some."""
        found = {group_id: topic.ends[ORIGINALS] - topic.mins[ORIGINALS] for group_id, topic in self._by_group.items()}
        return {group_id: count for group_id, count in found.items() if count}

    def ensure(self, group: Group) -> Topic:
        """Return the group's topic; create it if needed."""
        topic = self._by_group.get(group.group_id)
        if topic is None:
            topic = Topic(self._names.next_id, PREFIX + group.name)
            topic.grow(2)
            self._names.next_id += 1
            self._put(group.group_id, topic)
        return topic

    def forget(self, group_id: int) -> None:
        """Drop the topic of a deleted group, and its dead letters with it."""
        topic = self._by_group.pop(group_id, None)
        if topic is not None:
            del self._names.topics_by_id[topic.topic_id]

    def begin_at(self, topic: Topic, offset: int) -> None:
        """Drop everything before *offset*: it was purged, or delivered again."""
        topic.mins[:] = [max(least, min(offset, end)) for least, end in zip(topic.mins, topic.ends, strict=True)]

    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types."""
        return [
            [group_id, topic.topic_id, topic.name, list(topic.ends), list(topic.mins)]
            for group_id, topic in self._by_group.items()
        ]

    def unpack(self, packed: list[Any]) -> None:
        """Restore the state from *packed*."""
        for group_id, topic_id, name, ends, mins in packed:
            self._put(group_id, Topic(topic_id, name, ends, mins))

    def _put(self, group_id: int, topic: Topic) -> None:
        self._by_group[group_id] = self._names.topics_by_id[topic.topic_id] = topic
