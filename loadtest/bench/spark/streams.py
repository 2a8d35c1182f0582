"""Streams into `noop`: the whole topic in batches beside the batch read, and triggers of 1,000 rows
beside those of Spark's rate source.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.figures import Figure
from loadtest.bench.spark.engine import Engine
from loadtest.bench.spark.reads import to_noop
from loadtest.bench.spark.rounds import figure_of, measure

BATCH_ROWS, TRIGGER_ROWS = 128_000, 1_000
# Triggers of one round that count, and those before them, in which workers start.
_TRIGGERS, _FIRST = 12, 4
_TRIGGERS_WITHIN_S = 120
# The part of a trigger that Spark's progress tells.
_TOOK = "triggerExecution"


def bench_streams(engine: Engine, rounds: int, warm_ups: int) -> Iterator[Figure]:
    """Yield spark_available_now beside spark_batch_read, and spark_trigger beside
    spark_trigger_rate.

    BenchFailed when a stream lacks a row.
    """
    checkpoints = (str(engine.folder / f"checkpoint-{number}") for number in count())
    cases = {
        "spark_batch_read": lambda: to_noop(engine.ternmq(engine.spark.read)),
        "spark_available_now": lambda: _read_all(engine, next(checkpoints)),
    }
    found = measure(cases, engine.rows, engine.cpu_seconds, rounds=rounds, warm_ups=warm_ups)
    yield figure_of("spark_batch_read", found["spark_batch_read"])
    yield figure_of("spark_available_now", found["spark_available_now"], found["spark_batch_read"])

    ours: list[float] = []
    rates: list[float] = []
    for number in range(1 + rounds):  # the first does not count
        for kind, took_ms in ((_topic, ours), (_rate, rates)):
            measured = _triggers(kind(engine), next(checkpoints))
            took_ms += measured if number else []
    yield _figure_of_triggers("spark_trigger_rate", rates, None)
    yield _figure_of_triggers("spark_trigger", ours, rates)


def _topic(engine: Engine) -> Any:
    return engine.ternmq(engine.spark.readStream, startingOffsets="earliest", maxRowsPerTrigger=str(TRIGGER_ROWS))


def _rate(engine: Engine) -> Any:
    rate = engine.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", TRIGGER_ROWS)
    return rate.option("numPartitions", 1).load()


def _read_all(engine: Engine, checkpoint: str) -> None:
    frame = engine.ternmq(engine.spark.readStream, startingOffsets="earliest", maxRowsPerTrigger=str(BATCH_ROWS))
    query = _into_noop(frame, checkpoint, availableNow=True)
    query.awaitTermination()
    rows = sum(progress["numInputRows"] for progress in query.recentProgress)
    if rows != engine.rows:
        raise BenchFailed(f"the stream has {rows} rows of {engine.rows}")


def _triggers(frame: Any, checkpoint: str) -> list[float]:
    """Return how long (ms) triggers of one run took, without the first ones."""
    query = _into_noop(frame, checkpoint, processingTime="0 seconds")
    try:
        took_ms = _awaited(lambda: [each["durationMs"][_TOOK] for each in query.recentProgress if each["numInputRows"]])
    finally:
        query.stop()
    return took_ms


def _awaited(took: Callable[[], list[float]]) -> list[float]:
    until_s = time.monotonic() + _TRIGGERS_WITHIN_S
    while len(found := took()) < _FIRST + _TRIGGERS:
        if time.monotonic() > until_s:
            raise BenchFailed(f"{len(found)} triggers in {_TRIGGERS_WITHIN_S} s")
        time.sleep(0.05)
    return found[_FIRST : _FIRST + _TRIGGERS]


def _into_noop(frame: Any, checkpoint: str, **trigger: Any) -> Any:
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


def _figure_of_triggers(name: str, took_ms: list[float], rate_ms: list[float] | None) -> Figure:
    """Return the median, and how many times that of the rate source it is."""
    median_ms = statistics.median(took_ms)
    more = {"triggers": len(took_ms), "slowest_ms": max(took_ms)}
    if rate_ms is not None:
        more["times_rate"] = round(median_ms / statistics.median(rate_ms), 2)
    return Figure(bench="spark", figure=name, value=median_ms, unit="ms", more=more)
