"""The offsets of a read, and their division into partitions. Pure: offsets in, ranges out.

Ranges are [start, end) and frozen once, at planning, so that a retried task, a second action and a
self-join read the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise

from tern_spark.options import EARLIEST, LATEST, Offsets, OptionError, ReadOptions
from tern_wire.errors import OffsetExpired


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpan:
    """The current content of a queue: offsets *min_offset* to below *max_offset*."""

    topic: str
    queue: str
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """One partition: offsets *start* to below *end* of a queue such as `broker-a:3`."""

    topic: str
    queue: str
    start: int
    end: int

    @property
    def rows(self) -> int:
        """The number of offsets; a range with gaps yields fewer rows."""
        return self.end - self.start


def plan_ranges(spans: Sequence[QueueSpan], options: ReadOptions) -> list[QueueRange]:
    """Return the partitions of a read over *spans*; queues with nothing to read have none.

    OptionError when the offsets do not name exactly the existing queues, or lie outside them;
    OffsetExpired when the start was deleted and `failOnDataLoss` is true.
    """
    _check_names("startingOffsets", options.starting, spans)
    _check_names("endingOffsets", options.ending, spans)
    ranges = [_range_of(span, options) for span in spans]
    return split_ranges(
        [found for found in ranges if found.rows],
        rows_max=options.rows_per_partition_max,
        partitions_min=options.partitions_min,
    )


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


def _check_names(option: str, offsets: Offsets, spans: Sequence[QueueSpan]) -> None:
    if isinstance(offsets, str):
        return
    there: dict[str, set[str]] = {}
    for span in spans:
        there.setdefault(span.topic, set()).add(span.queue)
    for topic in offsets.keys() | there.keys():
        _compare(option, f"topic '{topic}'", offsets.get(topic, {}), there.get(topic, set()))


def _compare(option: str, where: str, named: Mapping[str, int], there: set[str]) -> None:
    """Raise OptionError unless *named* has exactly the existing queues.

    A typo in an offset document must not silently read nothing, or everything.
    """
    missing, extra = sorted(there - named.keys()), sorted(named.keys() - there)
    if extra:
        raise OptionError(
            f"{option}: {where} has no queue {', '.join(extra)}. It has {', '.join(sorted(there)) or 'none'}."
        )
    if missing:
        raise OptionError(f"{option}: {where} lacks {', '.join(missing)}. Give -2 (earliest) or -1 (latest) for it.")


def _range_of(span: QueueSpan, options: ReadOptions) -> QueueRange:
    start = _resolve(options.starting, span)
    end = _resolve(options.ending, span)
    where = f"queue {span.queue} of topic '{span.topic}'"
    if start > span.max_offset or end > span.max_offset:
        option, offset = ("startingOffsets", start) if start > span.max_offset else ("endingOffsets", end)
        raise OptionError(f"{option}: {offset} is beyond the end of {where}, which is at {span.max_offset}.")
    if start < span.min_offset:
        if options.fail_on_data_loss:
            raise OffsetExpired(topic=span.topic, queue=span.queue, offset=start, min_offset=span.min_offset)
        start = span.min_offset
        # The whole range may be deleted; then there is nothing to read.
        end = max(end, start)
    if end < start:
        raise OptionError(f"endingOffsets: {end} is before startingOffsets, {start}, in {where}.")
    return QueueRange(topic=span.topic, queue=span.queue, start=start, end=end)


def _resolve(offsets: Offsets, span: QueueSpan) -> int:
    chosen = offsets if isinstance(offsets, str) else offsets[span.topic][span.queue]
    if chosen in {"earliest", EARLIEST}:
        return span.min_offset
    if chosen in {"latest", LATEST}:
        return span.max_offset
    return int(chosen)
