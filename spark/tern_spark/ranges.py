"""The offsets of a queue, and the division of ranges into pieces. Pure.

Ranges are [start, end) and frozen once, at planning, so that a retried task, a second action and a
self-join read the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise


class TopicMadeAgain(ValueError):
    """A topic was deleted and made again while it was read: its rows are not those of the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpan:
    """The current content of a queue: offsets *min_offset* to below *max_offset*."""

    topic: str
    queue: str
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """Offsets *start* to below *end* of a queue such as `broker-a:3`."""

    topic: str
    queue: str
    start: int
    end: int

    @property
    def rows(self) -> int:
        """The number of offsets; a range with gaps yields fewer rows."""
        return self.end - self.start


def split_ranges(ranges: Sequence[QueueRange], *, rows_max: int, partitions_min: int) -> list[QueueRange]:
    """Cut *ranges* into even pieces of at most *rows_max* rows, at least *partitions_min* of them.

    0 means no limit. There are fewer pieces if there are too few rows. The pieces of a range differ
    by at most one row and keep their order.
    """
    pieces = [-(-found.rows // rows_max) if rows_max else 1 for found in ranges]
    # Cut the range with the largest pieces once more, until there are enough.
    heap = [(-found.rows / count, at) for at, (found, count) in enumerate(zip(ranges, pieces, strict=True))]
    heapify(heap)
    total = sum(pieces)
    while total < partitions_min and heap and -heap[0][0] > 1:
        at = heap[0][1]
        pieces[at] += 1
        total += 1
        heapreplace(heap, (-ranges[at].rows / pieces[at], at))
    return [piece for found, count in zip(ranges, pieces, strict=True) for piece in _cut(found, count)]


def _cut(found: QueueRange, count: int) -> Iterable[QueueRange]:
    edges = [found.start + found.rows * at // count for at in range(count + 1)]
    for start, end in pairwise(edges):
        yield QueueRange(topic=found.topic, queue=found.queue, start=start, end=end)
