"""Batch reads into `noop`, which drops every row, beside Parquet with the same rows."""

from collections.abc import Iterator
from typing import Any

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.figures import Figure
from loadtest.bench.spark.engine import Engine
from loadtest.bench.spark.rounds import figure_of, measure

# The columns that are in the head of a record.
HEAD_COLUMNS = {"queue_id": "int", "queue_offset": "bigint", "store_ts": "timestamp", "store_size": "int"}


def bench_reads(engine: Engine, rounds: int, warm_ups: int) -> Iterator[Figure]:
    """Yield spark_parquet, spark_read, spark_parquet_heads, spark_heads.

    The last two read four columns. BenchFailed when Parquet or the topic lacks a row.
    """
    spark, parquet = engine.spark, str(engine.folder / "parquet")
    engine.ternmq(spark.read).write.parquet(parquet)
    for name, frame in {"Parquet": spark.read.parquet(parquet), "the topic": engine.ternmq(spark.read)}.items():
        count = frame.select("queue_id", "queue_offset").distinct().count()
        if count != engine.rows:
            raise BenchFailed(f"{name} has {count} distinct rows of {engine.rows}")
    schema = ", ".join(f"{name} {kind}" for name, kind in HEAD_COLUMNS.items())
    cases = {
        "spark_parquet": lambda: to_noop(spark.read.parquet(parquet)),
        "spark_read": lambda: to_noop(engine.ternmq(spark.read)),
        "spark_parquet_heads": lambda: to_noop(spark.read.parquet(parquet).select(*HEAD_COLUMNS)),
        "spark_heads": lambda: to_noop(engine.ternmq(spark.read, schema)),
    }
    found = measure(cases, engine.rows, engine.cpu_seconds, rounds=rounds, warm_ups=warm_ups)
    yield figure_of("spark_parquet", found["spark_parquet"])
    yield figure_of("spark_read", found["spark_read"], found["spark_parquet"])
    yield figure_of("spark_parquet_heads", found["spark_parquet_heads"])
    yield figure_of("spark_heads", found["spark_heads"], found["spark_parquet_heads"])


def to_noop(frame: Any) -> None:
    """Read every row of *frame*."""
    frame.write.format("noop").mode("overwrite").save()
