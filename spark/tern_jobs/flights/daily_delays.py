"""The stream of the demo: flights of a topic become daily delays in another topic.

     flights -> windows of a day by carrier: flights, departed, minutes -> flight-delays

A day is written once, when the watermark has passed its end: DISORDER_DAYS behind the latest flight
that was read. Several producers send the year side by side, and a repeat after a failure comes
late, so the flights are not in order. The last days of the year stay open.
"""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from pyspark.sql import functions as F

from tern_jobs.flights.report import flight_of

TOPIC = "flight-delays"
# Four micro-batches of the demo's 336,776 flights.
ROWS_PER_TRIGGER = 100_000
# Some 55,000 flights: three seconds of all producers.
DISORDER_DAYS = 60
_FIELDS = "carrier string, year int, month int, day int, dep_delay int"


class DailyDelay(TypedDict):
    """Figures of one carrier on one day; *minutes*: the sum of the departed flights' delays."""

    carrier: str
    date: str
    flights: int
    departed: int
    minutes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What the stream has written: days by carrier, in order, and how many messages repeat one."""

    table: list[DailyDelay]
    repeated: int


def run_stream(spark: Any, endpoint: str, topic: str, starting: str, checkpoint: Path, *, rows_per_trigger: int) -> int:
    """Write the days of all that is in *topic* from *starting* on; return the micro-batches.

    *checkpoint* is a folder of this run alone: what is in it is removed.
    """
    shutil.rmtree(checkpoint, ignore_errors=True)
    flights = (
        spark.readStream.format("ternmq")
        .schema("body binary")
        .option("endpoint", endpoint)
        .option("subscribe", topic)
        .option("startingOffsets", starting)
        .option("maxRowsPerTrigger", str(rows_per_trigger))
        .load()
        .select(flight_of(_FIELDS))
        .select("flight.*")
    )
    query = (
        days_of(flights)
        .writeStream.format("ternmq")
        .outputMode("append")
        .option("endpoint", endpoint)
        .option("topic", TOPIC)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(1 for progress in query.recentProgress if progress["numInputRows"])


def days_of(flights: Any) -> Any:
    """Return a message for each carrier and day that is complete: its figures as JSON."""
    day = F.make_timestamp("year", "month", "day", F.lit(0), F.lit(0), F.lit(0))
    figures = (
        flights.withColumn("day_ts", day)
        .withWatermark("day_ts", f"{DISORDER_DAYS} days")
        .groupBy("carrier", F.window("day_ts", "1 day"))
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("minutes"),
        )
    )
    dated = figures.withColumn("date", F.date_format("window.start", "yyyy-MM-dd"))
    return dated.select(
        F.to_json(F.struct("carrier", "date", "flights", "departed", "minutes")).cast("binary").alias("body"),
        F.concat_ws("/", "carrier", "date").alias("key"),
        F.col("carrier").alias("tags"),
    )


def read_written(spark: Any, endpoint: str, starting: Mapping[str, int]) -> Written:
    """Return what is behind the offsets *starting* (by queue)."""
    rows = (
        spark.read.format("ternmq")
        .schema("body binary")
        .option("endpoint", endpoint)
        .option("subscribe", TOPIC)
        .option("startingOffsets", json.dumps({TOPIC: dict(starting)}))
        .load()
    )
    return joined(json.loads(bytes(row["body"])) for row in rows.toLocalIterator())


def joined(days: Iterable[DailyDelay]) -> Written:
    """Return *days* by carrier and date; of those that are there twice, the last."""
    found: dict[tuple[str, str], DailyDelay] = {}
    count = 0
    for count, day in enumerate(days, 1):  # noqa: B007 - read behind the loop
        found[day["carrier"], day["date"]] = day
    return Written(table=[found[place] for place in sorted(found)], repeated=count - len(found))
