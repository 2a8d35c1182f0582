"""Sends at a given pace: each is due at a moment, and its latency counts from that moment.

So the wait for a free connection counts, too.
"""

import asyncio
import statistics
import time
from dataclasses import dataclass

from loadtest.bench.closed_loop import BenchFailed, Step
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Paced:
    """The result of paced sends: total, and the rate and latencies in ms of the window."""

    total: int
    per_s: float
    p50_ms: float
    p99_ms: float


async def run_paced(
    port: int, connections: int, step: Step, *, per_s: float, seconds: float, warm_up_s: float
) -> Paced:
    """Run *step* *per_s* times a second over all connections for *warm_up_s* and *seconds*.

    A late connection sends at once, so the pace is caught up with as soon as the mesh allows. Sends
    that are due and not begun at the end are never sent, and missing in `per_s`. A timer that fires
    late is the load's own delay and does not count. BenchFailed when the window has no answers.
    """
    opened = [await HttpConnection.open(HOST, port) for _ in range(connections)]
    began_s = time.perf_counter()
    from_s, end_s = began_s + warm_up_s, began_s + warm_up_s + seconds
    total, answered, took_s = 0, 0, list[float]()

    async def work(connection: HttpConnection, number: int) -> None:
        nonlocal total, answered
        due_s = began_s + number / per_s
        while due_s < end_s:
            wait_s = due_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            sent_s = time.perf_counter()
            if sent_s >= end_s:
                return
            waited_since_s = due_s if wait_s <= 0 else sent_s
            moved = await step(connection)
            now_s = time.perf_counter()
            total += moved or 0
            if due_s >= from_s:
                took_s.append(now_s - waited_since_s)
            answered += from_s <= now_s < end_s
            due_s += connections / per_s

    try:
        await asyncio.gather(*(work(connection, number) for number, connection in enumerate(opened)))
    finally:
        for connection in opened:
            connection.close()
    if len(took_s) < 2:
        raise BenchFailed(f"only {len(took_s)} sends were due in {seconds:.1f} s at {per_s:.0f}/s")
    percentiles = statistics.quantiles(took_s, n=100)
    return Paced(total=total, per_s=answered / seconds, p50_ms=percentiles[49] * 1_000, p99_ms=percentiles[98] * 1_000)
