"""The reader of a view: one task asks the API and yields its rows."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tern_spark.options import ReadOptions
from tern_spark.planning.catalog import Catalog
from tern_spark.views.tables import VIEWS
from tern_spark.worker_process import spare_modules

_BATCH_ROWS = 1_024


class ViewReader(DataSourceReader):  # type: ignore[misc]  # PySpark ships no types
    """Reads *columns* of the view that the options name, as it is when the task runs."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return one partition: the API answers page by page."""
        return [InputPartition(0)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Yield RecordBatches of the view."""
        spare_modules()
        view = VIEWS[self.options.view]
        known = view.columns
        places = [(name, list(known).index(name)) for name in self.columns]
        schema = pa.schema([pa.field(name, known[name][1]) for name in self.columns])
        with Catalog(self.options) as catalog:
            rows = view.rows(catalog)
            while batch := list(islice(rows, _BATCH_ROWS)):
                arrays = [pa.array([row[at] for row in batch], type=known[name][1]) for name, at in places]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
