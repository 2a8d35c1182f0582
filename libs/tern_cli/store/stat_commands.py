"""`ternmq store stat`: the size of a node's directory, by kind of contents."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.readable import head, shown, shown_time


def stat_store(
    data_dir: Annotated[
        Path, typer.Option("--data-dir", help="A node's directory, such as .tern/data/broker-a-0.", show_default=False)
    ],
    *,
    output: Output = Format.TABLE,
) -> None:
    """Show sizes and counts of a node's directory: files, log, queues, index, timers, states.

    The command is fast, since it reads no messages, and also works while the node
    runs. `size` is the length of the files, `on_disk` the space they occupy:
    segments are allocated whole and filled later. Queues, index and timers are
    counted as of the newest saved state; the log is followed to its end. Nothing
    is verified: use `ternmq store verify` for that.

    Exit code 0: shown. 1: a part cannot be read, with the reason. 2: not a node's
    directory.

    [bold]Examples[/bold]

    ternmq store stat --data-dir .tern/data/broker-a-0
    ternmq store stat --data-dir .tern/data/broker-a-0 -o json | jq '.topics | map(.messages) | add'
    """
    from tern_cli.store.native_dump import open_node  # noqa: PLC0415 - help must not wait for numpy
    from tern_cli.store.stat_facts import facts_of  # noqa: PLC0415

    node = open_node(data_dir)
    facts = facts_of(node)
    if output is Format.JSON:
        show_json(facts)
    else:
        log = facts["log"]
        show_rows(facts["files"], ["kind", "files", "size", "on_disk"], Format.TABLE, title="Files (bytes)")
        show_rows(_lines(log), ["", "value"], Format.TABLE, title="Log")
        if facts["topics"]:
            show_rows(
                facts["topics"], ["topic", "topic_id", "queue", "min", "end", "messages"], Format.TABLE, title="Queues"
            )
        if facts["index"]:
            columns = ["file", "entries", "begin_position", "end_position"]
            show_rows(facts["index"], columns, Format.TABLE, title="Key index")
        if facts["states"]:
            show_rows(
                facts["states"], ["file", "index", "term", "position", "size"], Format.TABLE, title="Saved states"
            )
        pending = "unknown" if facts["timers_pending"] is None else f"{facts['timers_pending']:,}"
        keys = "unknown" if facts["sealed_keys"] is None else f"{facts['sealed_keys']:,}"
        typer.echo(
            f"Timers that wait: {pending}. Idempotency keys in files: {keys}. Stopped in order: {shown('is_clean', facts['is_clean'])}."
        )
        for problem in facts["problems"]:
            typer.echo(f"{typer.style('problem:', fg='red')} {problem}", err=True)
    if facts["problems"]:
        raise typer.Exit(1)


def _lines(log: dict[str, Any]) -> list[dict[str, str]]:
    """Return the log's facts for people: times as dates, numbers with separators."""
    lines = []
    for name, value in log.items():
        text = "unknown" if value is None else f"{value:,}" if type(value) is int else shown(name, value)
        if name.endswith("_ms") and value is not None:
            # In the log's facts these are points in time.
            text = shown_time(value)
        lines.append({"": head(name), "value": text})
    return lines
