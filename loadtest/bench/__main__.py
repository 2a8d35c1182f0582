"""`python -m loadtest.bench [mesh|parked] [-o FILE]`: measure a fresh mesh for about 75 s.

No assertion on any time.
"""

import argparse
import os
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop
from rich.console import Console

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.figures import Figure, show
from loadtest.bench.idling import bench_idle, startup_figure
from loadtest.bench.own_mesh import OwnMesh, own_mesh
from loadtest.bench.parking import bench_parked
from loadtest.bench.receiving import bench_receive_ack
from loadtest.bench.registering import bench_registering
from loadtest.bench.sdk import bench_sdk
from loadtest.bench.sending import bench_batches, bench_singles

_FOLDER = Path(".tern/bench")
_BATCH_TOPIC = "batch"


async def bench_mesh(mesh: OwnMesh, seed: int, seconds: float) -> AsyncIterator[Figure]:
    """Yield the figures of bench `mesh` as they are measured.

    The receives consume the messages of the batches.
    """
    rng = random.Random(seed)
    yield startup_figure(mesh)
    yield await bench_registering()
    yield await bench_idle(mesh)
    for connections in (1, 16, 64):
        yield await bench_singles(mesh, connections, rng, seconds=seconds)
    yield await bench_batches(mesh, _BATCH_TOPIC, rng, seconds=seconds)
    yield await bench_receive_ack(mesh, _BATCH_TOPIC, seconds=seconds)
    yield await bench_sdk(mesh, rng, seconds=seconds / 2)


async def run(figures_of: AsyncIterator[Figure], output: Path) -> list[Figure]:
    """Measure; write each figure's JSON line to *output* and to stdout as it comes."""
    figures = []
    with output.open("w") as file:
        async for figure in figures_of:
            figures.append(figure)
            print(figure.line(), flush=True)
            print(figure.line(), file=file, flush=True)
    return figures


def main() -> int:
    """Return exit code 1 when an answer or a total was wrong.

    A missed bar is shown, never an error.
    """
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench", description=__doc__)
    parser.add_argument("bench", nargs="?", choices=["mesh", "parked"], default="mesh")
    parser.add_argument(
        "-o", "--output", type=Path, default=_FOLDER / "mesh.json", help="file of JSON lines (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="length of each figure's window (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the random bodies (%(default)s)")
    options = parser.parse_args()
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 170)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, seed {options.seed}; about 75 s")
    if os.getloadavg()[0] > 0.5:
        console.print("[yellow]This machine is not quiet: the figures will be lower than they could be.[/]")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with own_mesh(_FOLDER) as mesh:
            what = bench_parked(mesh) if options.bench == "parked" else bench_mesh(mesh, options.seed, options.seconds)
            figures = uvloop.run(run(what, options.output))
    except (BenchFailed, RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    show(figures, console)
    console.print(f"JSON lines: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
