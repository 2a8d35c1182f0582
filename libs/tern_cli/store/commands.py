"""`ternmq store`: its commands, and `dump`.

`dump` shows the contents of the files of a node or of a RocketMQ broker, one line per item.
"""

import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tern_cli.failures import CommandFailed
from tern_cli.store.exchange_commands import add_exchange_commands
from tern_cli.store.file_kinds import FileKind
from tern_cli.store.native_selection import Selection, What, select
from tern_cli.store.stat_commands import stat_store
from tern_cli.store.verify_commands import verify_store

store_app = typer.Typer(no_args_is_help=True, help="Inspect the files of a store; no process needs to run.")
add_exchange_commands(store_app)


class StoreFormat(StrEnum):
    """Owner of the files' format."""

    TERNMQ = "ternmq"
    ROCKETMQ = "rocketmq"


class DumpOutput(StrEnum):
    """Values of `-o` for `dump`.
    A store has more records than one JSON document should hold, so lines are the default.
    """

    NDJSON = "ndjson"
    JSON = "json"
    TABLE = "table"


@store_app.callback()
def store() -> None:
    """Inspect the files of a store; no process needs to run."""


store_app.command("verify")(verify_store)
store_app.command("stat")(stat_store)


@store_app.command()
def dump(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH]...", help="Files, shown one after the other; or a node's directory."),
    ] = None,
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="A node's directory, such as .tern/data/broker-a-0.", show_default=False),
    ] = None,
    what: Annotated[
        What | None,
        typer.Option(
            "--what",
            help="Part of a node to show; by default records, or the part of the given file.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", help="Only this topic: its name or id.", show_default=False)
    ] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Only this queue.", show_default=False)] = None,
    first: Annotated[
        int | None,
        typer.Option(
            "--from",
            min=0,
            help="First item: an entry's index; a record's position, or its offset with --topic and --queue; an offset of "
            "queues; a number in index files; a delivery time (ms) of timers.",
            show_default=False,
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="Maximum number of lines.", show_default=False)
    ] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="Show records with their stored bodies, in base64.")] = False,
    format: Annotated[StoreFormat, typer.Option("--format", help="Format of the files.")] = StoreFormat.TERNMQ,
    kind: Annotated[
        FileKind | None,
        typer.Option(
            "--kind", help="Kind of RocketMQ's files, if path and content do not determine it.", show_default=False
        ),
    ] = None,
    index_slots: Annotated[
        int,
        typer.Option(
            "--index-slots", min=0, help="maxHashSlotNum of RocketMQ's index file; 0: a quarter of its entries."
        ),
    ] = 0,
    output: Annotated[
        DumpOutput,
        typer.Option("-o", "--output", help="A JSON line per record, one JSON array, or a table for people."),
    ] = DumpOutput.NDJSON,
) -> None:
    """Show the contents of a node's directory, or of an Apache RocketMQ broker's files.

    Changes nothing.

    [bold]A node of TernMQ[/bold]: --what selects entries (of the Raft log, with
    their commands), records (messages), queues (the record of each offset),
    index (of keys), timers (scheduled messages) or state (saved states). The
    command also works after a crash, and on a damaged log up to the damage.
    While the node runs, the end of the log moves. A file of commitlog/,
    consumequeue/, index/ or state/ as PATH shows that file.

    [bold]RocketMQ[/bold]: --format rocketmq with commit log, consume queue or
    index files, of a copy or of a stopped broker. Lines are in file order and
    blanks are left out. The folder of a file determines its kind, else its
    content does. Lines of a consume queue have the positions of its records; the
    first line of an index is its header. Bodies are unpacked and in base64.
    storedBodyCRC32Masked is computed, and differs from bodyCRC when a body is
    damaged.

    Memory use stays small for files of any size. Exit code 0: everything was
    shown. 1: damage, with its byte position. 2: no such file, or not a file of a
    store.

    [bold]Examples[/bold]

    ternmq store dump --data-dir .tern/data/broker-a-0 -o table
    ternmq store dump --data-dir .tern/data/broker-a-0 --topic orders --queue 3 --from 1000 --bodies
    ternmq store dump --data-dir .tern/data/broker-a-0 --what entries | jq -r '.commands[].kind'
    ternmq store dump .tern/data/broker-a-0/consumequeue/7/0/00000000000000000000 -o table
    ternmq store dump --format rocketmq store/commitlog/00000000000000000000 | jq -r .topic
    ternmq store dump --format rocketmq store/consumequeue/orders/0/*
    """
    if format is StoreFormat.ROCKETMQ:
        if not files:
            raise CommandFailed("Nothing to show", "Name RocketMQ's files, such as store/commitlog/*.", exit_code=2)
        _print(_rocketmq_lines(files, kind, index_slots, output))
        return
    base = Selection(what=what or What.RECORDS, topic=topic, queue=queue, first=first, count=count, bodies=bodies)
    directory, selections = select(files or [], data_dir, base if what is not None else None, base)
    _print(_native_lines(directory, selections, output))


def _native_lines(directory: Path, selections: list[Selection], output: DumpOutput) -> Iterator[bytes]:
    from tern_cli.store.native_dump import dumped, open_node, table  # noqa: PLC0415 - help must not wait for numpy
    from tern_cli.store.rocketmq_lines import json_lines, ndjson_lines  # noqa: PLC0415

    node = open_node(directory)
    if output is DumpOutput.TABLE:
        return table(node, selections)
    found = dumped(node, selections)
    return json_lines(found) if output is DumpOutput.JSON else ndjson_lines(found)


def _rocketmq_lines(files: list[Path], kind: FileKind | None, index_slots: int, output: DumpOutput) -> Iterator[bytes]:
    from tern_cli.store.rocketmq_files import open_rocketmq_file  # noqa: PLC0415 - help must not wait for numpy
    from tern_cli.store.rocketmq_lines import json_lines, ndjson_lines, table_lines  # noqa: PLC0415

    opened = [open_rocketmq_file(path, kind, index_slots) for path in files]

    def documents() -> Iterator[dict[str, Any]]:
        for file in opened:
            yield from file.documents()

    if output is DumpOutput.TABLE:
        return (line for file in opened for line in table_lines(file.kind, file.path, file.documents()))
    return json_lines(documents()) if output is DumpOutput.JSON else ndjson_lines(documents())


def _print(lines: Iterator[bytes]) -> None:
    """Write all lines to stdout, and flush them before a failure is reported."""
    try:
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except CommandFailed:
        sys.stdout.buffer.flush()
        raise
    except BrokenPipeError as stop:
        # The reader of a pipe such as `| head` has closed it. That is no failure, and nothing may
        # be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from stop
