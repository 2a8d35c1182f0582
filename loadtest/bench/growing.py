"""`python -m loadtest.bench.growing`: rates and CPU of small sends as one quantity grows.

Connections, sizes of bodies, topics, proxies, and broker groups; everything else stays as in `make
bench`. Each row has the CPU time that a message costs in every process, so that a bend has an
address. About two minutes. The last column is the memory that the proxy has gained, for each
connection.
"""

import argparse
import itertools
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from loadtest.bench.closed_loop import BenchFailed, Prepared, prepare, run_closed_loop
from loadtest.bench.more_groups import more_groups
from loadtest.bench.own_mesh import OwnMesh, own_mesh
from loadtest.bench.process_cpu import memory_mb
from loadtest.bench.sending import BODY_SIZE_BYTES, send_singles
from tern_wire import paths

_FOLDER = Path(".tern/bench")
CONNECTIONS = (1, 16, 64, 512, 4_000)
BODIES_BYTES = (100, 1_024, 16 << 10, 128 << 10, 1 << 20)
TOPICS = (1, 100, 10_000)
PROXIES = (1, 2, 4)
BROKER_GROUPS = (1, 2, 3)
_USUAL_CONNECTIONS = 64
_QUEUES = 8
# Different bodies in turn; fewer of the large ones.
_BODIES, _BODIES_SIZE_BYTES = 64, 16 << 20


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. *cpu_us*: a message, by kind of process. *proxy_kb*: memory that the proxy
    has gained, for each connection.
    """

    grows: str
    value: int
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_us: dict[str, float]
    proxy_kb: float | None = None


async def measured(
    mesh: OwnMesh,
    grows: str,
    value: int,
    *,
    seconds: float,
    connections: int = _USUAL_CONNECTIONS,
    body_size_bytes: int = BODY_SIZE_BYTES,
    topics: int = 1,
    proxies: int = 1,
) -> Row:
    """Measure one row on *mesh*. Raises BenchFailed when a message is refused."""
    rng = random.Random(value)
    names = [f"{grows}-{value}-{number}" for number in range(topics)]
    for name in names:
        mesh.ask("PUT", paths.topic_path(name), {"queues": _QUEUES if topics == 1 else 1})
    count = max(1, min(_BODIES, _BODIES_SIZE_BYTES // body_size_bytes))
    bodies = [rng.randbytes(body_size_bytes) for _ in range(count)]
    step = send_singles(_requests(names, bodies))
    before_mb = _proxy_mb(mesh)
    # The proxies of one mesh have neighbouring ports; here each gets its part of the connections.
    ports = [mesh.port + number for number in range(proxies)]
    run = await run_closed_loop(ports, connections, step, seconds=seconds, pids=mesh.pids)
    more_kb = (_proxy_mb(mesh) - before_mb) * 1_000
    kinds: dict[str, float] = {}
    for process, spent_us in run.cpu_us.items():
        kind = process.rstrip("0123456789").rstrip("-")
        kind = "broker" if kind.startswith("broker-") else kind
        kinds[kind] = kinds.get(kind, 0.0) + spent_us
    return Row(
        grows=grows,
        value=value,
        per_s=run.per_s,
        p50_ms=run.p50_ms,
        p99_ms=run.p99_ms,
        cpu_us={kind: round(spent_us, 1) for kind, spent_us in kinds.items() if spent_us >= 0.05},
        # Of fewer connections it is lost in what the first requests load.
        proxy_kb=round(more_kb / connections, 1) if connections > _USUAL_CONNECTIONS else None,
    )


def _requests(topics: list[str], bodies: list[bytes]) -> Iterator[Prepared]:
    # Prepared once: with many topics each has one body.
    pairs = itertools.islice(itertools.cycle(bodies), max(len(topics), len(bodies)))
    prepared = [
        prepare("POST", paths.messages_path(topic), body)
        for topic, body in zip(itertools.cycle(topics), pairs, strict=False)
    ]
    return itertools.cycle(prepared)


def _proxy_mb(mesh: OwnMesh) -> float:
    return memory_mb({"proxy": mesh.pids["proxy-0"]})[1]


async def rows_of_one_mesh(mesh: OwnMesh, seconds: float, *, topics_most: int, connections_most: int) -> list[Row]:
    """Return the rows of connections, bodies and topics."""
    rows = []
    for connections in (each for each in CONNECTIONS if each <= connections_most):
        rows.append(await measured(mesh, "connections", connections, seconds=seconds, connections=connections))
    for size in BODIES_BYTES:
        rows.append(await measured(mesh, "body-bytes", size, seconds=seconds, body_size_bytes=size))
    for topics in (each for each in TOPICS if each <= topics_most):
        rows.append(await measured(mesh, "topics", topics, seconds=seconds, topics=topics))
    return rows


def show(rows: list[Row], console: Console) -> None:
    """Print the table."""
    kinds = sorted({kind for row in rows for kind in row.cpu_us})
    table = Table("grows", "to", "msg/s", "p50 ms", "p99 ms", "CPU us/msg", *kinds, "KB/connection")
    for row in rows:
        cpu = [f"{row.cpu_us.get(kind, 0):,.0f}" for kind in kinds]
        total = sum(spent_us for kind, spent_us in row.cpu_us.items() if kind != "load")
        memory = "" if row.proxy_kb is None else f"{row.proxy_kb:.1f}"
        figures = (f"{row.per_s:,.0f}", f"{row.p50_ms:.2f}", f"{row.p99_ms:.2f}", f"{total:,.0f}")
        table.add_row(row.grows, f"{row.value:,}", *figures, *cpu, memory)
    console.print(table)


def main() -> int:
    """Return exit code 1 when a message was refused."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.growing", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a window (%(default)s)")
    parser.add_argument("--topics", type=int, default=TOPICS[-1], help="at most so many topics (%(default)s)")
    parser.add_argument("--connections", type=int, default=CONNECTIONS[-1], help="at most so many (%(default)s)")
    options = parser.parse_args()
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 170)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    rows: list[Row] = []
    try:
        with own_mesh(_FOLDER) as mesh:
            most = {"topics_most": options.topics, "connections_most": options.connections}
            rows += uvloop.run(rows_of_one_mesh(mesh, options.seconds, **most))
        for proxies in PROXIES:
            with own_mesh(_FOLDER, "--proxies", str(proxies)) as mesh:
                rows.append(uvloop.run(measured(mesh, "proxies", proxies, seconds=options.seconds, proxies=proxies)))
        for groups in BROKER_GROUPS:
            with own_mesh(_FOLDER) as mesh, more_groups(mesh, groups - 1) as larger:
                rows.append(uvloop.run(measured(larger, "broker-groups", groups, seconds=options.seconds)))
    except (BenchFailed, RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    for row in rows:
        print(json.dumps({"bench": "growing", **msgspec.to_builtins(row)}), flush=True)
    show(rows, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
