"""Reads of messages: from a queue's entries to records of the log, filled in with offsets and
positions.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.topics import Topic
from tern_store import Store, StoreError
from tern_wire.errors import OffsetExpired
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import is_whole, record_starts
from tern_wire.records.layout import HEAD_SIZE_BYTES, SIZE
from tern_wire.records.read import Record, decode_record
from tern_wire.records.write import fill_in


@dataclass(frozen=True, slots=True)
class Messages:
    """Records of one queue, or their heads, filled in: *data* is their concatenation, *offsets* has
    one for each.
    """

    data: memoryview
    offsets: npt.NDArray[np.int64]


class Reader:
    """Of one store. Owner: the core loop. LogRot, DerivedDamage if bytes that were read are
    damaged.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def read_messages(
        self, topic: Topic, queue: int, offsets: npt.NDArray[np.int64], entries: npt.NDArray[Any]
    ) -> Messages:
        """Return the records that *entries* point at, copied, with offset and position filled
        in.
        """
        return self._read(topic, queue, offsets, entries, entries["size"].astype(np.int64))

    def read_heads(
        self, topic: Topic, queue: int, offset: int, end: int, messages_max: int, log_size_max_bytes: int
    ) -> Messages:
        """Return the heads of messages of [offset, end), as `pull` does.

        A head is the first HEAD_SIZE_BYTES of a record, since our log has IPv4 hosts only.
        *log_size_max_bytes*: their whole records have at most so many, unless it is one.
        """
        entries = self.entries(topic, queue, offset, min(messages_max, end - offset))
        if not len(entries):
            return Messages(memoryview(b""), np.empty(0, np.int64))
        total = entries["size"].astype(np.int64).cumsum()
        entries = entries[: max(1, int(total.searchsorted(log_size_max_bytes, side="right")))]
        offsets = np.arange(offset, offset + len(entries), dtype=np.int64)
        return self._read(topic, queue, offsets, entries, np.full(len(entries), HEAD_SIZE_BYTES, np.int64))

    def _read(
        self,
        topic: Topic,
        queue: int,
        offsets: npt.NDArray[np.int64],
        entries: npt.NDArray[Any],
        read_sizes: npt.NDArray[np.int64],
    ) -> Messages:
        """Read the first *read_sizes* bytes of each record."""
        positions = entries["position"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        data = self._store.log.read_records(positions, read_sizes)
        starts = read_sizes.cumsum() - read_sizes
        if not is_whole(data, starts, sizes):
            raise StoreError(f"no records of topic '{topic.name}' lie where queue {queue} says; restart this node")
        fill_in(data, starts, offsets, positions)
        return Messages(data, offsets)

    def entries(self, topic: Topic, queue: int, offset: int, count: int) -> npt.NDArray[Any]:
        """Return up to *count* queue entries (QUEUE_ENTRIES) from *offset* on, up to the end of the
        queue.

        OffsetExpired below the oldest kept.
        """
        oldest = topic.mins[queue]
        if offset < oldest:
            raise OffsetExpired(offset=offset, min_offset=oldest)
        count = min(count, topic.ends[queue] - offset)
        if count <= 0:
            return np.empty(0, QUEUE_ENTRIES)
        return self._store.read_queue(topic.topic_id, queue, offset, count)

    def pull(self, topic: Topic, queue: int, offset: int, end: int, messages_max: int, size_max_bytes: int) -> Messages:
        """Return messages of [offset, end), at least one if there is one; OffsetExpired below the
        oldest kept.
        """
        entries = self.entries(topic, queue, offset, min(messages_max, end - offset))
        if not len(entries):
            return Messages(memoryview(b""), np.empty(0, np.int64))
        total = entries["size"].astype(np.int64).cumsum()
        entries = entries[: max(1, int(total.searchsorted(size_max_bytes, side="right")))]
        return self.read_messages(topic, queue, np.arange(offset, offset + len(entries), dtype=np.int64), entries)

    def distance_bytes(self, topic: Topic, queue: int, offset: int) -> int:
        """Return how far the message at *offset* is behind the end of the log (bytes); 0 when there
        is none.
        """
        entries = self.entries(topic, queue, offset, 1)
        return self._store.log.end_position - int(entries["position"][0]) if len(entries) else 0

    def pull_records(self, topic: Topic, queue: int, offset: int, count: int) -> list[Record]:
        """Return messages from *offset* on, decoded one by one: for the few that the broker itself
        inspects.
        """
        found = self.pull(topic, queue, offset, offset + count, count, RECEIVE_SIZE_MAX_BYTES)
        return [decode_record(found.data, int(start)) for start in record_starts(found.data)]

    def record_at(self, position: int) -> Record | None:
        """Return the record that begins at *position* of the log; None if retention has dropped
        it.
        """
        if position < self._store.log.start.position:
            return None
        log, where = self._store.log, np.array([position])
        (size,) = SIZE.unpack(log.read_records(where, np.array([SIZE.size])))
        return decode_record(log.read_records(where, np.array([size])))
