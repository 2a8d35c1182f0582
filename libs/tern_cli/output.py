"""What commands print: tables or JSON on stdout, failures and warnings on stderr. Colours only at a terminal (rich decides)."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer


class Format(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[
    Format,
    typer.Option("-o", "--output", help="A table for people or JSON for programs; failures are then JSON on stderr."),
]


def show_json(document: Any) -> None:
    """*document*, indented, on stdout."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def show_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str], output: Format, *, title: str = "") -> None:
    """*rows* as a table of *columns* (keys of the rows, headed by themselves), or as a JSON array of whole rows."""
    if output is Format.JSON:
        show_json(list(rows))
        return
    from rich import box  # noqa: PLC0415 - rich costs 30 ms, JSON needs none of it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        number = bool(rows) and all(isinstance(row[column], int) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(row[column]) for column in columns))
    # In a pipe there is no width to fit into: lines must not be folded.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def shown_time(time_ms: int) -> str:
    """A time for people, UTC; "" for none (0)."""
    if not time_ms:
        return ""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def show_failure(title: str, detail: str, lines: Sequence[str] = (), *, code: str = "", as_json: bool = False) -> None:
    """On stderr what is wrong, and what to do: two lines and *lines*, or one line of JSON. Never a traceback."""
    if as_json:
        error: dict[str, Any] = {"title": title, "detail": detail}
        if code:
            error["code"] = code
        if lines:
            error["lines"] = list(lines)
        typer.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
        return
    typer.echo(typer.style("error: ", fg="red", bold=True) + typer.style(title, bold=True), err=True)
    typer.echo(f"  {detail}", err=True)
    for line in lines:
        typer.echo(f"  {line}", err=True)


def show_warning(text: str) -> None:
    """A line on stderr about what went on although it was not as it should be."""
    typer.echo(typer.style("warning: ", fg="yellow", bold=True) + text, err=True)
