"""One figure of a bench: its JSON line, and its row in the table beside its bar."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

# The bars of the first mesh on 2 quiet cores with the load inside; (figure, key): (bar, whether
# more is better).
BARS: Mapping[tuple[str, str], tuple[float, bool]] = {
    ("send_batch", "value"): (30_000, True),
    ("send_single_1", "p50_ms"): (2.5, False),
    ("send_single_16", "value"): (2_500, True),
    ("send_single_64", "value"): (3_000, True),
    ("receive_ack", "value"): (20_000, True),
    ("startup_s", "value"): (4.0, False),
    ("rss_idle_mb", "value"): (450, False),
    ("rss_idle_mb", "cpu_percent"): (5.0, False),
    ("register_4x1000", "value"): (200, False),
    ("register_4x1000", "heartbeat_bytes"): (1_024, False),
    ("parked_cost", "value"): (60, False),
    ("parked_cost", "cpu_percent"): (1.0, False),
    ("parked_delivery", "p50_ms"): (5.0, False),
    ("parked_delivery", "p99_ms"): (25.0, False),
    # Of `make bench-delivery`.
    ("fifo_1000", "value"): (5_000, True),
    ("keyed_batches", "pairwise_ratio"): (0.7, True),
    ("keyed_singles_16", "pairwise_ratio"): (0.7, True),
    ("delay_fire_mesh", "value"): (10_000, True),
    ("tags_scanned", "value"): (2_000_000, True),
    ("tags_scanned", "longest_step_ms"): (20, False),
    ("sql_scanned", "value"): (50_000, True),
    ("sql_scanned", "longest_step_ms"): (20, False),
    ("tags_received", "longest_step_ms"): (20, False),
    ("sql_received", "longest_step_ms"): (20, False),
    ("topics_10000_created", "value"): (60, False),
    ("topics_10000_restart", "value"): (5, False),
    ("topics_10000_sends", "pairwise_ratio"): (0.6, True),
    ("backlog_reader", "pace_kept"): (0.95, True),
    ("backlog_reader", "p99_ratio"): (2, False),
    ("blocked_group", "pairwise_ratio"): (0.8, True),
    # Of `make bench-transactions`.
    ("transaction_single_64", "pairwise_ratio"): (0.4, True),
    ("callbacks_local", "value"): (250, True),
    ("checks_pulled", "value"): (2_000, True),
    ("open_100000_memory", "value"): (100, False),
    ("open_100000_list", "value"): (50, False),
    ("open_100000_restart", "value"): (10, False),
    # Of `make bench-spark`.
    ("spark_read", "ratio"): (0.65, True),
    ("spark_read", "python_us"): (3.0, False),
    ("spark_read", "mesh_us"): (2.8, False),
    ("spark_heads", "ratio"): (0.18, True),
    ("spark_available_now", "ratio"): (0.5, True),
    ("spark_trigger", "times_rate"): (1.6, False),
    ("spark_archive", "cpu_ratio"): (0.45, False),
    ("spark_sink_at_least_once", "pairwise_ratio"): (0.8, True),
    ("spark_sink_exactly_once", "pairwise_ratio"): (0.6, True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured value, the ceiling of the same run (None if there is none), and explanations."""

    bench: str
    figure: str
    value: float
    unit: str
    ceiling: float | None = None
    cpu_us_per_message: Mapping[str, float] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the content of the JSON line.

        `ratio` is value to ceiling; `bars` says for each bar whether it is met.
        """
        ratio = round(self.value / self.ceiling, 3) if self.ceiling else None
        row = {
            "bench": self.bench,
            "figure": self.figure,
            "value": _rounded(self.value),
            "unit": self.unit,
            "ceiling": None if self.ceiling is None else _rounded(self.ceiling),
            "ratio": ratio,
            "cpu_us_per_message": dict(self.cpu_us_per_message),
            **self.more,
        }
        return {**row, "bars": [text for text, _ in _judgements(row)]}

    @property
    def holds(self) -> bool:
        """Whether every bar of the figure is met."""
        return all(met for _, met in _judgements(self.document()))

    def line(self) -> str:
        """Return the JSON line."""
        return json.dumps(self.document())


def show(figures: Sequence[Figure], console: Console, title: str = "bench") -> None:
    """Print the table for people.

    Value, bar, ceiling, latency, the core loop's longest step if it was measured, and CPU by
    process.
    """
    has_steps = any("longest_step_ms" in figure.more for figure in figures)
    steps = ["step / its CPU ms"] if has_steps else []
    table = Table(
        "figure", "value", "bar", "ceiling", "ratio", "p50 / p99 ms", *steps, "CPU us per message", title=title
    )
    for column in table.columns[1:5]:
        column.justify = "right"
    for figure in figures:
        row = figure.document()
        latency = f"{row['p50_ms']:.2f} / {row['p99_ms']:.2f}" if "p50_ms" in row else ""
        cpu = "  ".join(f"{name} {used:g}" for name, used in figure.cpu_us_per_message.items() if used >= 0.05)
        table.add_row(
            figure.figure,
            f"{row['value']:,} {figure.unit}",
            "\n".join(_bars(row)),
            "" if row["ceiling"] is None else f"{row['ceiling']:,}",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            latency,
            *([_step(row)] if has_steps else []),
            cpu,
        )
    console.print(table)


def _step(row: Mapping[str, Any]) -> str:
    return f"{row['longest_step_ms']:.1f} / {row['longest_step_cpu_ms']:.1f}" if "longest_step_ms" in row else ""


def _bars(row: Mapping[str, Any]) -> list[str]:
    return [f"[{'green' if met else 'red'}]{text}[/]" for text, met in _judgements(row)]


def _judgements(row: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return each bar of the figure as a text, and whether it is met."""
    said = []
    for (figure, key), (bar, more_is_better) in BARS.items():
        if figure == row["figure"]:
            met = row[key] >= bar if more_is_better else row[key] <= bar
            what = "" if key == "value" else f"{key} {row[key]:g} "
            said.append((f"{what}{'≥' if more_is_better else '≤'} {bar:,} {'met' if met else 'MISSED'}", met))
    return said


def _rounded(value: float) -> float:
    return round(value) if value >= 1_000 else round(value, 3)
