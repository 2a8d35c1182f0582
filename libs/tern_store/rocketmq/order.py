"""Order of many queues' messages in one commit log: as in our log, never against a queue's order.

RocketMQ derives a queue from the order of its records; our queues may point back, since a record
delivered by reference stands behind newer ones. Each entry is therefore sorted by the highest
position in its queue so far. That key ascends within a queue, and is the entry's own position
wherever nothing was delivered by reference.

Law: memory is bounded by *rows_max*, whatever the queues hold: a merge over chunks, each round up
to the point to which every queue is read.
"""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.records.java_hashes import Numbers

Rows = npt.NDArray[Any]
# *source* is the queue's place in the given list, the others are the queue entry's.
ORDERED_ROWS = np.dtype([("source", "<i4"), ("offset", "<i8"), ("position", "<i8"), ("size", "<i4"), ("tag", "<i8")])
# About 10 MB with the memory for sorting.
ROWS_MAX = 1 << 18


@dataclass(slots=True, eq=False)
class _Waiting:
    """A queue in the merge: *rows* with their *keys* wait; *next* is the first unread offset."""

    source: int
    next: int
    end: int
    rows: Rows
    keys: Numbers


class EntryMerge:
    """One pass over all entries of *ranges* (first offset and end of each queue).
    Owner: the caller.
    """

    def __init__(
        self,
        ranges: Sequence[tuple[int, int]],
        read: Callable[[int, int, int], Rows],
        *,
        rows_max: int = ROWS_MAX,
    ) -> None:
        """*read*: source, offset, count to QUEUE_ENTRIES of a queue, at least one if there
        are any.
        """
        self._read, self._rows_max = read, rows_max
        self._queues = [
            _Waiting(source, first, end, np.zeros(0, ORDERED_ROWS), np.zeros(0, np.int64))
            for source, (first, end) in enumerate(ranges)
            if first < end
        ]

    def __iter__(self) -> Iterator[Rows]:
        """Blocks of ORDERED_ROWS, in order."""
        live = len(self._queues)
        # Queues by their first waiting key, and unfinished ones by their last: later keys are still
        # unknown.
        firsts: list[tuple[int, int]] = []
        lasts: list[tuple[int, int]] = []
        by_source = {queue.source: queue for queue in self._queues}
        empty = self._queues
        while empty or firsts:
            for queue in empty:
                self._load(queue, max(1, self._rows_max // live))
                heapq.heappush(firsts, (int(queue.keys[0]), queue.source))
                if queue.next < queue.end:
                    heapq.heappush(lasts, (int(queue.keys[-1]), queue.source))
            empty = []
            horizon = lasts[0][0] if lasts else np.iinfo(np.int64).max
            taken: list[tuple[Rows, Numbers]] = []
            while firsts and firsts[0][0] <= horizon:
                queue = by_source[heapq.heappop(firsts)[1]]
                count = int(np.searchsorted(queue.keys, horizon, "right"))
                taken.append((queue.rows[:count], queue.keys[:count]))
                queue.rows, queue.keys = queue.rows[count:], queue.keys[count:]
                if len(queue.keys):
                    heapq.heappush(firsts, (int(queue.keys[0]), queue.source))
                elif queue.next < queue.end:
                    empty.append(queue)
                else:
                    live -= 1
            # Each has given all its rows, so its last key was the smallest of all.
            for _ in empty:
                heapq.heappop(lasts)
            keys = np.concatenate([part[1] for part in taken])
            yield np.concatenate([part[0] for part in taken])[np.argsort(keys, kind="stable")]

    def _load(self, queue: _Waiting, count: int) -> None:
        entries = self._read(queue.source, queue.next, min(count, queue.end - queue.next))
        rows = np.zeros(len(entries), ORDERED_ROWS)
        rows["source"] = queue.source
        rows["offset"] = np.arange(queue.next, queue.next + len(entries))
        for field in ("position", "size", "tag"):
            rows[field] = entries[field]
        # Rows given out before have no higher key than waiting ones: the highest of this chunk is
        # enough.
        queue.keys = np.maximum.accumulate(rows["position"])
        queue.rows, queue.next = rows, queue.next + len(entries)
