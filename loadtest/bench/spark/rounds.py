"""Cases in alternating rounds, so that other work slows all of them, and their figures.

A case runs as a whole: a read of every row, or a write. Each has its time and its CPU by kind of
process; the figures are medians.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from loadtest.bench.figures import Figure

Work = Callable[[], None]
# Reads the CPU seconds by kind of process.
Meter = Callable[[], Mapping[str, float]]
# These kinds are the cost of reading from the mesh.
_MESH = ("brokers", "proxy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Times and costs of one case, an entry a round."""

    rows: int
    seconds: list[float]
    cpu_us: list[dict[str, float]]

    @property
    def per_s(self) -> float:
        """Rows a second, of the median round."""
        return self.rows / statistics.median(self.seconds)

    def cpu(self) -> dict[str, float]:
        """Return the medians of CPU microseconds a row by kind of process."""
        return {kind: round(statistics.median(row[kind] for row in self.cpu_us), 2) for kind in self.cpu_us[0]}


def measure(
    cases: Mapping[str, Work],
    rows: int,
    meter: Meter,
    *,
    rounds: int,
    warm_ups: int,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Measured]:
    """Run every case *warm_ups* times, and then once in each of *rounds*.

    Every other round goes in the opposite order.
    """
    found = {name: Measured(rows=rows, seconds=[], cpu_us=[]) for name in cases}
    for _ in range(warm_ups):
        for work in cases.values():
            work()
    for number in range(rounds):
        for name in list(cases) if number % 2 == 0 else list(cases)[::-1]:
            before, began_s = meter(), clock()
            cases[name]()
            took_s, after = clock() - began_s, meter()
            found[name].seconds.append(took_s)
            found[name].cpu_us.append({kind: (after[kind] - before[kind]) * 1e6 / rows for kind in before})
    return found


def figure_of(name: str, ours: Measured, ceiling: Measured | None = None, **more: Any) -> Figure:
    """Return the figure of *ours* in rows a second, beside *ceiling*, of the same rounds.

    `ratio` is that of the medians, `pairwise_ratio` the median of the rounds' ratios; `python_us`
    and `mesh_us` are CPU microseconds a row of Python workers, and of brokers and proxy.
    """
    cpu = ours.cpu()
    told: dict[str, Any] = {
        "python_us": cpu["python"],
        "mesh_us": round(sum(cpu[kind] for kind in _MESH), 2),
        "total_us": round(sum(cpu.values()), 2),
        "seconds": [round(seconds, 3) for seconds in ours.seconds],
    }
    if ceiling is not None:
        pairs = [theirs / mine for mine, theirs in zip(ours.seconds, ceiling.seconds, strict=True)]
        told["pairwise_ratio"] = round(statistics.median(pairs), 3)
    return Figure(
        bench="spark",
        figure=name,
        value=ours.per_s,
        unit="rows/s",
        ceiling=None if ceiling is None else ceiling.per_s,
        cpu_us_per_message=cpu,
        more=told | more,
    )
