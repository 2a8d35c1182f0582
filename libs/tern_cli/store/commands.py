"""`ternmq store dump`: what is in the files of a store, one line per record."""

import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tern_cli.failures import CommandFailed

store_app = typer.Typer(no_args_is_help=True, help="Look into the files of a store; nothing needs to run.")


class StoreFormat(StrEnum):
    """Whose files they are."""

    ROCKETMQ = "rocketmq"


class DumpOutput(StrEnum):
    """What `-o` takes here: a store has more records than one JSON document should hold, so lines are the default."""

    NDJSON = "ndjson"
    JSON = "json"
    TABLE = "table"


class FileKind(StrEnum):
    """The three kinds of big files, named after the folders in which RocketMQ keeps them."""

    COMMIT_LOG = "commitlog"
    CONSUME_QUEUE = "consumequeue"
    INDEX = "index"


@store_app.callback()
def store() -> None:
    """Look into the files of a store; nothing needs to run."""


@store_app.command()
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files, shown one after the other.")],
    *,
    format: Annotated[StoreFormat, typer.Option("--format", help="Whose files they are.", show_default=False)],
    kind: Annotated[
        FileKind | None,
        typer.Option("--kind", help="What the files are, where path and content do not tell.", show_default=False),
    ] = None,
    index_slots: Annotated[
        int, typer.Option("--index-slots", min=0, help="maxHashSlotNum of an index file; 0: a quarter of its entries.")
    ] = 0,
    output: Annotated[
        DumpOutput,
        typer.Option("-o", "--output", help="A JSON line per record, one JSON array, or a table for people."),
    ] = DumpOutput.NDJSON,
) -> None:
    """Show the records of a RocketMQ broker's files: commit log, consume queue or index, in file order, blanks left out.

    Of a copy, or of a broker that is stopped: files that are being written end where the broker was. What a file is follows
    from its folder (commitlog, consumequeue, index), else from its content. A consume queue's lines say where its records
    lie, an index's first line is its header. Bodies are unpacked and in base64; storedBodyCRC32Masked is computed, and
    differs from bodyCRC where a body is damaged. Memory stays small whatever the file's size.

    Exit code 0: all shown; 1: damaged, with the byte at which; 2: no such file, or not a file of RocketMQ's.

    [bold]Examples[/bold]

    ternmq store dump --format rocketmq store/commitlog/00000000000000000000 | jq -r .topic | sort | uniq -c
    ternmq store dump --format rocketmq store/commitlog/* -o table
    ternmq store dump --format rocketmq store/consumequeue/orders/0/*
    """
    del format  # there is one
    from tern_cli.store.rocketmq_files import open_rocketmq_file  # noqa: PLC0415 - help must not wait for numpy
    from tern_cli.store.rocketmq_lines import json_lines, ndjson_lines, table_lines  # noqa: PLC0415

    opened = [open_rocketmq_file(path, kind, index_slots) for path in files]

    def documents() -> Iterator[dict[str, Any]]:
        for file in opened:
            yield from file.documents()

    lines: Iterator[bytes]
    if output is DumpOutput.TABLE:
        lines = (line for file in opened for line in table_lines(file.kind, file.path, file.documents()))
    else:
        lines = json_lines(documents()) if output is DumpOutput.JSON else ndjson_lines(documents())
    try:
        for line in lines:
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except CommandFailed:
        sys.stdout.buffer.flush()
        raise
    except BrokenPipeError as stop:
        # `| head` has seen enough: that is no failure, and nothing may be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from stop
