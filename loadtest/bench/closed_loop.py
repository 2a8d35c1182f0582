"""Closed loops: N connections that each send the next request after the last answer.

The result has rate, latencies and CPU of a window. A warm-up goes before the window, in which
connections, routes and lanes are made. Totals include the warm-up, so that they can be compared
with the stored messages. Work with an end, such as a backlog, runs to its end instead
(`run_to_end`).
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from loadtest.bench.http_load import HttpConnection
from loadtest.bench.process_cpu import Pids, cpu_seconds, cpu_us_each

WARM_UP_S = 1.0
# Maximum length of a window that has to wait for enough answers.
FIRST_ANSWERS_MAX_S = 10.0

# One request and its checks on this connection; returns the messages moved, None at the end.
Step = Callable[[HttpConnection], Awaitable[int | None]]
# A proxy keeps only so many connections that have not sent a request yet.
OPENED_TOGETHER_MAX = 1_024


class Prepared(NamedTuple):
    """A request made before the measurement; `await connection.request(*prepared)`."""

    method: str
    path: str
    headers: bytes
    body: bytes


def prepare(method: str, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Prepared:
    """Return the request with its header lines encoded."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return Prepared(method, path, lines.encode(), body)


class BenchFailed(Exception):
    """An answer or a total was wrong, so there is no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a loop: messages in all; and of the window rate, latencies in ms, and CPU.

    CPU is in us per message and process.
    """

    total: int
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: dict[str, float]

    def latencies(self) -> dict[str, Any]:
        """Return the latencies for a figure's line."""
        return {"p50_ms": round(self.p50_ms, 3), "p99_ms": round(self.p99_ms, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The result of work with an end: messages in all, and its duration."""

    total: int
    seconds: float

    @property
    def per_s(self) -> float:
        """Messages a second."""
        return self.total / self.seconds


@dataclass(slots=True)
class _Tally:
    """Owner: one loop, whose workers add to it."""

    moved: int = 0
    latencies_s: list[float] | None = None
    ended: bool = False


async def run_closed_loop(
    port: int | Sequence[int],
    connections: int,
    step: Step,
    *,
    seconds: float,
    pids: Pids,
    warm_up_s: float = WARM_UP_S,
) -> Run:
    """Run *step* repeatedly on each connection to *port*, or to these ports in turn.

    Ends early when the steps have no more to do.
    """
    tally = _Tally()
    opened: list[HttpConnection] = []
    workers: list[asyncio.Task[None]] = []
    try:
        ports = [port] if isinstance(port, int) else port
        while len(opened) < connections:
            for number in range(len(opened), min(len(opened) + OPENED_TOGETHER_MAX, connections)):
                opened.append(await HttpConnection.open("127.0.0.1", ports[number % len(ports)]))
            begun = len(workers)
            workers += [asyncio.create_task(_work(connection, step, tally)) for connection in opened[begun:]]
        await _until(workers, warm_up_s)
        latencies_s: list[float] = []
        tally.latencies_s = latencies_s
        moved, cpu, began_s = tally.moved, cpu_seconds(pids), time.perf_counter()
        await _until(workers, seconds)
        # A window that is too short on a busy machine is extended, and the figures use its real
        # length.
        while len(latencies_s) < 2 and time.perf_counter() - began_s < FIRST_ANSWERS_MAX_S and not _are_done(workers):
            await _until(workers, seconds)
        took_s, cpu_after, moved = time.perf_counter() - began_s, cpu_seconds(pids), tally.moved - moved
        tally.ended, tally.latencies_s = True, None
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        for connection in opened:
            connection.close()
    if len(latencies_s) < 2:
        raise BenchFailed(f"only {len(latencies_s)} answers in {took_s:.1f} s")
    percentiles = statistics.quantiles(latencies_s, n=100)
    return Run(
        total=tally.moved,
        per_s=moved / took_s,
        p50_ms=percentiles[49] * 1_000,
        p99_ms=percentiles[98] * 1_000,
        cpu_us=cpu_us_each(cpu, cpu_after, moved),
    )


async def run_to_end(port: int, connections: int, step: Step) -> Finished:
    """Run *step* on each connection to *port* until no connection has more to do."""
    tally = _Tally()
    opened = [await HttpConnection.open("127.0.0.1", port) for _ in range(connections)]
    began_s = time.perf_counter()
    workers = [asyncio.create_task(_work(connection, step, tally)) for connection in opened]
    try:
        await asyncio.gather(*workers)
        return Finished(total=tally.moved, seconds=time.perf_counter() - began_s)
    finally:
        for worker in workers:
            worker.cancel()
        for connection in opened:
            connection.close()


async def _until(workers: list[asyncio.Task[None]], seconds: float) -> None:
    """Let the workers run for *seconds*, or until all are done; raise the first failure."""
    done, _ = await asyncio.wait(workers, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for worker in done:
        worker.result()


def _are_done(workers: list[asyncio.Task[None]]) -> bool:
    return all(worker.done() for worker in workers)


async def _work(connection: HttpConnection, step: Step, tally: _Tally) -> None:
    while not tally.ended:
        began_s = time.perf_counter()
        moved = await step(connection)
        if moved is None:
            return
        tally.moved += moved
        if tally.latencies_s is not None:
            tally.latencies_s.append(time.perf_counter() - began_s)
