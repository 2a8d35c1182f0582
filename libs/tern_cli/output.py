"""Output of commands: tables or JSON on stdout, failures and warnings on stderr.

rich enables colours only on a terminal.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from tern_cli.readable import head, is_time, shown


class Format(StrEnum):
    """Values of `-o`."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[
    Format,
    typer.Option("-o", "--output", help="A table for people or JSON for programs; failures are then JSON on stderr."),
]


def show_json(document: Any) -> None:
    """Print *document*, indented, to stdout."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def show_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str], output: Format, *, title: str = "") -> None:
    """Print *rows* as a table of *columns*, or as a JSON array of whole rows.
    Columns are keys of the rows and their own headings. A table formats each value by its column's
    name (readable.py); JSON has raw values.
    """
    if output is Format.JSON:
        show_json(list(rows))
        return
    from rich import box  # noqa: PLC0415 - rich costs 30 ms, JSON needs none of it
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        number = bool(rows) and not is_time(column) and all(type(row[column]) is int for row in rows)
        table.add_column(head(column), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(column, row[column])) for column in columns))
    # A pipe has no width to fit into: lines must not be folded.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def show_facts(facts: Mapping[str, Any], *, title: str = "") -> None:
    """Print *facts* for people, one line each with name and value."""
    rows = [{"field": head(name), "value": shown(name, value)} for name, value in facts.items()]
    show_rows(rows, ("field", "value"), Format.TABLE, title=title)


def show_failure(title: str, detail: str, lines: Sequence[str] = (), *, code: str = "", as_json: bool = False) -> None:
    """Print a problem and its remedy to stderr: two lines and *lines*, or one line of JSON.
    A traceback is never printed.
    """
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
    """Print a warning to stderr about a step that continued despite a problem."""
    typer.echo(typer.style("warning: ", fg="yellow", bold=True) + text, err=True)
