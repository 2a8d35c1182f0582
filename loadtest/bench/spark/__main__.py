"""`python -m loadtest.bench.spark`: reads from a mesh of three brokers, and writes to it.

Reads stand beside Parquet, streams beside the batch read and Spark's rate source, writes beside the
plain batch send, the archive beside Spark's own writer.

A fresh mesh gets a million rows of 1 KiB; each bench runs its cases in alternating rounds. About 15
minutes and 24 GB of disk below `.tern/bench/`, which it removes. `--rows 100000` is quick, and its
bars are not judged. No assertion on any time. Exit code 1 when a row is missing, MISSED when
everything is right and a bar of a run at full size is missed.
"""

import argparse
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.console import Console

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.delivery.__main__ import MISSED
from loadtest.bench.figures import Figure, show
from loadtest.bench.own_mesh import own_mesh
from loadtest.bench.spark.archives import bench_archives
from loadtest.bench.spark.engine import Engine, open_spark
from loadtest.bench.spark.reads import bench_reads
from loadtest.bench.spark.rows import BATCH_MESSAGES, load_rows
from loadtest.bench.spark.streams import bench_streams
from loadtest.bench.spark.writes import bench_writes

_FOLDER = Path(".tern/bench")
ROWS = 1_000_000
# For each row: three brokers' logs, Parquet, 21 writes of a tenth, and 14 archives.
_DISK_PER_ROW_BYTES = 24_000
# A bench gets the engine, rounds and warm-ups.
Bench = Callable[[Engine, int, int], Iterator[Figure]]
BENCHES: Mapping[str, Bench] = {
    "reads": bench_reads,
    "streams": bench_streams,
    "writes": bench_writes,
    "archives": bench_archives,
}


def run(names: list[str], rows: int, rounds: int, warm_ups: int, seed: int, output: Path) -> list[Figure]:
    """Run the benches *names* over one mesh; write each figure as a JSON line at once."""
    figures = []
    with own_mesh(_FOLDER) as mesh, output.open("w") as file:
        per_s = load_rows(mesh, rows, random.Random(seed))
        print(f"{rows:,} rows loaded, {per_s:,.0f} a second", file=sys.stderr, flush=True)
        with open_spark() as spark:
            engine = Engine(spark=spark, mesh=mesh, rows=rows, folder=mesh.data_dir)
            for name in names:
                for figure in BENCHES[name](engine, rounds, warm_ups):
                    figures.append(figure)
                    for target in (sys.stdout, file):
                        print(figure.line(), file=target, flush=True)
    return figures


def main() -> int:
    """Return exit code 1 for missing rows; MISSED for a missed bar of a run at full size."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.spark", description=__doc__)
    parser.add_argument("bench", nargs="*", choices=[[], *BENCHES], help="some of %(choices)s (all)")
    parser.add_argument("-o", "--output", type=Path, default=_FOLDER / "spark.json", help="JSON lines (%(default)s)")
    parser.add_argument("--rows", type=int, default=ROWS, help="whole batches of 500 (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="that count (%(default)s)")
    parser.add_argument("--warm-ups", type=int, default=2, help="rounds before that do not (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the rows (%(default)s)")
    options = parser.parse_args()
    rows = max(1, options.rows // BATCH_MESSAGES) * BATCH_MESSAGES
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 170)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {rows:,} rows, seed {options.seed}")
    if os.getloadavg()[0] > 0.5:
        console.print("[yellow]This machine is not quiet: compare ratios and CPU, not rows a second.[/]")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(options.output.parent).free
    if free < rows * _DISK_PER_ROW_BYTES:
        console.print(
            f"[red]{rows * _DISK_PER_ROW_BYTES:,} bytes of disk are needed, {free:,} are free.[/] Try --rows."
        )
        return 1
    names = options.bench or list(BENCHES)
    try:
        figures = run(names, rows, options.rounds, options.warm_ups, options.seed, options.output)
    except (BenchFailed, RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    show(figures, console, "bench-spark")
    console.print(f"JSON lines: {options.output}")
    missed = [figure.figure for figure in figures if not figure.holds]
    if rows < ROWS:
        console.print("Bars are judged at full size only.")
        return 0
    if missed:
        console.print(f"[red]Bars missed:[/] {', '.join(missed)}")
    return MISSED if missed else 0


if __name__ == "__main__":
    sys.exit(main())
