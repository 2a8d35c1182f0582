"""`python -m loadtest.bench.transactions`: the cost of transactions in meshes of three brokers.

    speed  transaction_single_64 beside ordinary sends in turns; callbacks_local, checks_pulled
    open   open_100000_memory, _list, _restart: begun over 100 producer groups among other
           messages, while retention passes over them

No assertion on any time. About 5 minutes and 8 GB of disk below `.tern/bench/`, which it removes.
`--scale 0.1` measures a tenth of everything. Exit code 1 when an answer or a total was wrong, 3
when a bar of a run at full size was missed.
"""

import argparse
import asyncio
import itertools
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from loadtest.bench.closed_loop import BenchFailed, Prepared, prepare, run_to_end
from loadtest.bench.delivery.__main__ import MISSED
from loadtest.bench.delivery.sizes import FULL, Sizes
from loadtest.bench.figures import Figure, show
from loadtest.bench.http_load import HttpConnection
from loadtest.bench.own_mesh import OwnMesh, own_mesh, restart
from loadtest.bench.process_cpu import memory_mb
from loadtest.bench.sending import batch_requests, check_stored, send_singles, single_requests
from loadtest.bench.transactions.answering import CHECK_SECRET, Answering
from loadtest.bench.transactions.begins import (
    CONNECTIONS,
    TOPIC,
    begin_and_commit,
    begin_many,
    begins,
    commit_many,
    declare,
    keyed,
    list_pages,
    patient,
    pull_checks,
)
from loadtest.bench.turns import Load, compared, in_turns
from tern_wire import paths
from tern_wire.limits import LISTED_MAX, OPEN_PER_PRODUCER_GROUP_MAX

_FOLDER = Path(".tern/bench")
_BODY_SIZE_BYTES = 1_024
_LISTED_DEFAULT = 100
CALLED, PULLED = 3, 10
OPEN_GROUPS = 100
# The first check comes after the measurement.
_LATE = {"check_after": "1h"}
# Small segments, and a retention of 32 of them: enough for the transactions among other messages
# (see _BESIDE_BATCHES), and so little that the sends move the log's begin past the first
# transactions.
SEGMENT_SIZE_BYTES = 16 << 20
_RETENTION = {"TERN_BROKER_RETENTION_BYTES": str(32 * SEGMENT_SIZE_BYTES)}
_PASSING_BATCHES = 1_200
# Messages between those of transactions: a segment that is mostly needed is kept, not copied.
_ROUNDS, _BESIDE_BATCHES = 20, 320
_TRIMMED_WITHIN_S = 90.0

Bench = Callable[[OwnMesh, float, random.Random], AsyncIterator[Figure]]


def _figure(name: str, value: float, unit: str, **more: Any) -> Figure:
    return Figure(bench="transactions", figure=name, value=value, unit=unit, more=more)


# Speed --------------------------------------------------------------------------------------------
async def bench_speed(mesh: OwnMesh, scale: float, rng: random.Random) -> AsyncIterator[Figure]:
    """Yield transaction_single_64, callbacks_local, checks_pulled."""
    yield await _bench_singles(mesh, FULL if scale == 1 else FULL.scaled(scale), rng)
    yield await _bench_callbacks(mesh, _part(OPEN_PER_PRODUCER_GROUP_MAX, scale), rng)
    yield await _bench_pulled(mesh, _part(OPEN_PER_PRODUCER_GROUP_MAX, scale), rng)


async def _bench_singles(mesh: OwnMesh, sizes: Sizes, rng: random.Random) -> Figure:
    """Return the rate of begin and commit of one message, in turns with ordinary single sends."""
    declare(mesh, ["ended"], **_LATE)
    mesh.ask("PUT", paths.topic_path("plain"), {"queues": 8})
    ours = Load(mesh, CONNECTIONS, begin_and_commit(begins(["ended"], rng, _BODY_SIZE_BYTES)), sizes)
    plain = Load(mesh, CONNECTIONS, send_singles(itertools.cycle(single_requests("plain", rng))), sizes)
    rates = await in_turns(sizes.rounds, ours.turn, plain.turn)
    check_stored(mesh, TOPIC, ours.total)
    check_stored(mesh, "plain", plain.total)
    return replace(
        compared("transaction_single_64", *rates, connections=CONNECTIONS), bench="transactions", unit="transactions/s"
    )


async def _bench_callbacks(mesh: OwnMesh, each: int, rng: random.Random) -> Figure:
    """Return the rate of callbacks of one checker, from the first to the last.

    *each* transactions of CALLED producer groups are due at one moment.
    """
    producer = Answering()
    groups = [f"called-{number}" for number in range(CALLED)]
    async with producer.serving() as url:
        declare(mesh, groups, check_url=url, check_secret=CHECK_SECRET)
        # Due when the last one has begun, not before.
        due_s = 2 + CALLED * each / 500
        requests = begins(groups, rng, _BODY_SIZE_BYTES, **{paths.HEADER_CHECK_AFTER: f"{round(due_s * 1_000)}ms"})
        ids, took_s = await begin_many(mesh, requests, CALLED * each)
        await producer.until(len(ids), within_s=due_s + 60)
        _until_ended(mesh, groups, len(ids))
        seconds = producer.last_s - producer.first_s
    return _figure(
        *("callbacks_local", producer.count / seconds, "callbacks/s"),
        callbacks=producer.count,
        transactions=len(ids),
        begun_s=round(took_s, 2),
        due_s=round(due_s, 2),
    )


