"""The Spark source for topics: `spark.read.format("ternmq")`.

It is a Python Data Source whose partitions are frozen queue ranges. `register(spark)` adds the
format to a session. The data source itself is imported at its first use, so that the codec and the
page reader work without PySpark.
"""

from typing import TYPE_CHECKING, Any

from tern_wire.extras import is_installed, need_extra

if not is_installed("pyarrow"):
    # Checked before the imports below, which need it.
    need_extra("ternmq[spark]", "The Spark source", "pyspark", "pyarrow")

from tern_spark.columns import record_batch
from tern_spark.options import OptionError, ReadOptions, read_options
from tern_spark.pages import Page, ProxyPages
from tern_spark.ranges import QueueRange, QueueSpan
from tern_spark.schema import COLUMNS, arrow_schema, row_schema

if TYPE_CHECKING:
    from tern_spark.source import TernSource

__all__ = [
    "COLUMNS",
    "OptionError",
    "Page",
    "ProxyPages",
    "QueueRange",
    "QueueSpan",
    "ReadOptions",
    "TernSource",
    "arrow_schema",
    "read_options",
    "record_batch",
    "register",
    "row_schema",
]


def register(spark: Any) -> None:
    """Add `format("ternmq")` to *spark*, a SparkSession (classic or Connect).

    ExtraMissing without `ternmq[spark]`.
    """
    need_extra("ternmq[spark]", "The Spark source", "pyspark", "pyarrow")
    from tern_spark.source import TernSource  # noqa: PLC0415 - PySpark is needed only from here on

    spark.dataSource.register(TernSource)


def __getattr__(name: str) -> Any:
    if name == "TernSource":
        need_extra("ternmq[spark]", "The Spark source", "pyspark", "pyarrow")
        from tern_spark.source import TernSource  # noqa: PLC0415 - as above

        return TernSource
    raise AttributeError(f"module 'tern_spark' has no attribute {name!r}")
