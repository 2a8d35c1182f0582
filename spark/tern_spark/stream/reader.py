"""The stream reader as PySpark calls it, with the traps of its API (observed with 4.3).

- One instance lives in the driver for a query's run; `read` runs on other ones, rebuilt from the
  arguments here. So a pickled reader is its options and columns.
- `initialOffset` is called twice in a fresh query, and again in every restart until batch 0 is
  committed.
- A replayed batch comes as `partitions(start, end)` without a `latestOffset` before.
- `commit` comes a batch late, and never for the last one: progress is `start` of `latestOffset`.
- `partitions` of a reader of one class of PySpark, which it keeps to itself, may give rows with its
  one partition. It asks for that class behind each call. So this reader is of that class from the
  call of `partitions` to the one that takes the rows, and otherwise keeps what the class lacks:
  limits, lag, parallel tasks.
"""

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tern_client.transport.clock import epoch_ms
from tern_spark.options import ReadOptions
from tern_spark.partition import TaskPartition, partition_of
from tern_spark.planning.catalog import Catalog
from tern_spark.reading import read_ranges
from tern_spark.stream.offsets import read_offsets, write_offsets
from tern_spark.stream.planner import Limit, StreamPlanner
from tern_spark.stream.small_batches import SmallBatches


class TernStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # PySpark ships no types
    """`spark.readStream.format("ternmq")`."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], now_ms: Callable[[], int] = epoch_ms) -> None:
        self.options = options
        self.columns = columns
        self._now_ms = now_ms
        self._catalog: Catalog | None = None
        self._planner: StreamPlanner | None = None
        self._small = SmallBatches(options, columns)
        # Of the batch that was planned last, until PySpark takes them.
        self._rows: list[Any] = []

    def __reduce__(self) -> tuple[type["TernStreamReader"], tuple[ReadOptions, tuple[str, ...]]]:
        return TernStreamReader, (self.options, self.columns)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the options; Spark passes it to `latestOffset`, or another one."""
        if self.options.rows_per_trigger_max:
            return ReadMaxRows(self.options.rows_per_trigger_max)
        if self.options.bytes_per_trigger_max:
            return ReadMaxBytes(self.options.bytes_per_trigger_max)
        if self.options.rows_per_trigger_min:
            return ReadMinRows(self.options.rows_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Freeze the end of the run. It may be before the end of a batch to be replayed."""
        self._plan().freeze()

    def initialOffset(self) -> dict[str, Any]:
        """Return where the query begins."""
        return write_offsets(self._plan().initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch, and commit *start* under the group."""
        begun = read_offsets(start)
        end = self._plan().latest(begun, _limit_of(limit))
        return start if end is begun else write_offsets(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the queues, for the query's progress: its lag is their distance from
        `endOffset`.
        """
        known = self._plan().known()
        return None if known is None else write_offsets(known)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TaskPartition]:
        """Return the tasks of a batch; none if it is empty. The rows of a small one are read now,
        and PySpark asks for them next.
        """
        ended = read_offsets(end)
        created_ms = {topic: found.created_at for topic, found in ended.items()}
        tasks = [partition_of(task, created_ms) for task in self._plan().tasks(read_offsets(start), ended)]
        rows = self._small.read(tasks)
        if rows is not None:
            self._rows = rows
            self.__class__ = _ReaderWithRows
        return tasks

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield RecordBatches of the ranges of *partition*."""
        if isinstance(partition, TaskPartition):
            yield from read_ranges(partition.ranges, self.options, self.columns, None, partition.created_ms)

    def stop(self) -> None:
        """Close the connections of the driver, which are kept from call to call. PySpark 4.3 ends
        the process instead.
        """
        if self._catalog is not None:
            self._catalog.close()
        self._catalog = self._planner = None

    def _plan(self) -> StreamPlanner:
        if self._planner is None:
            self._catalog = Catalog(self.options)
            self._planner = StreamPlanner(self.options, self._catalog, self._now_ms)
        return self._planner


class _ReaderWithRows(TernStreamReader, _SimpleStreamReaderWrapper):  # type: ignore[misc]  # as above
    """A reader between `partitions` and `getCache`."""

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any]:
        """Return the rows of the batch that was planned last, once."""
        rows, self._rows = self._rows, []
        self.__class__ = TernStreamReader  # and so it takes limits again
        return iter(rows)


def _limit_of(limit: ReadLimit) -> Limit:
    if isinstance(limit, ReadMaxRows):
        return Limit(rows_max=limit.max_rows)
    if isinstance(limit, ReadMaxBytes):
        return Limit(bytes_max=limit.max_bytes)
    return Limit(is_all=isinstance(limit, ReadAllAvailable))
