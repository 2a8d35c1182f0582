"""`python -m loadtest.bench.delivery`: what delivery costs in a mesh of three brokers, each group of figures in a fresh one; no assertion on any time.

About 7 minutes and up to 16 GB of disk below `.tern/bench/`, which it removes. `--scale 0.1` measures a tenth of everything, `--quick` shows
only that it works. A bar that is missed is shown, never an error; a message that is lost, or comes twice or in the wrong order, is.
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

from loadtest.bench.backlog import bench_backlog, load_backlog
from loadtest.bench.blocked import bench_blocked
from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.delivery_sizes import FULL, QUICK, Sizes
from loadtest.bench.figures import Figure, show
from loadtest.bench.filtered import bench_filtered
from loadtest.bench.keyed import bench_keyed
from loadtest.bench.many_topics import bench_topics
from loadtest.bench.ordered import bench_fifo
from loadtest.bench.own_mesh import OwnMesh, own_mesh
from loadtest.bench.receiving import bench_receive_ack
from loadtest.bench.timers import fire_in_mesh

_FOLDER = Path(".tern/bench")
Bench = Callable[[OwnMesh, Sizes, random.Random], AsyncIterator[Figure]]


async def bench_receive(mesh: OwnMesh, sizes: Sizes, rng: random.Random) -> AsyncIterator[Figure]:
    """receive_ack, of a backlog that is there already."""
    await load_backlog(mesh, "received", sizes.receive_messages, rng)
    yield await bench_receive_ack(mesh, "received", seconds=sizes.seconds, warm_up_s=sizes.warm_up_s)


async def bench_delay(mesh: OwnMesh, sizes: Sizes, _rng: random.Random) -> AsyncIterator[Figure]:
    """delay_fire_mesh."""
    yield fire_in_mesh(mesh, sizes.delayed_messages, sizes.delayed_ahead_ms)


BENCHES: Mapping[str, Bench] = {
    "receive": bench_receive,
    "fifo": bench_fifo,
    "keyed": bench_keyed,
    "delay": bench_delay,
    "filtered": bench_filtered,
    "topics": bench_topics,
    "backlog": bench_backlog,
    "blocked": bench_blocked,
}


async def measure(bench: Bench, mesh: OwnMesh, sizes: Sizes, seed: int, outputs: Iterable[TextIO]) -> list[Figure]:
    """The figures of *bench*, each as a JSON line with its bars as soon as it is known."""
    figures = []
    async for found in bench(mesh, sizes, random.Random(seed)):
        more = found.more if sizes.scale == 1 else {**found.more, "scale": sizes.scale}
        figure = replace(found, bench="delivery", more=more)
        figures.append(figure)
        for output in outputs:
            print(figure.line(), file=output, flush=True)
    return figures


def run(folder: Path, sizes: Sizes, names: list[str], seed: int, output: Path) -> list[Figure]:
    """Measure what *names* says, each in a mesh of its own below *folder*."""
    figures = []
    with output.open("w") as file:
        for name in names:
            with own_mesh(folder) as mesh:
                figures += uvloop.run(measure(BENCHES[name], mesh, sizes, seed, (sys.stdout, file)))
    return figures


def main() -> int:
    """Exit code 1 when an answer, an order or a total was wrong."""
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
    try:
        figures = run(_FOLDER, sizes, options.bench or list(BENCHES), options.seed, options.output)
    except (BenchFailed, RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    show(figures, console, "bench-delivery")
    console.print(f"JSON lines: {options.output}")
    return 0


def _share(text: str) -> float:
    """ValueError, which argparse explains, unless 0 < *text* <= 1."""
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError(text)
    return share


if __name__ == "__main__":
    sys.exit(main())
