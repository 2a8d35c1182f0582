"""Batch writes of a tenth of the rows: exactly once beside at least once, and that beside plain
batch sends: those of `make bench` (100 rows, 16 connections), larger ones (500 rows, 8
connections).

The rows come from Parquet, whose reading is part of a write's time, in a file for each core. Every
run has a topic of its own, whose messages are counted.
"""

import asyncio
import random
from collections.abc import Iterator
from itertools import count, cycle, islice
from typing import Any

from loadtest.bench import sending
from loadtest.bench.closed_loop import Prepared, run_to_end
from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import HOST
from loadtest.bench.spark.engine import CORES, Engine
from loadtest.bench.spark.rounds import figure_of, measure
from loadtest.bench.spark.rows import BATCH_MESSAGES, batches
from tern_wire import paths

# A run of every round stays on the disks of three brokers.
SHARE = 10
_CONNECTIONS, _QUEUES = 8, 8
_COLUMNS = ("body", "keys", "tags", "properties")


def bench_writes(engine: Engine, rounds: int, warm_ups: int) -> Iterator[Figure]:
    """Yield spark_send, spark_send_large, spark_sink_at_least_once, spark_sink_exactly_once.

    BenchFailed when a topic has not exactly the rows that were written.
    """
    rows = engine.rows // SHARE // BATCH_MESSAGES * BATCH_MESSAGES
    folder = str(engine.folder / "written")
    frame = engine.ternmq(engine.spark.read).select(*_COLUMNS).limit(rows)
    # A limit leaves one partition, and one task would write alone.
    frame.repartition(CORES).write.parquet(folder)
    topics = (f"written-{number}" for number in count())
    cases = {
        "spark_send": lambda: _send(engine, next(topics), rows),
        "spark_send_large": lambda: _send_large(engine, next(topics), rows),
        "spark_sink_at_least_once": lambda: _write(engine, folder, next(topics), rows, "at_least_once"),
        "spark_sink_exactly_once": lambda: _write(engine, folder, next(topics), rows, "exactly_once"),
    }
    found = measure(cases, rows, engine.cpu_seconds, rounds=rounds, warm_ups=warm_ups)
    send, large, least, exactly = (found[name] for name in cases)
    yield figure_of("spark_send", send)
    yield figure_of("spark_send_large", large)
    yield figure_of("spark_sink_at_least_once", least, send, of_large=round(least.per_s / large.per_s, 3))
    yield figure_of("spark_sink_exactly_once", exactly, least)


def _write(engine: Engine, folder: str, topic: str, rows: int, delivery: str) -> None:
    engine.mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
    frame: Any = engine.spark.read.parquet(folder)
    writer = frame.write.format("ternmq").mode("append").option("endpoint", f"http://{HOST}:{engine.mesh.port}")
    writer.option("topic", topic).option("delivery", delivery).save()
    sending.check_stored(engine.mesh, topic, rows)


def _send(engine: Engine, topic: str, rows: int) -> None:
    """Send as `make bench` does, bodies alone."""
    requests = cycle(sending.batch_requests(topic, random.Random(rows)))
    _send_all(engine, topic, rows, requests, sending.BATCH_MESSAGES, sending.BATCH_CONNECTIONS)


def _send_large(engine: Engine, topic: str, rows: int) -> None:
    """Send the same rows as the sink, with tags, keys and properties."""
    _send_all(engine, topic, rows, batches(rows, random.Random(rows), topic), BATCH_MESSAGES, _CONNECTIONS)


def _send_all(
    engine: Engine, topic: str, rows: int, requests: Iterator[Prepared], messages: int, connections: int
) -> None:
    """Send *rows* in *requests* of so many *messages* each."""
    engine.mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
    step = sending.send_batches(islice(requests, rows // messages), messages)
    asyncio.run(run_to_end(engine.mesh.port, connections, step))
    sending.check_stored(engine.mesh, topic, rows)
