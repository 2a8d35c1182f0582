"""The report of the demo: a topic of flights as Parquet, and departure delays by carrier and month.

Law: NULL is "not known", as in pandas. A cancelled flight has no departure delay: it counts in
`flights`, but not in `departed`, `mean_delay_min` and `median_delay_min`. A cell without any
departure has neither mean nor median.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

FLIGHT = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""
SOURCE_COLUMNS = (
    "queue_id int, queue_offset bigint, message_id string, tags string, keys string, body binary, broker string"
)


def read_flights(spark: Any, endpoint: str, topic: str, *, starting: str, ending: str) -> Any:
    """Return the topic's messages as flights: a column for each field, and queue, offset and id.

    *starting* and *ending* are offset documents of the source, or `earliest` and `latest`.
    """
    source = (
        spark.read.format("ternmq")
        .schema(SOURCE_COLUMNS)
        .option("endpoint", endpoint)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .option("endingOffsets", ending)
    )
    return (
        source.load()
        .select("broker", "queue_id", "queue_offset", "message_id", flight_of(FLIGHT))
        .select("broker", "queue_id", "queue_offset", "message_id", "flight.*")
    )


def flight_of(fields: str) -> Any:
    """Return the column `flight` with *fields* of the body.

    FAILFAST: a body that is no flight is an error with its text, never a row of NULLs.
    """
    return F.from_json(F.col("body").cast("string"), fields, {"mode": "FAILFAST"}).alias("flight")


def delay_report(flights: Any) -> Any:
    """Return a row for each carrier and month, in order.

    Flights, departed, mean and median delay in minutes; the median is exact and interpolated.
    """
    return (
        flights.groupBy("carrier", "month")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("mean_delay_min"),
            F.percentile("dep_delay", F.lit(0.5)).alias("median_delay_min"),
        )
        .orderBy("carrier", "month")
    )


def write_table(table: list[dict[str, Any]], path: Path) -> None:
    """Write one small Parquet file, not a directory of part files: 185 rows."""
    import pyarrow as pa  # noqa: PLC0415 - only here
    import pyarrow.parquet as pq  # noqa: PLC0415 - only here

    kinds = [("carrier", pa.string()), ("month", pa.int32()), ("flights", pa.int64()), ("departed", pa.int64())]
    kinds += [("mean_delay_min", pa.float64()), ("median_delay_min", pa.float64())]
    pq.write_table(pa.Table.from_pylist(table, schema=pa.schema(kinds)), path)
