"""Report at the end of the demo: delays, counts and rates, files, and commands to try next."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tern_cli.demo.flights import DelayRow, carrier_names
from tern_cli.demo.producing import BATCH_MESSAGES, BATCH_PRODUCERS, SINGLE_CONNECTIONS, plan_sends
from tern_cli.demo.spark_job import SparkOutcome
from tern_cli.demo.verify import RunFigures
from tern_cli.output import show_json

if TYPE_CHECKING:
    from tern_cli.demo.traffic import Traffic

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Upper limit of the mean delay in minutes for each colour.
_COLOURS = ((0, "blue"), (10, "green"), (20, "yellow"), (30, "dark_orange"), (float("inf"), "red"))
_WIDTH_WITHOUT_TERMINAL = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """One run to show. `table` is pandas'; `differences` lists deviations of Spark's table."""

    endpoint: str
    topic: str
    figures: RunFigures
    traffic: "Traffic"
    spark: SparkOutcome | None
    table: Sequence[DelayRow]
    result: dict[str, Any]
    result_path: Path
    differences: Sequence[str]


def show_report(report: DemoReport, *, as_json: bool) -> None:
    """Print the whole report to stdout, or the figures of flights.json as JSON."""
    if as_json:
        show_json(report.result)
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    console.print()
    console.print(delay_heat_table(report.spark.table if report.spark else report.table, is_sparks=bool(report.spark)))
    console.print()
    console.print(_summary(report))
    console.print(_files(report))
    if not report.differences:
        checked = "sent = acked = distinct ids" + (" = rows read by Spark" if report.spark else "")
        line = f"Every number agrees: {checked} = {report.figures.flights:,} flights"
        if report.spark:
            line += (
                f"; Spark's {len(report.table)} cells and its stream's {len(report.spark.daily):,} days equal pandas'"
            )
        line += "."
        console.print(Text(line, style="bold green"))
    console.print("\nThe mesh stays up. Try:")
    for line in curl_lines(report.endpoint, report.topic, report.traffic.group, dict(report.traffic.starting)):
        console.print(f"  {line}", soft_wrap=True, markup=False)


def delay_heat_table(rows: Sequence[DelayRow], *, is_sparks: bool) -> Table:
    """Return the mean departure delays: a row per carrier, the worst first, a column per month."""
    by, names = ("Spark" if is_sparks else "pandas"), carrier_names()
    title = f"Mean departure delay from New York in 2013, minutes (by {by})"
    # Without padding the table fits into 80 columns.
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0)
    )
    table.add_column("carrier", no_wrap=True)
    for month in _MONTHS:
        table.add_column(month, justify="right", min_width=3)
    table.add_column("flights", justify="right")
    carriers: dict[str, dict[int, DelayRow]] = {}
    for row in rows:
        carriers.setdefault(row["carrier"], {})[row["month"]] = row

    def year(months: dict[int, DelayRow]) -> float:
        minutes = sum((row["mean_delay_min"] or 0.0) * row["departed"] for row in months.values())
        return float(minutes / max(sum(row["departed"] for row in months.values()), 1))

    for carrier, months in sorted(carriers.items(), key=lambda item: -year(item[1])):
        cells = [_cell(months.get(month)) for month in range(1, 13)]
        flights = sum(row["flights"] for row in months.values())
        table.add_row(f"{carrier} {names.get(carrier, '')}", *cells, f"{flights:,}")
    return table


def _cell(row: DelayRow | None) -> Text:
    if row is None:
        return Text("")
    mean = row["mean_delay_min"]
    if mean is None:
        return Text("-", style="dim")
    return Text(f"{mean:.0f}".replace("-0", "0"), style=next(colour for limit, colour in _COLOURS if mean < limit))


def _summary(report: DemoReport) -> Table:
    figures, traffic, sends = report.figures, report.traffic, report.traffic.sends
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    singles = len(plan_sends(figures.flights).singles)
    batched = figures.flights - singles
    single_seconds = sends.seconds - traffic.batch_seconds
    table.add_row("sent", f"{figures.sent:,}", f"{report.result['send_per_s']:,.0f}/s over all")
    batch_rate = f"{batched / max(traffic.batch_seconds, 1e-3):,.0f}/s"
    table.add_row(
        "  in batches", f"{batched:,}", f"{batch_rate}: {BATCH_PRODUCERS} producers, {BATCH_MESSAGES} a request"
    )
    table.add_row(
        "  singly", f"{singles:,}", f"{singles / max(single_seconds, 1e-3):,.0f}/s: {SINGLE_CONNECTIONS} connections"
    )
    if sends.replayed:
        table.add_row("  repeated", f"{sends.replayed:,}", "stored before, answered again by their idempotency keys")
    table.add_row(
        "received", f"{figures.received:,}", f"{report.result['receive_per_s']:,.0f}/s, group {traffic.group}"
    )
    table.add_row("acked", f"{figures.acked:,}", f"by the broker's count: {figures.settled_rows:,}")
    table.add_row(
        "redelivered", f"{figures.redelivered:,}", "leases of answers that never arrived" if figures.redelivered else ""
    )
    table.add_row("distinct ids", f"{figures.distinct_ids:,}", "")
    if report.spark:
        spark = report.spark
        table.add_row("read by Spark", f"{spark.rows:,}", f"{spark.seconds:.1f} s with its start and its stream")
        written = f"days by carrier in flight-delays, each once; {spark.batches} micro-batches"
        table.add_row("streamed by Spark", f"{len(spark.daily):,}", written)
    table.add_row("longest gap", f"{sends.longest_gap_ms:,.0f} ms", "between two confirmed sends")
    if traffic.killed:
        back = f"{traffic.back_after_ms / 1_000:.1f} s"
        table.add_row("leader killed", traffic.killed, f"back and caught up {back} after the last ack")
    table.add_row("whole run", f"{report.result['seconds']:.1f} s", "")
    return table


def _files(report: DemoReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_row("", "")
    table.add_row("figures", os.path.relpath(report.result_path))
    for name, path in (report.spark.paths if report.spark else {}).items():
        table.add_row(name.replace("_", " "), os.path.relpath(path))
    table.add_row("", "")
    return table


def curl_lines(endpoint: str, topic: str, group: str, starting: dict[str, int]) -> list[str]:
    """Return three commands that work as printed.
    They read the first message of the run, send one more, and receive that one.
    """
    queue, offset = min(starting.items())
    json_type = "-H 'Content-Type: application/json'"
    return [
        f"curl -s '{endpoint}/v1/topics/{topic}/queues/{queue}/messages?offset={offset}&max_messages=1'",
        f"curl -s '{endpoint}/v1/topics/{topic}/messages' -H 'MQ-Tag: UA' -d 'one more flight'",
        f"curl -s '{endpoint}/v1/topics/{topic}/groups/{group}/receive' {json_type} -d '{{\"wait\": \"5s\"}}'",
    ]
