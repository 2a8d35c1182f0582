"""`python -m loadtest.bench.delivery`: the cost of delivery in a mesh of three brokers.

Each group of figures runs in a fresh mesh; no assertion on any time. About 8 minutes and up to 16
GB of disk below `.tern/bench/`, which it removes. `--scale 0.1` measures a tenth of everything,
`--quick` shows only that it works.

Exit code 1 when a message is lost, duplicated or out of order (the other groups of figures run all
the same); MISSED when everything is right and a bar is missed, which is judged at full size only.
"""

import argparse
import os
import random
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import uvloop
from rich.console import Console

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.core_loops import CoreLoop
from loadtest.bench.delivery.backlog import bench_backlog, load_backlog
from loadtest.bench.delivery.blocked import bench_blocked
from loadtest.bench.delivery.filtered import bench_filtered
from loadtest.bench.delivery.keyed import bench_keyed
from loadtest.bench.delivery.many_topics import bench_topics
from loadtest.bench.delivery.ordered import bench_fifo
from loadtest.bench.delivery.sizes import FULL, QUICK, Sizes
from loadtest.bench.delivery.timers import fire_in_mesh
from loadtest.bench.figures import Figure, show
from loadtest.bench.own_mesh import OwnMesh, own_mesh
from loadtest.bench.parking import bench_parked
from loadtest.bench.receiving import bench_receive_ack

_FOLDER = Path(".tern/bench")
# Exit code: everything was right, and a bar was missed. argparse uses 2.
MISSED = 3
Bench = Callable[[OwnMesh, Sizes, random.Random], AsyncIterator[Figure]]


async def bench_receive(mesh: OwnMesh, sizes: Sizes, rng: random.Random) -> AsyncIterator[Figure]:
    """Yield receive_ack of an existing backlog."""
    await load_backlog(mesh, "received", sizes.receive_messages, rng)
    yield await bench_receive_ack(mesh, "received", seconds=sizes.seconds, warm_up_s=sizes.warm_up_s)


async def bench_delay(mesh: OwnMesh, sizes: Sizes, _rng: random.Random) -> AsyncIterator[Figure]:
    """Yield delay_fire_mesh."""
    yield fire_in_mesh(mesh, sizes.delayed_messages, sizes.delayed_ahead_ms)


async def bench_parking(mesh: OwnMesh, sizes: Sizes, _rng: random.Random) -> AsyncIterator[Figure]:
    """Yield parked_cost, parked_delivery."""
    async for figure in bench_parked(mesh, polls=sizes.parked_polls, messages=sizes.parked_messages):
        yield figure


BENCHES: Mapping[str, Bench] = {
    "receive": bench_receive,
    "fifo": bench_fifo,
    "keyed": bench_keyed,
    "delay": bench_delay,
    "filtered": bench_filtered,
    "topics": bench_topics,
    "backlog": bench_backlog,
    "blocked": bench_blocked,
    "parked": bench_parking,
}


async def measure(bench: Bench, mesh: OwnMesh, sizes: Sizes, seed: int, outputs: Iterable[TextIO]) -> list[Figure]:
    """Return the figures of *bench*; write each at once as a JSON line with its bars.

    Each has the leader's longest step until then.
    """
    figures = []
    core_loop = CoreLoop(mesh)
    async for found in bench(mesh, sizes, random.Random(seed)):
        scale = {} if sizes.scale == 1 else {"scale": sizes.scale}
        figure = replace(found, bench="delivery", more={**core_loop.since(), **found.more, **scale})
        figures.append(figure)
        core_loop = CoreLoop(mesh)
        for output in outputs:
            print(figure.line(), file=output, flush=True)
    return figures


def run(folder: Path, sizes: Sizes, names: list[str], seed: int, output: Path) -> tuple[list[Figure], dict[str, str]]:
    """Run the benches *names*, each in a mesh of its own below *folder*.

    Returns the figures, and the failures by name of the bench.
    """
    figures, failed = list[Figure](), dict[str, str]()
    with output.open("w") as file:
        for name in names:
            try:
                with own_mesh(folder) as mesh:
                    figures += uvloop.run(measure(BENCHES[name], mesh, sizes, seed, (sys.stdout, file)))
            except (BenchFailed, RuntimeError, OSError) as failure:
                failed[name] = str(failure)
    return figures, failed


def main() -> int:
    """Return exit code 1 for a wrong answer, order or total; MISSED for a missed bar.

    Bars count at full size only.
    """
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.delivery", description=__doc__)
    parser.add_argument("bench", nargs="*", choices=[[], *BENCHES], help="some of %(choices)s (all)")
    parser.add_argument("-o", "--output", type=Path, default=_FOLDER / "delivery.json", help="JSON lines (%(default)s)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--scale", type=_share, default=1.0, help="this part of every size, above 0 and up to 1")
    size.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, not how fast")
    parser.add_argument("--seed", type=int, default=1, help="of bodies and orders (%(default)s)")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL.scaled(options.scale) if options.scale < 1 else FULL
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 170)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, seed {options.seed}, scale {sizes.scale:g}")
    if os.getloadavg()[0] > 0.5:
        console.print("[yellow]This machine is not quiet: the figures will be lower than they could be.[/]")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(options.output.parent).free
    if free < sizes.disk_size_bytes:
        console.print(f"[red]{sizes.disk_size_bytes:,} bytes of disk are needed, {free:,} are free.[/] Try --scale.")
        return 1
    figures, failed = run(_FOLDER, sizes, options.bench or list(BENCHES), options.seed, options.output)
    show(figures, console, "bench-delivery")
    console.print(f"JSON lines: {options.output}")
    missed = [figure.figure for figure in figures if not figure.holds]
    if sizes.scale < 1:
        console.print("Bars are judged at full size only.")
    elif missed:
        console.print(f"[red]Bars missed:[/] {', '.join(missed)}")
    for name, failure in failed.items():
        console.print(f"[red]{name} failed:[/]", failure)
    return 1 if failed else MISSED if missed and sizes.scale == 1 else 0


def _share(text: str) -> float:
    """Return the number; ValueError, which argparse explains, unless 0 < *text* <= 1."""
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError(text)
    return share


if __name__ == "__main__":
    sys.exit(main())
