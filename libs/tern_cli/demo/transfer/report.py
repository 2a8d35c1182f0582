"""What the transfers show at their end: where the money is, what was crashed and killed, and the proof."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tern_cli.demo.transfer.proof import Books
from tern_cli.output import show_json

_WIDTH_WITHOUT_TERMINAL = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferReport:
    """One run, to be shown. *settle_s*: from the first transfer to the last that bank A has settled; *seconds*: all of it."""

    books: Books
    # Of the producer group, as its broker groups count.
    stats: Mapping[str, int]
    seed: int
    crashes: Mapping[str, int]
    killed: Mapping[str, str]
    settle_s: float
    seconds: float
    asked_by: str
    producer_group: str
    group: str
    folder: Path
    differences: Sequence[str]


def result_document(report: TransferReport) -> dict[str, Any]:
    """The figures of transfer.json. `proved` is true when no promise was broken; `differences` names those that were."""
    books = report.books
    return {
        "transfers": books.transfers,
        "debited": len(books.debits),
        "refused": books.refused,
        "credited": len(books.credits),
        "messages": len(books.deliveries),
        "redelivered": _redelivered(books),
        "opening_cents": books.opening_cents,
        "closing_cents": books.total_cents,
        "moved_cents": sum(books.balances_b.values()),
        "producer_crashes": dict(report.crashes),
        "checks": report.stats["checks"],
        "transactions_committed": books.committed,
        "transactions_rolled_back": report.stats["rolled_back"],
        "transactions_open": books.open,
        "transactions_expired": books.expired,
        "killed": dict(report.killed),
        "asked_by": report.asked_by,
        "seed": report.seed,
        "transfers_per_s": round(books.transfers / max(report.settle_s, 1e-3), 1),
        "seconds": round(report.seconds, 3),
        "producer_group": report.producer_group,
        "group": report.group,
        "proved": not report.differences,
        "differences": list(report.differences),
    }


def show_report(report: TransferReport, result: Mapping[str, Any], *, as_json: bool) -> None:
    """On stdout: a table and the proof, or *result* as JSON."""
    if as_json:
        show_json(dict(result))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    console.print()
    console.print(_summary(report, result))
    console.print()
    if not report.differences:
        console.print(Text(_proof(report.books), style="bold green"))
    console.print("\nThe mesh stays up. Try:")
    bank = os.path.relpath(report.folder / "bank-a.db")
    for line in (
        f"ternmq tx stats {report.producer_group}",
        f"ternmq group lag {report.group}",
        f"sqlite3 {bank} 'SELECT SUM(balance_cents) FROM accounts'",  # noqa: S608 - shown, not run
    ):
        console.print(f"  {line}", soft_wrap=True, markup=False)


def _summary(report: TransferReport, result: Mapping[str, Any]) -> Table:
    books, crashes = report.books, report.crashes
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    table.add_row("transfers", f"{books.transfers:,}", f"{result['transfers_per_s']:,.0f}/s, seed {report.seed}")
    table.add_row("  debited at A", f"{len(books.debits):,}", f"{_money(result['moved_cents'])} moved")
    table.add_row("  refused at A", f"{books.refused:,}", "not so much in the account: rolled back")
    table.add_row("credited at B", f"{len(books.credits):,}", f"group {report.group}")
    if again := result["redelivered"]:
        table.add_row("redelivered", f"{again:,}", "leases whose ack came too late; credited once")
    if crashes:
        where = ", ".join(f"{count} x {stage}" for stage, count in sorted(crashes.items()))
        table.add_row("producer crashes", f"{sum(crashes.values())}", f"SIGKILL when {where}")
    table.add_row("checks", f"{report.stats['checks']:,}", f"by {report.asked_by}: what became of your transaction?")
    table.add_row("transactions", f"{books.committed:,}", f"committed, {report.stats['rolled_back']:,} rolled back")
    for what, name in report.killed.items():
        table.add_row(f"{what} killed", name, "")
    table.add_row("money before", _money(books.opening_cents), "")
    table.add_row("money after", _money(books.total_cents), f"{_money(sum(books.balances_a.values()))} at A")
    table.add_row("whole run", f"{report.seconds:.1f} s", "")
    table.add_row("files", "", os.path.relpath(report.folder))
    return table


def _proof(books: Books) -> str:
    debited = f"{len(books.debits):,}"
    return (
        f"Proved: not a cent is lost or made; each of {debited} debits was delivered as exactly one message and credited once, to the same "
        "account and amount; nothing that rolled back was delivered; no transaction is left open."
    )


def _redelivered(books: Books) -> int:
    return sum(one.deliveries for one in books.deliveries) - len(books.deliveries)


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"
