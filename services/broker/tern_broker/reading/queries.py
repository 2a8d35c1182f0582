"""Messages by key: walk the key's chain in the index, newest first, compare the real keys, find
offsets. Bounded and resumable.

A record in the log has no offset: its queue gives it. An entry's time is in its records (stored
time) and in the queue's times (visible time). So a record that became visible when it was stored is
searched among the offsets of that millisecond; a delayed one from its delivery time on; one of a
transaction in the second in which its commit was indexed.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import numpy as np

from tern_broker.core.topics import Topic
from tern_store import Store
from tern_store.index.key_index import Place
from tern_store.visibility_times import offset_at
from tern_wire.limits import QUERY_STEPS_MAX
from tern_wire.records.layout import SIZE
from tern_wire.records.properties import DELIVER_MS, KEYS, MESSAGE_ID, TRANSACTIONAL
from tern_wire.records.read import Record, decode_record
from tern_wire.records.write import fill_in

# A fired timer usually makes its messages visible within the next second: this many offsets are
# searched.
LATE_ENTRIES_MAX = 8_192
# Steps of a walk between two suspension points; number of steps for which a record counts.
_STEPS_PER_TURN, _STEPS_PER_RECORD = 256, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecord:
    """A record, its position in the log, its place in the index, and its offset: -1 without a known
    queue entry.
    """

    place: Place
    position: int
    data: bytes
    record: Record
    offset: int


@dataclass(slots=True)
class KeyQuery:
    """Records of *topic* whose message id or one of whose keys is *key*, stored in [*begin_ms*,
    *end_ms*].

    At most *count* records and *size_max_bytes* (one record always fits), after *after* if that is
    set. Owner: its creator.
    """

    store: Store
    topic: Topic
    key: str
    begin_ms: int
    end_ms: int
    count: int
    size_max_bytes: int
    after: Place | None = None
    found: list[FoundRecord] = field(default_factory=list)
    # The place to continue at; None: nothing is older.
    next: Place | None = None
    # Whether the walk stopped at its step limit, not because enough was found or all was searched.
    is_truncated: bool = False

    def steps(self) -> Iterator[None]:
        """Walk the index; yields now and then. LogRot, DerivedDamage if bytes that were read are
        damaged.
        """
        seen: set[str] = set()
        copies = self.store.moved.positions(self.topic.topic_id)
        steps, size = 0, 0
        # Anything stored under the topic's name before its creation belongs to another topic.
        self.begin_ms = max(self.begin_ms, self.topic.created_ms)
        # Times of the index are whole seconds, rounded down; the record's own time decides.
        walk = self.store.keys.walk(self.topic.name, self.key, begin_ms=max(0, self.begin_ms - 999), after=self.after)
        for place, position, time_ms in walk:
            steps += 1
            # A copy made by retention has the index time of the copying; the message has the time
            # of its record.
            is_late = time_ms > self.end_ms and position not in copies
            # Retention may have dropped what the walk has still found.
            if position >= self.store.log.start.position and not is_late:
                steps += _STEPS_PER_RECORD
                record_size = self._look(place, position, time_ms, seen)
                size += record_size
            if len(self.found) >= self.count or size >= self.size_max_bytes or steps >= QUERY_STEPS_MAX:
                self.next, self.is_truncated = place, steps >= QUERY_STEPS_MAX
                return
            if steps % _STEPS_PER_TURN < _STEPS_PER_RECORD:
                yield

    def _look(self, place: Place, position: int, indexed_ms: int, seen: set[str]) -> int:
        """Keep the record at *position* if it matches; return its size, or 0."""
        log = self.store.log
        where = np.array([position])
        (size,) = SIZE.unpack(log.read_records(where, np.array([SIZE.size])))
        data = bytes(log.read_records(where, np.array([size])))
        record = decode_record(data, 0)
        message_id = record.properties.get(MESSAGE_ID, "")
        names = {message_id, *record.properties.get(KEYS, "").split(" ")}
        is_wanted = record.topic == self.topic.name and self.key in names
        # A message that was copied forward exists twice until its old segment is dropped; the copy
        # comes first.
        if not is_wanted or not self.begin_ms <= record.stored_ms <= self.end_ms or (message_id and message_id in seen):
            return 0
        seen.add(message_id)
        offset = offset_of(self.store, self.topic, record, position, indexed_ms)
        self.found.append(FoundRecord(place=place, position=position, data=data, record=record, offset=offset))
        return len(data)


def filled_in(found: FoundRecord) -> bytearray:
    """Return the record with its offset and position, as a pull returns it."""
    data = bytearray(found.data)
    fill_in(data, np.zeros(1, np.int64), np.array([found.offset]), np.array([found.position]))
    return data


def offset_of(store: Store, topic: Topic, record: Record, position: int, indexed_ms: int) -> int:
    """Return the offset of the record at *position* in its queue; -1 if it is not visible (yet), or
    has no queue entry.

    *indexed_ms*: when it was indexed, in whole seconds.
    """
    queue = record.queue
    if not 0 <= queue < topic.queues or topic.ends[queue] == topic.mins[queue]:
        return -1
    deliver_at = record.properties.get(DELIVER_MS, "")
    visible_ms = record.stored_ms

    def at(time_ms: int) -> int:
        return offset_at(store, topic.topic_id, queue, time_ms, least=topic.mins[queue], end=topic.ends[queue])

    first, end = at(visible_ms), at(visible_ms + 1)
    offset = _find(store, topic, queue, first, end, position)
    if offset < 0 and deliver_at.isdecimal() and len(deliver_at) < 16:
        first = at(int(deliver_at))
        offset = _find(store, topic, queue, first, min(first + LATE_ENTRIES_MAX, topic.ends[queue]), position)
    if offset < 0 and TRANSACTIONAL in record.properties:
        first, end = at(indexed_ms), at(indexed_ms + 1_000)
        offset = _find(store, topic, queue, first, end, position)
    return offset if offset >= 0 else store.moved.offset_of(topic.topic_id, queue, position)


def find_position(store: Store, topic: Topic, queue: int, position: int) -> Generator[None, None, int]:
    """Return the offset whose entry points at *position*, -1 if none does.

    The whole queue is searched, newest first, in steps.
    """
    end = topic.ends[queue]
    while end > topic.mins[queue]:
        first = max(topic.mins[queue], end - LATE_ENTRIES_MAX)
        offset = _find(store, topic, queue, first, end, position)
        if offset >= 0:
            return offset
        end = first
        yield
    return -1


def _find(store: Store, topic: Topic, queue: int, first: int, end: int, position: int) -> int:
    first = max(first, topic.mins[queue])
    entries = store.read_queue(topic.topic_id, queue, first, max(0, min(end - first, LATE_ENTRIES_MAX)))
    hits = np.flatnonzero(entries["position"] == position)
    return first + int(hits[0]) if len(hits) else -1
