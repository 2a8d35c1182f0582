"""Unread messages in segments that retention is about to drop: copied, or the segments are kept.

Law: the record of a queue entry only moves forward in the log. Messages once found behind the place
are therefore never read again, however many steps the copy takes.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tern_wire.link.rows import MOVE_ROWS, MOVED_MESSAGE

if TYPE_CHECKING:
    from tern_store.store import Store

# Queue entries read in one step, about a millisecond.
STEP_ENTRIES = 16_384
Numbers = npt.NDArray[np.int64]
Found = tuple[npt.NDArray[Any], Numbers]
# Topic id, queue, first offset, last offset plus one.
Range = tuple[int, int, int, int]


class UnreadScan:
    """Scan of unread messages before one place of the log. Owner: the trimmer."""

    def __init__(self, store: "Store", position: int) -> None:
        self._store, self.position = store, position
        # By queue: all offsets of [first, last) lie at or behind the place.
        self._behind: dict[tuple[int, int], tuple[int, int]] = {}

    def measure(self, ranges: Iterable[Range], size_max_bytes: int) -> Generator[None, None, bool]:
        """Return whether more than *size_max_bytes* of records lie before the place.
        Each step takes about a millisecond. DerivedDamage.
        """
        left = size_max_bytes
        for topic_id, queue, first, last in ranges:
            offset = self._known(topic_id, queue, first)[1]
            while offset < last:
                entries = self._store.read_queue(topic_id, queue, offset, min(STEP_ENTRIES, last - offset))
                if not len(entries):
                    break
                left -= int(entries["size"][entries["position"] < self.position].astype(np.int64).sum())
                if left < 0:
                    return True
                offset += len(entries)
                yield
        return False

    def find(self, ranges: Iterable[Range], size_max_bytes: int) -> Iterator[Found]:
        """Yield rows (MOVE_ROWS) and positions of records before the place.
        In total about *size_max_bytes*, and at least one record if there is any. DerivedDamage.
        """
        left = size_max_bytes
        for topic_id, queue, first, last in ranges:
            for rows, positions in self._find(topic_id, queue, first, last):
                sizes = rows["size"].astype(np.int64).cumsum()
                count = max(1, int(sizes.searchsorted(left, side="right")))
                yield rows[:count], positions[:count]
                left -= int(sizes[-1])
                if left <= 0:
                    return

    def _known(self, topic_id: int, queue: int, first: int) -> tuple[int, int]:
        known_first, known_last = self._behind.get((topic_id, queue), (first, first))
        # A group may have been reset to an earlier offset.
        return (known_first, known_last) if known_first <= first <= known_last else (first, first)

    def _find(self, topic_id: int, queue: int, first: int, last: int) -> Iterator[Found]:
        known_first, known_last = self._known(topic_id, queue, first)
        offset = known_last
        while offset < last:
            entries = self._store.read_queue(topic_id, queue, offset, min(STEP_ENTRIES, last - offset))
            if not len(entries):
                return
            before = np.flatnonzero(entries["position"] < self.position)
            if len(before):
                yield message_rows(topic_id, queue, before + offset, entries[before])
            elif offset == known_last:
                known_last = offset + len(entries)
                self._behind[topic_id, queue] = (known_first, known_last)
            offset += len(entries)


def message_rows(topic_id: int, queue: int, offsets: Numbers, entries: npt.NDArray[Any]) -> Found:
    """Rows of a COPY (MOVE_ROWS) and positions for queue *entries* at *offsets*."""
    rows = np.zeros(len(entries), MOVE_ROWS)
    rows["kind"], rows["topic"], rows["queue"] = MOVED_MESSAGE, topic_id, queue
    rows["size"], rows["number"], rows["tag"] = entries["size"], offsets, entries["tag"]
    return rows, entries["position"].astype(np.int64)
