"""Queue entries of messages that retention copied forward: same offset, position of the copy.

Law: a consume queue's files are never changed in place. Moved entries are kept here and override
those of the files until the copy itself is dropped. Few messages are ever copied (a segment of
which much is needed is kept whole), so memory and the saved state hold all of them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.link.rows import QUEUE_ENTRIES

QueueEntries = npt.NDArray[Any]


class MovedEntries:
    """Queue entries that override those of the files. Owner: the store."""

    def __init__(self) -> None:
        # (topic id, queue) -> offsets, ascending, and their entries.
        self._queues: dict[tuple[int, int], tuple[npt.NDArray[np.int64], QueueEntries]] = {}

    def __len__(self) -> int:
        return sum(len(offsets) for offsets, _ in self._queues.values())

    def has(self, topic_id: int, queue: int) -> bool:
        """Whether any message of the queue was moved."""
        return (topic_id, queue) in self._queues

    def put(self, topic_id: int, queue: int, offset: int, entry: tuple[int, int, int]) -> None:
        """Set the new place of the message at *offset*: position, size, tag hash."""
        offsets, entries = self._queues.get((topic_id, queue), (np.empty(0, np.int64), np.empty(0, QUEUE_ENTRIES)))
        at = int(np.searchsorted(offsets, offset))
        new = np.array([entry], QUEUE_ENTRIES)
        replaced = at < len(offsets) and offsets[at] == offset
        # concatenate converts the fields to the machine's byte order.
        entries = np.concatenate([entries[:at], new, entries[at + replaced :]]).astype(QUEUE_ENTRIES)
        if not replaced:
            offsets = np.insert(offsets, at, offset)
        self._queues[topic_id, queue] = (offsets, entries)

    def lay_over(self, topic_id: int, queue: int, offset: int, entries: QueueEntries) -> QueueEntries:
        """*entries* of the queue from *offset* on, with the moved ones replaced."""
        moved = self._queues.get((topic_id, queue))
        if moved is None or not len(entries):
            return entries
        first, last = np.searchsorted(moved[0], [offset, offset + len(entries)])
        if first < last:
            entries = entries.copy()
            entries[moved[0][first:last] - offset] = moved[1][first:last]
        return entries

    def run(self, topic_id: int, queue: int, offset: int, count: int) -> QueueEntries:
        """Moved entries of [*offset*, *offset* + *count*) from *offset* up to the first gap."""
        offsets, entries = self._queues.get((topic_id, queue), (np.empty(0, np.int64), np.empty(0, QUEUE_ENTRIES)))
        first, last = np.searchsorted(offsets, [offset, offset + count])
        in_place = offsets[first:last] == np.arange(offset, offset + last - first)
        return entries[first : first + (len(in_place) if in_place.all() else int(np.argmin(in_place)))]

    def positions(self, topic_id: int) -> set[int]:
        """Positions of all copies of the topic's messages."""
        return {
            position
            for key, (_, entries) in self._queues.items()
            if key[0] == topic_id
            for position in entries["position"].tolist()
        }

    def offset_of(self, topic_id: int, queue: int, position: int) -> int:
        """The offset whose copy is at *position*; -1 if there is none in the queue."""
        offsets, entries = self._queues.get((topic_id, queue), (np.empty(0, np.int64), np.empty(0, QUEUE_ENTRIES)))
        hits = np.flatnonzero(entries["position"] == position)
        return int(offsets[hits[0]]) if len(hits) else -1

    def drop_before(self, position: int) -> None:
        """Forget copies before *position*: those still needed have been copied again."""
        for key, (offsets, entries) in list(self._queues.items()):
            kept = entries["position"] >= position
            if kept.all():
                continue
            if kept.any():
                self._queues[key] = (offsets[kept], entries[kept])
            else:
                del self._queues[key]

    def marks(self) -> list[list[Any]]:
        """The data for a saved state."""
        return [[*key, offsets.tobytes(), entries.tobytes()] for key, (offsets, entries) in self._queues.items()]

    def restore(self, marks: list[list[Any]]) -> None:
        """Restore the data of *marks*."""
        self._queues = {
            (topic_id, queue): (np.frombuffer(offsets, np.int64), np.frombuffer(entries, QUEUE_ENTRIES))
            for topic_id, queue, offsets, entries in marks
        }
