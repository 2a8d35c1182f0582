"""The writers: the part of the sink that uses PySpark.

Spark makes a writer in the driver and pickles it into every task, so it has options only.

Exactly once: tasks stage, the driver publishes. At least once: a row has one idempotency key in
every attempt of its task, and in every run of its micro-batch: the key names the write (a stream:
query and batch), the partition and the row.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from tern_spark.sink.columns import check_written, rows_of
from tern_spark.sink.entries import TASK_DIGITS, encode
from tern_spark.sink.options import WriteOptions
from tern_spark.sink.publishing import give_up, publish
from tern_spark.sink.requests import Batch, Place, batches
from tern_spark.sink.sending import BatchSends
from tern_spark.sink.staging import Receipt, new_attempt, stage
from tern_spark.worker_process import spare_modules

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
# A RecordBatch with more bytes is encoded in several steps, so that a task's memory is bounded.
_STEP_SIZE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RowsWritten(WriterCommitMessage):  # type: ignore[misc]  # PySpark ships no types
    """What a task tells the driver."""

    rows: int


@dataclass(frozen=True, slots=True)
class RowsStaged(WriterCommitMessage):  # type: ignore[misc]  # as above
    """What a task tells the driver that publishes."""

    receipt: Receipt


def check_schema(schema: Any, options: WriteOptions) -> None:
    """Check the columns of a StructType; ColumnError."""
    check_written(((field.name, field.dataType.simpleString()) for field in schema.fields), options.topic)


class TernWriter(DataSourceArrowWriter):  # type: ignore[misc]  # as above
    """A batch write, *write_id*: the only batch of a query of that name."""

    def __init__(self, options: WriteOptions, write_id: str) -> None:
        self.options = options
        self.write_id = write_id

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send or stage the rows of a partition, RecordBatch by RecordBatch."""
        return write_task(iterator, self.options, TaskContext.get().partitionId(), self.write_id, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what the tasks have staged."""
        if receipts := receipts_of(messages):
            publish(self.options, receipts, is_final=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks have staged."""
        give_up(self.options, receipts_of(messages))


class TernStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # as above
    """The write of every micro-batch of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send or stage the rows of a partition of one micro-batch."""
        context = TaskContext.get()
        query, batch = context.getLocalProperty(_QUERY), int(context.getLocalProperty(_BATCH))
        return write_task(iterator, self.options, context.partitionId(), query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], _batch: int) -> None:
        """Publish what the tasks have staged. Spark writes every batch with one task at least."""
        if receipts := receipts_of(messages):
            publish(self.options, receipts, is_final=False)

    def abort(self, messages: list[WriterCommitMessage | None], _batch: int) -> None:
        """Drop what the tasks have staged; those that have failed are not among *messages*."""
        give_up(self.options, receipts_of(messages))


def receipts_of(messages: Iterable[WriterCommitMessage | None]) -> list[Receipt]:
    """Return the receipts among *messages*; none of a write that is at least once."""
    return [message.receipt for message in messages if isinstance(message, RowsStaged)]


def write_task(
    found: Iterator[Any], options: WriteOptions, partition: int, query: str, batch: int
) -> RowsStaged | RowsWritten:
    """Write the RecordBatches *found* as one attempt at *partition*."""
    spare_modules()
    if not options.is_exactly_once:
        return RowsWritten(write_rows(found, options, partition, f"{query}/{batch}"))
    place = Place(query=query, batch=batch, partition=partition, attempt=new_attempt())
    return RowsStaged(stage(options, place, batches_of(found, options, partition, query)))


def write_rows(found: Iterator[Any], options: WriteOptions, partition: int, write_id: str) -> int:
    """Send all rows of the RecordBatches *found*, and return their number."""
    with BatchSends(options, partition) as sends:
        return sends.send_all(batches_of(found, options, partition, write_id))


def batches_of(found: Iterator[Any], options: WriteOptions, partition: int, write_id: str) -> Iterator[Batch]:
    """Yield the rows of the RecordBatches *found* as batches to send."""
    task = hashlib.blake2b(f"{write_id}/{partition}".encode(), digest_size=TASK_DIGITS // 2).hexdigest().encode()
    row = 0
    for batch in found:
        steps = -(-batch.nbytes // _STEP_SIZE_BYTES)
        step_rows = max(1, -(-batch.num_rows // max(1, steps)))
        for start in range(0, batch.num_rows, step_rows):
            rows = rows_of(batch.slice(start, step_rows), row)
            entries = encode(rows, row, task if options.is_idempotent and not options.is_exactly_once else b"")
            yield from batches(rows, entries, options.topic)
            row += len(rows)
