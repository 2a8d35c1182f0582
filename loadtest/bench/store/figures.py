"""Figures of `make bench-store` and `make bench-raft`, as a table and as JSON lines.

They are measured in turns with a bare loop and judged by a bar. Law: a ratio compares two loops of
the same run on the same disk, ours and bare in turns, so that other load on the machine slows both.
A figure is the median of its rounds, its ratio the median of the rounds' ratios. Beside it stand
the best round, and its ratio to the bare loop's best: an estimate for a quiet machine.
"""

import os
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from loadtest.bench.figures import Figure

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The bar of a figure: *ratio* of the bare loop, or *value* in its unit; one suffices."""

    ratio: float | None = None
    value: float | None = None
    more_is_better: bool = True

    def is_met(self, value: float, ratio: float | None) -> bool:
        """Whether one of the two is reached."""
        by_value = self.value is not None and (value >= self.value if self.more_is_better else value <= self.value)
        return by_value or (self.ratio is not None and ratio is not None and ratio >= self.ratio)

    def text(self) -> str:
        """Return the bar as a text for the table."""
        sign = "≥" if self.more_is_better else "≤"
        said = [f"{sign} {self.ratio:g} of bare"] if self.ratio is not None else []
        return " or ".join(said + ([f"{sign} {self.value:,g}"] if self.value is not None else []))


def judged(
    figure: str,
    ours: Sequence[float],
    unit: str,
    bar: Bar | None = None,
    *,
    bare: Sequence[float] = (),
    note: str = "",
) -> Figure:
    """Return the figure of several rounds.

    Each is measured beside the bare round of the same number (none: nothing to compare).
    """
    pairs = [mine / other for mine, other in zip(ours, bare, strict=True)] if bare else []
    value, ratio = statistics.median(ours), statistics.median(pairs) if pairs else None
    better = max if bar is None or bar.more_is_better else min
    best, best_ratio = better(ours), better(ours) / max(bare) if bare else None
    more = {
        "pairwise_ratio": None if ratio is None else round(ratio, 3),
        "best": _short(best),
        "best_ratio": None if best_ratio is None else round(best_ratio, 3),
        "rounds": len(ours),
        "bar": bar.text() if bar is not None else "",
        "met": bar.is_met(value, ratio) if bar is not None else None,
        "best_met": bar.is_met(best, best_ratio) if bar is not None else None,
        "note": note,
    }
    ceiling = statistics.median(bare) if bare else None
    return Figure(bench="store", figure=figure, value=value, unit=unit, ceiling=ceiling, more=more)


def in_turns(count: int, *works: Callable[[], float]) -> list[list[float]]:
    """Return the results of each of *works*, one list each, from *count* turns A B A B.

    One turn before that does not count.
    """
    found: list[list[float]] = [[] for _ in works]
    for turn in range(count + 1):
        for number, work in enumerate(works):
            value = work()
            if turn:
                found[number].append(value)
    return found


def show_store(figures: Iterable[Figure], console: Console, title: str = "bench-store") -> None:
    """Print the table: figure, ours, bare, ratio, bar, and whether the bar is met.

    It is met by the median, or only by the best round.
    """
    table = Table("figure", "ours", "best", "bare", "ratio", "bar", "ok", "", title=title)
    for column in table.columns[1:5]:
        column.justify = "right"
    for figure in figures:
        row = figure.document()
        ok = "" if row["met"] is None else "[green]yes[/]" if row["met"] else "[red]NO[/]"
        if row["met"] is False and row["best_met"]:
            ok = "[yellow]best only[/]"
        table.add_row(
            figure.figure,
            f"{row['value']:,} {figure.unit}",
            f"{row['best']:,}",
            "" if row["ceiling"] is None else f"{row['ceiling']:,}",
            "" if row["pairwise_ratio"] is None else f"{row['pairwise_ratio']:.2f} ({row['best_ratio']:.2f})",
            *(row["bar"], ok, row["note"]),
        )
    console.print(table)


@contextmanager
def scratch(folder: Path) -> Iterator[Path]:
    """Yield an empty folder, removed afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def drop_cache(folder: Path) -> None:
    """Write everything below *folder* to disk and drop it from the file cache.

    Called before a round, so that it takes pages that were used before: a virtual machine's first
    use of a page costs far more.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def memory_mb() -> float:
    """Return the process's own memory (anonymous pages) in MB; pages of files do not count."""
    with Path("/proc/self/status").open() as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("RssAnon:"))
    return kib * 1024 / 1e6


def open_files() -> int:
    """Return the number of descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def in_process(work: Callable[..., Result], *args: object) -> Result:
    """Return the result of *work* (importable) in a new process without memory of ours."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def _short(value: float) -> float:
    return round(value) if value >= 1_000 else round(value, 3)
