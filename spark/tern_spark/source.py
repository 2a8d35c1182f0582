"""The data source itself: the one module that uses PySpark's Python Data Source API.

Spark pickles readers and rebuilds them in workers, so a reader holds options only; connections live
inside one `read()`.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tern_spark.columns import record_batch
from tern_spark.options import OptionError, ReadOptions, read_options
from tern_spark.pages import ProxyPages
from tern_spark.ranges import QueueRange, plan_ranges
from tern_spark.schema import check_columns, row_schema
from tern_spark.sink.options import write_options
from tern_spark.sink.writer import TernStreamWriter, TernWriter, check_schema
from tern_wire.errors import LinkBodyMalformed, OffsetExpired
from tern_wire.names import parse_queue


class TernSource(DataSource):  # type: ignore[misc]  # PySpark ships no types
    """`format("ternmq")`, the data source of `spark.read`, `df.write` and `df.writeStream`.

    `.schema("queue_id int, queue_offset bigint")` reads those columns only.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "ternmq"

    def schema(self) -> str:
        """Return the schema of the whole row; see tern_spark.schema."""
        return row_schema()

    def reader(self, schema: Any) -> "TernReader":
        """Return a batch reader of the columns in *schema*, a StructType."""
        columns = check_columns((field.name, field.dataType.simpleString()) for field in schema.fields)
        return TernReader(read_options(dict(self.options)), columns)

    def writer(self, schema: Any, overwrite: bool) -> TernWriter:
        """Return a batch writer of the columns in *schema*, a StructType."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use .mode('append').")
        options = write_options(dict(self.options))
        check_schema(schema, options)
        return TernWriter(options, uuid4().hex)

    def streamWriter(self, schema: Any, overwrite: bool) -> TernStreamWriter:
        """Return a writer of a stream's micro-batches. Output mode `complete` would overwrite."""
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use .outputMode('append') or 'update'.")
        options = write_options(dict(self.options))
        check_schema(schema, options)
        return TernStreamWriter(options)


@dataclass(frozen=True, slots=True)
class QueuePartition(InputPartition):  # type: ignore[misc]  # as above
    """One queue range as the partition of a task."""

    range: QueueRange


class TernReader(DataSourceReader):  # type: ignore[misc]  # as above
    """Plans in the driver, reads in tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[QueuePartition]:
        """Return the queue ranges, frozen now by one request for the offsets of each topic."""
        with ProxyPages.of(self.options) as pages:
            spans = [span for topic in self.options.topics for span in pages.spans(topic)]
        return [QueuePartition(found) for found in plan_ranges(spans, self.options)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield RecordBatches of the range, one for each page.

        Without partitions Spark passes an empty partition of its own, which has no rows.
        """
        if not isinstance(partition, QueuePartition):
            return
        found = partition.range
        queue = parse_queue(found.queue, found.topic)
        # A stable hash, so that a retried task begins at the same proxy and the tasks spread
        # evenly.
        first = zlib.crc32(f"{found.topic}/{found.queue}/{found.start}".encode())
        offset = found.start
        with ProxyPages.of(self.options, first) as pages:
            while offset < found.end:
                try:
                    page = pages.page(found.topic, found.queue, offset, found.end, self.options.page_size_bytes)
                except OffsetExpired as error:
                    if self.options.fail_on_data_loss:
                        raise
                    offset = max(int(error.fields["min_offset"]), offset + 1)
                    continue
                if page.next_offset > found.end:
                    raise LinkBodyMalformed(reason=f"a page of {found} goes on to {page.next_offset}")
                if page.records:
                    yield record_batch(page.records, topic=found.topic, queue=queue, names=self.columns)
                offset = page.next_offset