def _until_ended(mesh: OwnMesh, groups: list[str], committed: int) -> None:
    """Raise BenchFailed unless all are committed within 10 s."""
    give_up_s = time.monotonic() + 10
    while True:
        stats = [mesh.ask("GET", paths.producer_group_path(group))["stats"] for group in groups]
        if sum(one["committed"] for one in stats) == committed:
            return
        if time.monotonic() > give_up_s:
            raise BenchFailed(f"{committed} transactions were answered; their groups say {stats}")
        time.sleep(0.02)


async def _bench_pulled(mesh: OwnMesh, each: int, rng: random.Random) -> Figure:
    """Return the rate of pulled checks over 8 connections, until all were handed out once.

    *each* transactions of PULLED producer groups are due.
    """
    groups = [f"pulled-{number}" for number in range(PULLED)]
    declare(mesh, groups, check_after="100ms", check_interval="10m")
    ids, _ = await begin_many(mesh, begins(groups, rng, _BODY_SIZE_BYTES), PULLED * each)
    await asyncio.sleep(0.5)
    pulled: set[str] = set()
    run = await run_to_end(mesh.port, 8, pull_checks(itertools.cycle(groups), pulled, len(ids)))
    if pulled != set(ids):
        raise BenchFailed(f"{len(ids)} transactions were due, {len(pulled)} others or fewer were asked about")
    committed_s = await commit_many(mesh, ids)
    answered = round(len(ids) / (run.seconds + committed_s))
    return _figure("checks_pulled", run.per_s, "checks/s", checks=run.total, connections=8, answered_too_per_s=answered)


