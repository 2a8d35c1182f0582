"""Staged messages become visible, all in one entry.

Law: a message group keeps its queue and its order. Its queue was chosen when it was staged, and is
in the record; where its slot has moved since, the batch is refused. Messages of a topic that was
deleted meanwhile are dropped; the others appear.
"""

from collections.abc import Iterator

import numpy as np

from tern_broker.core.appending import append, distinct
from tern_broker.core.applied import Applied
from tern_broker.core.delivery.slots import SLOTS, Slots
from tern_broker.core.publications.stages import Rows
from tern_broker.core.timing import Timing
from tern_broker.core.topics import Names, Topic
from tern_wire.errors import StageMoved
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.link.timer_rows import TIMER_ROWS


class Publisher:
    """Owner: the state machine, whose queues, slots and timers it extends."""

    def __init__(self, names: Names, slots: Slots, timing: Timing) -> None:
        self._names, self._slots, self._timing = names, slots, timing

    def publish(self, messages: Rows, applied: Applied) -> Rows:
        """Make *messages* (STAGED) visible in their order; return those of topics that exist.

        Raise StageMoved, with nothing changed.
        """
        topic_ids = distinct(messages["topic"])
        known = [topic_id for topic_id in topic_ids if topic_id in self._names.topics_by_id]
        if len(known) < len(topic_ids):
            messages = messages[np.isin(messages["topic"], known)]
        for topic, own in self._grouped(messages):
            groups, queues = messages["message_group"][own], messages["queue"][own].astype(np.int64)
            slots = groups % np.uint64(SLOTS)
            places = np.unique(np.stack([slots.astype(np.int64), queues]), axis=1)
            is_split = len(np.unique(places[0])) < places.shape[1]
            if is_split or not self._slots.keeps(topic, groups, queues).all():
                raise StageMoved(topic=topic.name)
        waits = messages["deliver_ms"] > applied.now_ms
        if waits.any():
            self._wait(messages[waits], applied)
        self._append(messages[~waits], applied)
        return messages

    def _append(self, messages: Rows, applied: Applied) -> None:
        if not len(messages):
            return
        entries = np.empty(len(messages), QUEUE_ENTRIES)
        for name in ("position", "size", "tag"):
            entries[name] = messages[name]
        codes = messages["topic"].astype(np.int64) << 32 | messages["queue"]
        appends, offsets = append(self._names, codes, entries)
        applied.appends.append(appends)
        applied.woken_topics |= appends.topic_ids()
        for topic, own in self._grouped(messages):
            groups, queues = messages["message_group"][own], messages["queue"][own].astype(np.int64)
            self._slots.sent(topic, groups, queues, offsets[own])

    def _wait(self, messages: Rows, applied: Applied) -> None:
        timers = np.zeros(len(messages), TIMER_ROWS)
        timers["timer_id"] = timers["position"] = messages["position"]
        for name, column in (("topic_id", "topic"), *((name, name) for name in ("deliver_ms", "size", "queue", "tag"))):
            timers[name] = messages[column]
        self._timing.schedule(timers, applied)

    def _grouped(self, messages: Rows) -> Iterator[tuple[Topic, Rows]]:
        """Yield each topic that has messages with a message group, and the numbers of these."""
        grouped = np.flatnonzero(messages["message_group"])
        for topic_id in distinct(messages["topic"][grouped]):
            yield self._names.topics_by_id[topic_id], grouped[messages["topic"][grouped] == topic_id]
