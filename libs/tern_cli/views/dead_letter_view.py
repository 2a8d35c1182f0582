"""Dead letters and redrives as people and programs see them, and the lists of letters to redrive.

A list is NDJSON, a letter a line, as `ternmq spark run dlq --redrive FILE` writes it:

    {"group":"billing","offset":"broker-a:17"}
"""

import base64
from collections.abc import Iterable
from typing import Any

import msgspec
import typer

from tern_cli.failures import CommandFailed
from tern_cli.output import Format, show_json, show_rows

TASK_COLUMNS = ("task", "group", "state", "total", "examined", "redriven", "skipped", "failed")


class ListedLetter(msgspec.Struct, frozen=True):
    """A line of a list."""

    group: str
    offset: str


def read_list(lines: Iterable[bytes], name: str) -> dict[str, list[str]]:
    """Return the offsets of a list by group, each once. CommandFailed for the first bad line;
    *name*: of the file.
    """
    found: dict[str, dict[str, None]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            letter = msgspec.json.decode(line, type=ListedLetter)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CommandFailed("This is no list of dead letters", f"{name}, line {number}: {error}.") from error
        found.setdefault(letter.group, {})[letter.offset] = None
    return {group: list(offsets) for group, offsets in sorted(found.items())}


def show_tasks(tasks: list[dict[str, Any]], output: Format) -> None:
    """Show redrives, and the letters that they could not redrive."""
    if output is Format.JSON:
        show_json(tasks[0] if len(tasks) == 1 else {"tasks": tasks})
        return
    show_rows([{name: task[name] for name in TASK_COLUMNS} for task in tasks], TASK_COLUMNS, output)
    for task in tasks:
        for failure in task["failures"]:
            typer.echo(f"{failure['offset']}: {failure['error']['detail']}")


def letter_row(message: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a letter for a table."""
    dlq = message["dlq"]
    origin = dlq["origin"]
    facts = {name: dlq[name] for name in ("attempts", "cause", "reason", "dead_at")}
    return {
        "offset": dlq["offset"],
        "topic": origin["topic"],
        "queue": origin["queue"],
        "at": origin["offset"],
        **facts,
    }


def readable_letter(message: dict[str, Any]) -> dict[str, Any]:
    """Return *message* with its body as text where it is UTF-8."""
    body = message["body"]
    try:
        return {**message, "body": body.decode()}
    except UnicodeDecodeError:
        return {
            **{name: value for name, value in message.items() if name != "body"},
            "body_base64": base64.b64encode(body).decode(),
        }
