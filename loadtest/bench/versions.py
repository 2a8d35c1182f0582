"""`python -m loadtest.bench.versions BEFORE`: compare this checkout with another one in one run.

Two meshes run at once and take turns of a few seconds. A shared machine is up to twice as fast one
minute as the next, so figures of two runs mean little. The ratio of two adjacent windows means
more, and the median of many such pairs most. The order changes with each pair. Rates above 1 and
CPU and p99 below 1 are better than before.

`--delivery 0.1` runs `loadtest.bench.delivery` of the two checkouts in turns instead, at that
scale, and compares all its figures. The ratio of times and sizes is inverted, so that above 1 is
better there, too.
"""

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from rich.console import Console
from rich.table import Table

from loadtest.bench.closed_loop import BenchFailed, Run, Step, run_closed_loop
from loadtest.bench.own_mesh import OwnMesh, own_mesh
from loadtest.bench.receiving import CONNECTIONS, GROUP, Receivers
from loadtest.bench.sending import BATCH_CONNECTIONS, batch_requests, send_batches, send_singles, single_requests
from tern_wire import paths

_FOLDER = Path(".tern/bench")
_QUEUES = 8
_LOAD = "load"
# The maximum that one window of receives consumes, for each second; sent before, outside the
# measurement.
_BACKLOG_BATCHES_PER_S = 400
# The warm-up before a window, as a part of the window's length.
_WARM_UP_WINDOWS = 0.25


@dataclass(slots=True)
class Side:
    """One of the two meshes, and the results of each figure's windows.

    Rates, CPU us a message of all processes but the load, and p99 of the latencies.
    """

    name: str
    mesh: OwnMesh
    rates: dict[str, list[float]] = field(default_factory=dict)
    cpu_us: dict[str, list[float]] = field(default_factory=dict)
    p99_ms: dict[str, list[float]] = field(default_factory=dict)
    receivers: Receivers | None = None

    def note(self, figure: str, run: Run) -> None:
        """Keep one window."""
        self.rates.setdefault(figure, []).append(run.per_s)
        spent_us = sum(us for process, us in run.cpu_us.items() if process != _LOAD)
        self.cpu_us.setdefault(figure, []).append(spent_us)
        self.p99_ms.setdefault(figure, []).append(run.p99_ms)


async def singles(side: Side, connections: int, seconds: float) -> None:
    """Measure send_single_N."""
    topic = f"single-{connections}"
    side.mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
    requests = single_requests(topic, random.Random(connections))
    await _window(side, f"send_single_{connections}", connections, send_singles(itertools.cycle(requests)), seconds)


async def batches(side: Side, seconds: float) -> None:
    """Measure send_batch."""
    topic = "batch"
    side.mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
    requests = batch_requests(topic, random.Random(2))
    await _window(side, "send_batch", BATCH_CONNECTIONS, send_batches(itertools.cycle(requests)), seconds)


async def receives(side: Side, seconds: float) -> None:
    """Measure receive_ack, of a backlog that is sent before."""
    topic, mesh = "backlog", side.mesh
    mesh.ask("PUT", paths.topic_path(topic), {"queues": _QUEUES})
    mesh.ask("PUT", paths.group_path(GROUP), {"invisible": "60s"})
    requests = batch_requests(topic, random.Random(3))
    backlog = itertools.islice(itertools.cycle(requests), int(_BACKLOG_BATCHES_PER_S * (seconds + 1)))
    await run_closed_loop(mesh.port, 4, send_batches(backlog), seconds=60.0, pids=mesh.pids, warm_up_s=0.0)
    if side.receivers is None:
        side.receivers = Receivers(topic)
    await _window(side, "receive_ack", CONNECTIONS, side.receivers.step(), seconds)


async def _window(side: Side, figure: str, connections: int, step: Step, seconds: float) -> None:
    run = await run_closed_loop(
        side.mesh.port, connections, step, seconds=seconds, pids=side.mesh.pids, warm_up_s=seconds * _WARM_UP_WINDOWS
    )
    side.note(figure, run)


FIGURES: dict[str, Callable[..., object]] = {
    "send_single_1": lambda side, seconds: singles(side, 1, seconds),
    "send_single_16": lambda side, seconds: singles(side, 16, seconds),
    "send_single_64": lambda side, seconds: singles(side, 64, seconds),
    "send_batch": batches,
    "receive_ack": receives,
}


