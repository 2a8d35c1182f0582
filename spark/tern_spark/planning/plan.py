"""The plan of a batch: made once for a frame, at its first action."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tern_spark import leases
from tern_spark.leases import ReadLease
from tern_spark.options import ReadOptions
from tern_spark.planning.bounds import Marks, bounds_of, times_of
from tern_spark.planning.catalog import Catalog
from tern_spark.planning.tasks import Task, divide
from tern_spark.ranges import QueueRange, QueueSpan
from tern_wire.errors import OffsetExpired

_log = logging.getLogger("tern_spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The tasks of a read, the deleted rows in front of them, and the lease of their ranges.

    *created_ms*: when each topic was made.
    """

    tasks: tuple[Task, ...]
    created_ms: Mapping[str, int]
    skipped_rows: int = 0
    lease: ReadLease | None = None


def plan_batch(options: ReadOptions, catalog: Catalog, now_ms: int) -> Plan:
    """Return the plan of a batch read at *now_ms*, and lease its ranges. Warns of deleted rows,
    once.
    """
    for is_last in (False, False, True):
        now = [catalog.now(topic) for topic in catalog.topics()]
        spans = [span for topic in now for span in topic.spans]
        bounds = bounds_of(spans, options, marks_of(options, catalog, spans, now_ms))
        try:
            lease = leases.take(bounds.ranges, options.lease_ms, catalog.admin)
        except OffsetExpired:
            # Retention was faster than the plan: a new one begins at what is left, or fails.
            if is_last:
                raise
            continue
        warn_of_skipped(bounds.skipped_rows, "in front of the read")
        tasks = divide(bounds.ranges, options, size_of(options, catalog, bounds.ranges))
        created_ms = {topic.topic: topic.created_ms for topic in now}
        return Plan(tasks=tuple(tasks), created_ms=created_ms, skipped_rows=bounds.skipped_rows, lease=lease)
    raise AssertionError("the last round returns or raises")


def marks_of(options: ReadOptions, catalog: Catalog, spans: list[QueueSpan], now_ms: int) -> Marks:
    """Return what the places of *options* need to know of the topics of *spans*."""
    topics = tuple(dict.fromkeys(span.topic for span in spans))
    wanted = {
        (topic, time_ms)
        for topic in topics
        for place in (options.starting, options.ending)
        for time_ms in times_of(place, topic, now_ms)
    }
    return Marks(
        now_ms=now_ms,
        at={(topic, time_ms): catalog.offsets_at(topic, time_ms) for topic, time_ms in sorted(wanted)},
        committed={topic: catalog.committed(topic) for topic in topics} if options.starting == "group" else {},
    )


def size_of(options: ReadOptions, catalog: Catalog, ranges: tuple[QueueRange, ...]) -> float:
    """Return the mean stored size of a row, if a split by bytes needs it; 0 if none is known."""
    if not options.bytes_per_partition_max or not ranges:
        return 0
    measured = catalog.measure(ranges)
    rows = sum(found.end - each.start for found, each in zip(measured, ranges, strict=True))
    return sum(found.size_bytes for found in measured) / rows if rows else 0


def warn_of_skipped(skipped_rows: int, where: str) -> None:
    """Log one warning if rows were deleted before they were planned."""
    if skipped_rows:
        _log.warning("failOnDataLoss=false: %d deleted messages %s are skipped", skipped_rows, where)
