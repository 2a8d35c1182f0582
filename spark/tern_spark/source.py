"""The data source itself: its formats, readers and partitions, as PySpark's API asks for them.

Spark pickles readers and rebuilds them in workers, so a reader holds options only; connections live
inside one call.
"""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

from pyspark.sql.datasource import DataSource, DataSourceReader

from tern_client.transport.clock import epoch_ms
from tern_spark.options import OptionError, ReadOptions, read_options
from tern_spark.partition import TaskPartition, partition_of
from tern_spark.planning.catalog import Catalog
from tern_spark.planning.plan import plan_batch
from tern_spark.reading import read_ranges
from tern_spark.schema import check_columns, row_schema
from tern_spark.sink.options import write_options
from tern_spark.sink.writer import TernStreamWriter, TernWriter, check_schema
from tern_spark.stream.reader import TernStreamReader
from tern_spark.views.reader import ViewReader
from tern_spark.views.tables import VIEWS
from tern_spark.worker_process import spare_modules


class TernSource(DataSource):  # type: ignore[misc]  # PySpark ships no types
    """`format("ternmq")`, the data source of `spark.read`, `df.write` and `df.writeStream`.

    `.schema("queue_id int, queue_offset bigint")` reads those columns only.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "ternmq"

    def schema(self) -> str:
        """Return the schema of the whole row; see tern_spark.schema and tern_spark.views."""
        view = VIEWS.get(str(self.options.get("view", "")).strip().lower())
        return view.ddl if view else row_schema()

    def reader(self, schema: Any) -> DataSourceReader:
        """Return a batch reader of the columns in *schema*, a StructType."""
        options = read_options(dict(self.options))
        if options.view == "messages":
            return TernReader(options, _columns(schema))
        named = ((field.name, field.dataType.simpleString()) for field in schema.fields)
        columns = check_columns(named, VIEWS[options.view].columns, f"view '{options.view}'")
        return ViewReader(options, columns)

    def streamReader(self, schema: Any) -> TernStreamReader:
        """Return a stream reader of the columns in *schema*, a StructType."""
        return TernStreamReader(read_options(dict(self.options), "stream"), _columns(schema))

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


def _columns(schema: Any) -> tuple[str, ...]:
    return check_columns((field.name, field.dataType.simpleString()) for field in schema.fields)


class TernReader(DataSourceReader):  # type: ignore[misc]  # as above
    """Plans in the driver, reads in tasks."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[TaskPartition]:
        """Return the ranges of each task, frozen now."""
        spare_modules()
        with Catalog(self.options) as catalog:
            plan = plan_batch(self.options, catalog, epoch_ms())
        return [partition_of(task, plan.created_ms, plan.lease) for task in plan.tasks]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield RecordBatches of the ranges of *partition*.

        Without partitions Spark passes an empty partition of its own, which has no rows.
        """
        if isinstance(partition, TaskPartition):
            yield from read_ranges(partition.ranges, self.options, self.columns, partition.lease, partition.created_ms)
