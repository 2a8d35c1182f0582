"""Apply commands on dead letters: buried once, browsed by offset, redriven once, purged.

A message that has failed for the last time is *dying* (delivery.py). The leader looks up its record
and proposes to bury it. Apply buries it exactly once, if it is still dying: an entry for the record
and one for a note go into the group's dead-letter topic (dead_topics.py), and the message is
settled. So a leader that dies in between loses nothing: the next leader finds the dying messages
and buries them.

A BURY's payload: | rows 4 | rsvd 4 | bury rows | notes |. A note is a record with an empty body
whose properties describe the dead message. A row without size has lost its record to damage that
retention should have prevented; the message is settled without a trace. A PURGE's map: {group}.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied, Counters, Handler, read_map
from tern_broker.core.dead_topics import NOTES, ORIGINALS, DeadTopics
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.delivery.offset_set import OffsetSet
from tern_broker.core.topics import Group, Names, Topic
from tern_wire.errors import GroupNotFound, LinkBodyMalformed
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import BURIED, BURY_ROWS, NOT_DYING, QUEUE_ENTRIES, QueueAppend, QueueAppends


class DeadLetters:
    """Every group's dead letters, and which of them were redriven. Owner: the state machine."""

    def __init__(self, names: Names, leasing: Leasing, counters: Counters) -> None:
        self._names, self._leasing, self._counters = names, leasing, counters
        self.topics: DeadTopics = leasing.dead_topics
        # Group id -> offsets above the topic's min that were redriven.
        self._redriven: dict[int, OffsetSet] = {}

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.BURY: self._bury, CommandKind.PURGE: self._purge}

    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def holds(self, topic: Topic, group_id: int, offset: int) -> bool:
        """Return whether the dead letter *offset* exists: neither purged, nor dropped by retention,
        nor redriven.
        """
        if not topic.mins[NOTES] <= offset < topic.ends[NOTES]:
            return False
        redriven = self._redriven.get(group_id)
        return redriven is None or offset not in redriven

    def count(self, group_id: int) -> int:
        """Return the number of the group's dead letters."""
        topic = self.topics.of(group_id)
        if topic is None:
            return 0
        redriven = self._redriven.get(group_id)
        gone = redriven.count_from(topic.mins[NOTES]) if redriven is not None else 0
        return topic.ends[NOTES] - topic.mins[NOTES] - gone

    def take(self, group_id: int, topic: Topic, offsets: list[int]) -> None:
        """Record *offsets* as redriven. A prefix in which all are redriven is dropped, not kept one
        by one.
        """
        redriven = self._redriven.setdefault(group_id, OffsetSet())
        for offset in offsets:
            redriven.add(offset)
        self._counters.redriven += len(offsets)
        self.topics.begin_at(topic, redriven.first_missing(topic.mins[NOTES]))
        self._forget_old(group_id, topic)

    def drop(self, _applied: Applied, _topic_id: int, group_id: int) -> None:
        """Drop the records of a deleted group (with *group_id* 0 a topic was deleted: nothing to
        do).
        """
        self._redriven.pop(group_id, None)

    # Commands -------------------------------------------------------------------------------------
    def _bury(self, payload: memoryview, position: int, applied: Applied) -> bytes:
        count = SEND_HEAD.unpack_from(payload)[0] if len(payload) >= SEND_HEAD.size else 0
        notes_at = SEND_HEAD.size + count * BURY_ROWS.itemsize
        if len(payload) < notes_at:
            raise LinkBodyMalformed(reason=f"a BURY of {count} rows in {len(payload)} bytes")
        rows = np.frombuffer(payload, BURY_ROWS, count, SEND_HEAD.size)
        note_sizes = rows["note_size"].astype(np.int64)
        ends = np.cumsum(note_sizes)
        if int(note_sizes.sum()) != len(payload) - notes_at:
            raise LinkBodyMalformed(reason="BURY rows do not describe their notes")
        positions = ends - note_sizes + (position + notes_at)
        results = bytes(self._settle(*row) for row in rows.tolist())
        is_kept = (np.frombuffer(results, np.uint8) == BURIED) & (rows["size"] > 0)
        appends: list[QueueAppend] = []
        for topic_id in np.unique(rows["dead_topic"][is_kept]).tolist():
            of_topic = np.flatnonzero(is_kept & (rows["dead_topic"] == topic_id))
            appends += self._append(self._names.topics_by_id[topic_id], rows[of_topic], positions[of_topic])
        if appends:
            applied.appends.append(QueueAppends.of(appends))
        self._counters.dead_lettered += results.count(BURIED)
        # The next messages of their message groups are visible now.
        applied.woken_topics.update(rows["topic"][np.frombuffer(results, np.uint8) == BURIED].tolist())
        return results

    def _settle(
        self,
        group_id: int,
        topic_id: int,
        queue: int,
        _size: int,
        offset: int,
        _position: int,
        _tag: int,
        _note_size: int,
        dead_topic_id: int,
    ) -> int:
        delivery = self._leasing.find(group_id, topic_id, queue)
        dead = self.topics.of(group_id)
        if delivery is None or dead is None or dead.topic_id != dead_topic_id or not delivery.bury(offset):
            return NOT_DYING
        if not delivery.dying:
            self._leasing.condemned.pop((group_id, topic_id, queue), None)
        return BURIED

    def _append(self, dead: Topic, rows: npt.NDArray[np.void], positions: npt.NDArray[np.int64]) -> list[QueueAppend]:
        originals, notes = np.zeros(len(rows), QUEUE_ENTRIES), np.zeros(len(rows), QUEUE_ENTRIES)
        originals["position"], originals["size"], originals["tag"] = rows["position"], rows["size"], rows["tag"]
        notes["position"], notes["size"], notes["tag"] = positions, rows["note_size"], rows["tag"]
        appends = []
        for queue, entries in ((ORIGINALS, originals), (NOTES, notes)):
            appends.append(QueueAppend(dead.topic_id, queue, dead.ends[queue], entries))
            dead.ends[queue] += len(entries)
        return appends

    def _purge(self, payload: memoryview, _position: int, _applied: Applied) -> dict[str, Any]:
        group = self.group(read_map(payload)["group"])
        topic = self.topics.of(group.group_id)
        purged = self.count(group.group_id)
        if topic is not None:
            self.topics.begin_at(topic, topic.ends[NOTES])
            self._forget_old(group.group_id, topic)
        return {"purged": purged}

    def group(self, name: str) -> Group:
        """Return the group *name*; raise GroupNotFound."""
        group = self._names.groups.get(str(name))
        if group is None:
            raise GroupNotFound(group=str(name)[:160])
        return group

    def _forget_old(self, group_id: int, topic: Topic) -> None:
        redriven = self._redriven.get(group_id)
        if redriven is not None:
            redriven.drop_before(topic.mins[NOTES])

    # Saving ---------------------------------------------------------------------------------------
    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return {"redriven": [[group_id, *offsets.pack()] for group_id, offsets in self._redriven.items()]}

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self._redriven = {group_id: OffsetSet(base, bits) for group_id, base, bits in packed["redriven"]}
