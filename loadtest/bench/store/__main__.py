"""`python -m loadtest.bench.store`: the cost of the store.

Each figure stands beside a bare loop of the same run or an absolute bar. About 3 minutes and 12 GB
of disk, in a folder below `.tern/bench/` that is removed afterwards; with `--quick` 20 seconds and
5 GB. A missed bar is shown, never an error; a missing message is an error.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.console import Console

from loadtest.bench.figures import Figure
from loadtest.bench.store.append import bench_append, bench_scan
from loadtest.bench.store.apply import bench_apply, bench_written
from loadtest.bench.store.figures import scratch, show_store
from loadtest.bench.store.queues import bench_queues
from loadtest.bench.store.read import bench_pull
from loadtest.bench.store.restart import bench_large
from loadtest.bench.store.sizes import FULL, QUICK, Sizes

_FOLDER = Path(".tern/bench")
BENCHES: Mapping[str, Callable[[Path, Sizes], Iterator[Figure]]] = {
    "append": bench_append,
    "scan": bench_scan,
    "apply": bench_apply,
    "written": bench_written,
    "pull": bench_pull,
    "queues": bench_queues,
    "large": bench_large,
}


def run(folder: Path, sizes: Sizes, names: list[str], output: Path) -> list[Figure]:
    """Run the benches *names*; write each figure's JSON line to *output* and stdout as it comes."""
    figures = []
    with output.open("w") as file:
        for name in names:
            for figure in BENCHES[name](folder, sizes):
                figures.append(figure)
                print(figure.line(), flush=True)
                print(figure.line(), file=file, flush=True)
    return figures


def main() -> int:
    """Return exit code 1 when a stored message was not found again."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.store", description=__doc__)
    parser.add_argument("bench", nargs="*", choices=[[], *BENCHES], help="one of %(choices)s (all)")
    parser.add_argument("-o", "--output", type=Path, default=_FOLDER / "store.json", help="JSON lines (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it works, not how fast")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 200)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if os.getloadavg()[0] > 0.5:
        console.print("[yellow]This machine is not quiet: look at the best rounds too.[/]")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(options.output.parent).free
    if free < sizes.disk_size_bytes:
        console.print(f"[red]{sizes.disk_size_bytes:,} bytes of disk are needed, {free:,} are free.[/] Try --quick.")
        return 1
    try:
        with scratch(_FOLDER / f"store-{os.getpid()}") as folder:
            figures = run(folder, sizes, options.bench or list(BENCHES), options.output)
    except (RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    show_store(figures, console)
    console.print(f"JSON lines: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
