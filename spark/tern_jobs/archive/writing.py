"""The task of the archive: a planned range from the broker into Parquet files, one for each day.

A file ends where the day of the store time changes. So its name (topic, queue, start, end) and its
bytes follow from the range alone: a task that runs again writes the same files again.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tern_jobs.archive.checksum import RowsChecksum
from tern_jobs.archive.folder import ArchiveFolder, Sink
from tern_jobs.archive.manifests import ArchivedRange, PlannedRange
from tern_jobs.archive.reading import broker_batches
from tern_spark.options import ReadOptions
from tern_spark.schema import COLUMNS, arrow_schema
from tern_wire.errors import OffsetExpired

_DAY_US = 86_400_000_000
# A row group is what a reader holds in memory: these bytes of records, or so many rows.
GROUP_SIZE_BYTES, GROUP_ROWS = 32 * 1024 * 1024, 131_072
# Columns with few values; message ids and bodies have no two alike.
_DICTIONARY = ["topic", "broker", "tags", "queue_id", "reconsume_times"]


class ArchiveTask(msgspec.Struct, frozen=True, kw_only=True):
    """One range to archive. *attempt* makes the names of unfinished files unique.

    *created_ms*: when its topic was made; None: an earlier release has planned it.
    """

    planned: PlannedRange
    attempt: str
    created_ms: int | None = None


def archive_range(task: ArchiveTask, *, options: ReadOptions, uri: str) -> list[ArchivedRange]:
    """Write the files of a planned range; return their ranges, which join without a gap.

    OffsetExpired when offsets were deleted meanwhile and options.fail_on_data_loss is true; else
    the deleted ones are a range that `is_skipped`.
    """
    planned, folder = task.planned, ArchiveFolder(uri)
    found: list[ArchivedRange] = []
    start = planned.start
    while start < planned.end:
        part = _Part(folder, task, start)
        found += part.write(options)
        start = part.end
        if start < planned.end:
            found.append(skipped_range(planned.topic, planned.queue, start, part.kept_from))
            start = part.kept_from
    return found


class _Part:
    """Writes offsets from *start* on, cut by day, up to the end or to the first deleted offset.

    *end* is where it ended; beyond it, *kept_from* is the next offset that the broker still has.
    """

    def __init__(self, folder: ArchiveFolder, task: ArchiveTask, start: int) -> None:
        self._folder, self._planned, self._start, self._attempt = folder, task.planned, start, task.attempt
        self._created_ms = task.created_ms
        self.end = self.kept_from = task.planned.end

    def write(self, options: ReadOptions) -> list[ArchivedRange]:
        """Write the files; return their ranges."""
        runs = _DayRuns(self._batches(options))
        found: list[ArchivedRange] = []
        start = self._start
        while (day := runs.day) is not None:
            found.append(self._file(runs, day, start))
            start = found[-1].end
        if start < self.end:
            found.append(_range(self._planned, start, self.end))
        return found

    def _batches(self, options: ReadOptions) -> Iterator[Any]:
        planned = self._planned
        try:
            yield from broker_batches(
                options, planned.topic, planned.queue, self._start, planned.end, created_ms=self._created_ms
            )
        except OffsetExpired as error:
            if options.fail_on_data_loss:
                raise
            self.end = int(error.fields["offset"])
            self.kept_from = min(max(int(error.fields["min_offset"]), self.end + 1), planned.end)

    def _file(self, runs: "_DayRuns", day: int, start: int) -> ArchivedRange:
        """Write the rows of *day*. The name has the end, which is known when they are written."""
        planned = self._planned
        folder = f"data/{planned.topic}/{np.datetime64(day, 'D')}"
        name = f"{folder}/{planned.topic}.{planned.queue.replace(':', '.')}.{start:020}"
        checksum, totals = RowsChecksum(), Totals()
        with self._folder.sink(name, self._attempt) as sink:
            write_groups(sink, runs.of(day), checksum, totals)
            end = self.end if runs.first_offset is None else runs.first_offset
            sink.path = f"{name}-{end:020}.parquet"
        return _range(
            planned,
            start,
            end,
            rows=checksum.rows,
            stored_bytes=totals.stored_bytes,
            stored_min_ms=totals.min_us // 1_000,
            stored_max_ms=totals.max_us // 1_000,
            checksum=checksum.hexdigest(),
            file=sink.path,
            file_bytes=sink.size_bytes,
            file_sha256=sink.sha256(),
        )


class _DayRuns:
    """Batches of a queue as runs of rows with the same day; `day` None: no rows are left."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._rest: Any = None
        self._fill()

    @property
    def day(self) -> int | None:
        """The day of the next row, in days since 1970."""
        return None if self._rest is None else int(_days(self._rest)[0])

    @property
    def first_offset(self) -> int | None:
        """The offset of the next row."""
        return None if self._rest is None else int(self._rest.column("queue_offset")[0].as_py())

    def of(self, day: int) -> Iterator[Any]:
        """Yield the next rows as long as they are of *day*."""
        while self._rest is not None:
            others = np.flatnonzero(_days(self._rest) != day)
            count = int(others[0]) if len(others) else self._rest.num_rows
            if not count:
                return
            yield self._rest.slice(0, count)
            self._rest = self._rest.slice(count) if count < self._rest.num_rows else None
            self._fill()

    def _fill(self) -> None:
        while self._rest is None:
            batch = next(self._batches, None)
            if batch is None:
                return
            self._rest = batch if batch.num_rows else None