# Many open transactions ---------------------------------------------------------------------------
async def bench_open(mesh: OwnMesh, scale: float, rng: random.Random) -> AsyncIterator[Figure]:
    """Yield open_100000_memory, _list, _restart.

    Every transaction is listed afterwards and can be committed.
    """
    groups = [f"open-{number:03d}" for number in range(_part(OPEN_GROUPS, scale))]
    declare(mesh, groups, **_LATE)
    mesh.ask("PUT", paths.topic_path("passing"), {"queues": 8})
    each = len(groups) * OPEN_PER_PRODUCER_GROUP_MAX // _ROUNDS
    # The memory that the same load takes as ordinary messages does not count.
    mesh.ask("PUT", paths.topic_path("plain"), {"queues": 8})
    ordinary = [prepare("POST", paths.messages_path("plain"), rng.randbytes(256)) for _ in range(64)]
    sends = keyed(itertools.cycle(ordinary), "plain")
    new = _rss_mb(mesh)
    for _ in range(_ROUNDS):
        await _send(mesh, CONNECTIONS, itertools.islice(sends, each))
        await _send_others(mesh, rng, _BESIDE_BATCHES)
    before = _rss_mb(mesh)
    first_rounds: list[int] = []
    requests, ids, begun_s = keyed(begins(groups, rng, 256), "open"), [], 0.0
    for _ in range(_ROUNDS):
        some, took_s = await begin_many(mesh, requests, each)
        ids += some
        begun_s += took_s
        await _send_others(mesh, rng, _BESIDE_BATCHES)
        first_rounds.append(_last_index(mesh))
    begun = _rss_mb(mesh)
    # Messages copied meanwhile lie close together by then, and stay there: the places of the first
    # rounds at least are gone.
    await _pass_over(mesh, rng, first_rounds[_ROUNDS // 4])
    passed = _rss_mb(mesh)
    more = max(found[name] - before[name] for found in (begun, passed) for name in before)
    yield _figure(
        *("open_100000_memory", more, "MB"),
        open=len(ids),
        begun_per_s=round(len(ids) / begun_s),
        rss_new_mb=_rounded(new),
        rss_after_ordinary_mb=_rounded(before),
        rss_begun_mb=_rounded(begun),
        rss_after_retention_mb=_rounded(passed),
    )
    yield await _bench_list(mesh, ids)
    again = restart(mesh)
    began_s = time.monotonic()
    listed, _ = await list_pages(again, LISTED_MAX, len(ids))
    _check_same(ids, listed)
    listed_s = time.monotonic() - began_s
    committed_s = await commit_many(again, ids)
    check_stored(again, TOPIC, len(ids))
    yield _figure(
        *("open_100000_restart", again.startup_s, "s"),
        open=len(ids),
        all_listed_s=round(listed_s, 2),
        committed_per_s=round(len(ids) / committed_s),
    )


async def _bench_list(mesh: OwnMesh, ids: list[str]) -> Figure:
    """Return the p99 of a page of the usual size, and of the largest."""
    _, few_s = await list_pages(mesh, _LISTED_DEFAULT, 200)
    listed, many_s = await list_pages(mesh, LISTED_MAX, len(ids))
    _check_same(ids, listed)
    usual, largest = (sorted(each)[int(len(each) * 0.99)] * 1_000 for each in (few_s, many_s))
    median = {"p50_ms": round(statistics.median(few_s) * 1_000, 2), "p99_ms": round(usual, 2)}
    large = {"p50_1000_ms": round(statistics.median(many_s) * 1_000, 2), "p99_1000_ms": round(largest, 2)}
    return _figure("open_100000_list", usual, "ms", **median, **large, limit=_LISTED_DEFAULT)


def _check_same(ids: list[str], listed: list[str]) -> None:
    if sorted(ids) != sorted(listed):
        raise BenchFailed(f"{len(ids)} transactions are open, {len(set(listed) & set(ids))} of them are listed")


def _last_index(mesh: OwnMesh) -> int:
    return max(int(status["last_index"]) for status in mesh.broker_statuses())


async def _pass_over(mesh: OwnMesh, rng: random.Random, end: int) -> None:
    """Send ordinary messages until every node's log begins behind entry *end*.

    BenchFailed after _TRIMMED_WITHIN_S.
    """
    await _send_others(mesh, rng, _PASSING_BATCHES)
    give_up_s = time.monotonic() + _TRIMMED_WITHIN_S
    while not all(status["log_first_index"] > end for status in mesh.broker_statuses()):
        if time.monotonic() > give_up_s:
            raise BenchFailed(
                f"retention did not pass over {_PASSING_BATCHES} batches within {_TRIMMED_WITHIN_S:.0f} s"
            )
        for address in mesh.brokers():
            _trim(address)
        await asyncio.sleep(0.2)


async def _send_others(mesh: OwnMesh, rng: random.Random, batches: int) -> None:
    await _send(mesh, 8, itertools.islice(itertools.cycle(batch_requests("passing", rng)), batches))


async def _send(mesh: OwnMesh, connections: int, requests: Iterator[Prepared]) -> None:
    async def step(connection: HttpConnection) -> int | None:
        request = next(requests, None)
        if request is None:
            return None
        status, body = await patient(connection, request)
        if status not in {200, 201, 504}:
            raise BenchFailed(f"a send got {status}: {body[:300]!r}")
        return 1

    await run_to_end(mesh.port, connections, step)


def _trim(address: str) -> None:
    """Request a trim of a broker; a follower refuses."""
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request("POST", "/v1/broker/trim")
        connection.getresponse().read()
    finally:
        connection.close()


def _rss_mb(mesh: OwnMesh) -> dict[str, float]:
    return {name: memory_mb({name: pid})[0] for name, pid in mesh.pids.items() if name.startswith("broker-")}


def _rounded(found: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in found.items()}


def _part(count: int, scale: float) -> int:
    return max(1, round(count * scale))


# The command --------------------------------------------------------------------------------------
BENCHES: Mapping[str, Bench] = {"speed": bench_speed, "open": bench_open}


@contextmanager
def _mesh_of(name: str) -> Iterator[OwnMesh]:
    """Yield a fresh mesh; that of open transactions keeps little of its log."""
    if name != "open":
        with own_mesh(_FOLDER) as mesh:
            yield mesh
        return
    os.environ.update(_RETENTION)
    try:
        with own_mesh(_FOLDER, "--segment-size-bytes", str(SEGMENT_SIZE_BYTES)) as mesh:
            yield mesh
    finally:
        for setting in _RETENTION:
            del os.environ[setting]


async def _measured(bench: Bench, mesh: OwnMesh, scale: float, seed: int, file: Any) -> list[Figure]:
    figures = []
    async for found in bench(mesh, scale, random.Random(seed)):
        figure = found if scale == 1 else replace(found, more={**found.more, "scale": scale})
        figures.append(figure)
        for output in (sys.stdout, file):
            print(figure.line(), file=output, flush=True)
    return figures


def main() -> int:
    """Return exit code 1 for a wrong answer or total, MISSED for a bar missed at full size."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.transactions", description=__doc__)
    parser.add_argument("bench", nargs="*", choices=[[], *BENCHES], help="some of %(choices)s (all)")
    parser.add_argument("-o", "--output", type=Path, default=_FOLDER / "transactions.json", help="JSON (%(default)s)")
    parser.add_argument("--scale", type=float, default=1.0, help="this part of every size, above 0 and up to 1")
    parser.add_argument("--seed", type=int, default=1, help="of bodies (%(default)s)")
    options = parser.parse_args()
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 170)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, scale {options.scale:g}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = []
    try:
        with options.output.open("w") as file:
            for name in options.bench or BENCHES:
                with _mesh_of(name) as mesh:
                    figures += uvloop.run(_measured(BENCHES[name], mesh, options.scale, options.seed, file))
    except (BenchFailed, RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    show(figures, console, "bench-transactions")
    return 0 if options.scale < 1 or all(figure.holds for figure in figures) else MISSED


if __name__ == "__main__":
    sys.exit(main())