async def take_turns(sides: tuple[Side, Side], figures: list[str], rounds: int, seconds: float) -> None:
    """Measure every figure *rounds* times on both sides."""
    for number in range(rounds):
        order = sides if number % 2 == 0 else sides[::-1]
        for figure in figures:
            for side in order:
                await FIGURES[figure](side, seconds)  # type: ignore[misc]


def ratios(before: list[float], after: list[float]) -> tuple[float, float, float]:
    """Return lower quartile, median and upper quartile of the pairs' ratios."""
    found = sorted(b / a for a, b in zip(before, after, strict=True))
    low, middle, high = statistics.quantiles(found, n=4) if len(found) > 1 else (found[0],) * 3
    return low, middle, high


def delivery(tree: Path, scale: float, names: list[str]) -> dict[str, float]:
    """Run `loadtest.bench.delivery` of *tree*; return figures of which more is better.

    Raises BenchFailed.
    """
    output = (_FOLDER / "turn.json").absolute()
    command = [str(tree / ".venv/bin/python"), "-m", "loadtest.bench.delivery", *names]
    done = subprocess.run(  # noqa: S603 - our own module
        [*command, "--scale", str(scale), "-o", str(output)], cwd=tree, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchFailed(f"{tree}: {done.stdout[-1_000:]}{done.stderr[-1_000:]}")
    found = [json.loads(line) for line in output.read_text().splitlines()]
    return {row["figure"]: row["value"] if "/s" in row["unit"] else 1 / max(row["value"], 1e-3) for row in found}


def delivery_in_turns(before: Path, rounds: int, scale: float, names: list[str], console: Console) -> None:
    """Print the table of all figures of the delivery bench, and a JSON line each."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    trees = (before.absolute(), Path.cwd())
    found: dict[Path, list[dict[str, float]]] = {tree: [] for tree in trees}
    for number in range(rounds):
        for tree in trees if number % 2 == 0 else trees[::-1]:
            found[tree].append(delivery(tree, scale, names))
            console.print(f"round {number + 1} of {rounds}: {tree}")
    table = Table("figure", "quartiles of the ratio: above 1 is better than before")
    for figure in found[trees[0]][0]:
        rate = ratios(*([turn[figure] for turn in found[tree]] for tree in trees))
        print(json.dumps({"bench": "versions", "figure": figure, "pairs": rounds, "rate_ratio": rate}), flush=True)
        table.add_row(figure, "  ".join(f"{value:.2f}" for value in rate))
    console.print(table)


def main() -> int:
    """Return exit code 1 when an answer was wrong; a worse figure is shown, never an error."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.versions", description=__doc__)
    parser.add_argument("before", type=Path, help="a checkout of the version to compare with (`git worktree add`)")
    parser.add_argument("figures", nargs="*", choices=[[], *FIGURES], help="some of the figures (all)")
    parser.add_argument("--rounds", type=int, default=8, help="pairs of windows a figure (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a window (%(default)s)")
    parser.add_argument("--delivery", type=float, metavar="SCALE", help="compare the delivery bench at this scale")
    parser.add_argument("--only", nargs="+", default=[], help="some of the delivery bench's groups of figures (all)")
    options = parser.parse_args()
    figures = options.figures or list(FIGURES)
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 140)
    try:
        if options.delivery:
            delivery_in_turns(options.before, options.rounds, options.delivery, options.only, console)
            return 0
        with ExitStack() as stack:
            before = Side("before", stack.enter_context(own_mesh(_FOLDER, tree=options.before)))
            after = Side("after", stack.enter_context(own_mesh(_FOLDER, tree=Path.cwd())))
            uvloop.run(take_turns((before, after), figures, options.rounds, options.seconds))
    except (BenchFailed, RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    ratio = "quartiles of the ratio"
    table = Table("figure", "before/s", "after/s", f"rate: {ratio}", f"CPU: {ratio}", f"p99: {ratio}")
    for figure in figures:
        rate = ratios(before.rates[figure], after.rates[figure])
        cpu = ratios(before.cpu_us[figure], after.cpu_us[figure])
        p99 = ratios(before.p99_ms[figure], after.p99_ms[figure])
        middles = [statistics.median(side.rates[figure]) for side in (before, after)]
        line = {"bench": "versions", "figure": figure, "pairs": options.rounds}
        print(json.dumps({**line, "rate_ratio": rate, "cpu_ratio": cpu, "p99_ratio": p99}), flush=True)
        shown = ["  ".join(f"{value:.2f}" for value in three) for three in (rate, cpu, p99)]
        table.add_row(figure, *(f"{value:,.0f}" for value in middles), *shown)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