class Totals:
    """Bytes and store times of a file's rows."""

    def __init__(self) -> None:
        self.stored_bytes, self.min_us, self.max_us = 0, 0, 0

    def add(self, batch: Any) -> None:
        """Add the rows of *batch*."""
        times_us = batch.column("store_ts").cast(pa.int64()).to_numpy()
        first = not self.stored_bytes
        self.stored_bytes += int(batch.column("store_size").to_numpy().sum())
        self.min_us = int(times_us.min()) if first else min(self.min_us, int(times_us.min()))
        self.max_us = int(times_us.max()) if first else max(self.max_us, int(times_us.max()))


def write_groups(sink: Sink, batches: Iterator[Any], checksum: RowsChecksum, totals: Totals) -> None:
    """Write *batches* in row groups that do not depend on where pages ended."""
    schema = arrow_schema(COLUMNS)
    held: list[Any] = []
    held_bytes = held_rows = 0
    with pq.ParquetWriter(
        pa.PythonFile(sink, mode="w"),
        schema,
        compression="zstd",
        use_dictionary=_DICTIONARY,
        write_page_checksum=True,
    ) as writer:

        def flush() -> None:
            nonlocal held, held_bytes, held_rows
            if held:
                table = pa.Table.from_batches(held, schema).combine_chunks()
                writer.write_table(table, row_group_size=table.num_rows)
            held, held_bytes, held_rows = [], 0, 0

        for batch in batches:
            checksum.add(batch)
            totals.add(batch)
            sizes = np.cumsum(batch.column("store_size").to_numpy().astype(np.int64))
            at = 0
            while at < batch.num_rows:
                before = int(sizes[at - 1]) if at else 0
                # Rows up to the one that fills the group, and that one.
                fits = int(np.searchsorted(sizes, before + GROUP_SIZE_BYTES - held_bytes)) + 1 - at
                count = min(fits, GROUP_ROWS - held_rows, batch.num_rows - at)
                held.append(batch.slice(at, count))
                held_rows += count
                held_bytes += int(sizes[at + count - 1]) - before
                at += count
                if held_bytes >= GROUP_SIZE_BYTES or held_rows >= GROUP_ROWS:
                    flush()
        flush()


def skipped_range(topic: str, queue: str, start: int, end: int) -> ArchivedRange:
    """Return a range that was deleted before it was archived."""
    return ArchivedRange(
        topic=topic, queue=queue, start=start, end=end, checksum=RowsChecksum().hexdigest(), is_skipped=True
    )


def _range(planned: PlannedRange, start: int, end: int, **facts: Any) -> ArchivedRange:
    facts = {"checksum": RowsChecksum().hexdigest(), **facts}
    return ArchivedRange(topic=planned.topic, queue=planned.queue, start=start, end=end, **facts)


def _days(batch: Any) -> Any:
    return batch.column("store_ts").cast(pa.int64()).to_numpy() // _DAY_US
