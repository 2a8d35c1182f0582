"""A second process beside the load, which measures the mesh without the load's own work.

It repeats a small request, or it runs consumers that read a backlog.
"""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

import uvloop

from loadtest.bench.closed_loop import BenchFailed, run_closed_loop
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import HOST, OwnMesh
from loadtest.bench.receiving import CONNECTIONS, Receivers

# The pause between two small requests: so few requests are no load.
PROBE_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies of the small requests, in ms."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """The result of one turn of the consumers.

    All messages are acked, and came once within the turn.
    """

    acked: int
    per_s: float


@contextmanager
def second_process() -> Iterator[Executor]:
    """Yield a process that has finished its imports and waits."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(time.perf_counter).result()
        yield pool


def probe(port: int, path: str, seconds: float) -> Latencies:
    """GET *path* over one connection for *seconds*. BenchFailed unless each answer is 200."""
    return uvloop.run(_probe(port, path, seconds))


async def _probe(port: int, path: str, seconds: float) -> Latencies:
    connection = await HttpConnection.open(HOST, port)
    took_s: list[float] = []
    end_s = time.perf_counter() + seconds
    while (began_s := time.perf_counter()) < end_s or not took_s:
        status, body = await connection.request("GET", path)
        took_s.append(time.perf_counter() - began_s)
        if status != 200:
            raise BenchFailed(f"{path} got {status}: {body[:300]!r}")
        await asyncio.sleep(PROBE_PAUSE_S)
    connection.close()
    took_s.sort()
    count = len(took_s)
    return Latencies(
        count=count,
        p50_ms=round(took_s[count // 2] * 1e3, 3),
        p99_ms=round(took_s[min(count - 1, int(count * 0.99))] * 1e3, 3),
        max_ms=round(took_s[-1] * 1e3, 3),
    )


def consume(mesh: OwnMesh, topic: str, group: str, seconds: float, warm_up_s: float) -> Consumed:
    """Receive and ack over several connections at full speed for *warm_up_s* and *seconds*.

    Ends earlier if there is no more.
    """
    return uvloop.run(_consume(mesh, topic, group, seconds, warm_up_s))


async def _consume(mesh: OwnMesh, topic: str, group: str, seconds: float, warm_up_s: float) -> Consumed:
    receivers = Receivers(topic, group)
    step = receivers.step()
    run = await run_closed_loop(mesh.port, CONNECTIONS, step, seconds=seconds, pids={}, warm_up_s=warm_up_s)
    receivers.ack_the_rest(mesh)
    return Consumed(acked=receivers.acked, per_s=run.per_s)
