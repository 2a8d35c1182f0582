"""A plan divided into batches, and a batch into tasks.

Every batch has the same share of every queue, so that all queues go on side by side. Pure.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tern_jobs.archive.manifests import ArchivedRange
from tern_jobs.replay.plans import ReplayedQueue, ReplayPlan
from tern_wire.limits_publications import PUBLISHED_STAGES_MAX

# Rows of one task: some MB, and a failure repeats little.
TASK_ROWS = 25_000
BATCH_ROWS, BATCH_ROWS_MAX = 100_000, 500_000
# With a rate, a batch is what may be sent in so many seconds.
_RATE_STEP_S = 2

assert BATCH_ROWS_MAX / TASK_ROWS + 1 < PUBLISHED_STAGES_MAX


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets *start* to below *end* of a queue, in *files*; none: at the broker."""

    topic: str
    queue: str
    start: int
    end: int
    files: list[str] = []


def batches_of(rows: int, *, batch_rows: int, rate: int) -> int:
    """Return the number of batches for *rows*. *rate*: rows a second; 0: no limit."""
    most = min(batch_rows, max(1, rate * _RATE_STEP_S)) if rate else batch_rows
    return -(-rows // most)


def slices_of(plan: ReplayPlan, batch: int) -> list[Slice]:
    """Return the slices of *batch* (from 0), at most TASK_ROWS each, in the order of the queues."""
    found: list[Slice] = []
    for queue in plan.queues:
        rows = queue.end - queue.start
        start = queue.start + rows * batch // plan.batches
        end = queue.start + rows * (batch + 1) // plan.batches
        found += [
            Slice(topic=queue.topic, queue=queue.queue, start=at, end=min(at + TASK_ROWS, end))
            for at in range(start, end, TASK_ROWS)
        ]
    return found


def tasks_of(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Return *slices* in tasks of at most TASK_ROWS, in their order. A task is a stage, and stages
    are published in order: so rows of a queue keep theirs.
    """
    tasks: list[list[Slice]] = []
    rows = TASK_ROWS
    for found in slices:
        size = found.end - found.start
        if rows + size > TASK_ROWS:
            tasks.append([])
            rows = 0
        tasks[-1].append(found)
        rows += size
    return tasks


class Shelf:
    """The files of an archive by queue, for slices. *ranges*: the current ones, ordered."""

    def __init__(self, ranges: Iterable[ArchivedRange]) -> None:
        self._ranges: dict[tuple[str, str], list[ArchivedRange]] = {}
        for found in ranges:
            self._ranges.setdefault((found.topic, found.queue), []).append(found)

    def queues(self, *, since_ms: int, until_ms: int) -> list[ReplayedQueue]:
        """Return each queue from its first to its last range with rows of that time."""
        found = []
        for (topic, queue), ranges in sorted(self._ranges.items()):
            wanted = [
                each
                for each in ranges
                if each.rows and each.stored_max_ms >= since_ms and (not until_ms or each.stored_min_ms < until_ms)
            ]
            if wanted:
                found.append(ReplayedQueue(topic=topic, queue=queue, start=wanted[0].start, end=wanted[-1].end))
        return found

    def rows(self, queues: Sequence[ReplayedQueue]) -> int:
        """Return the archived rows of *queues*."""
        return sum(
            each.rows
            for queue in queues
            for each in self._ranges[queue.topic, queue.queue]
            if each.start >= queue.start and each.end <= queue.end
        )

    def with_files(self, found: Slice) -> Slice:
        """Return the slice with the names of its files, in order."""
        ranges = self._ranges[found.topic, found.queue]
        first = max(0, bisect_right([each.start for each in ranges], found.start) - 1)
        files = []
        for each in ranges[first:]:
            if each.start >= found.end:
                break
            if each.file and each.end > found.start:
                files.append(each.file)
        return msgspec.structs.replace(found, files=files)


def topics_of(queues: Iterable[ReplayedQueue]) -> Mapping[str, int]:
    """Return the offsets to replay by topic."""
    totals: dict[str, int] = {}
    for queue in queues:
        totals[queue.topic] = totals.get(queue.topic, 0) + queue.end - queue.start
    return totals
