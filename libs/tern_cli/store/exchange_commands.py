"""`ternmq store export` and `import`: messages to and from the files of Apache RocketMQ."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tern_cli.commands.admin import duration_ms
from tern_cli.endpoint import Endpoint, endpoints
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json
from tern_cli.variables import namespace
from tern_wire.errors import TernError
from tern_wire.names import topic_in

if TYPE_CHECKING:
    from tern_cli.store.rocketmq_import import ImportTally  # only for its type: help must not wait for the SDK

Progress = Callable[[int, int], None]
_SEGMENT_SIZE_DEFAULT_BYTES = 1 << 30


def add_exchange_commands(app: typer.Typer) -> None:
    """Add the commands `export` and `import` to `ternmq store`."""
    app.command("export")(export_store)
    app.command("import")(import_store)


def export_store(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Directory of the new store; must be missing or empty.", show_default=False),
    ],
    *,
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", help="A stopped node's own directory, such as .tern/data/broker-a-0."),
    ],
    segment_size: Annotated[
        int, typer.Option(min=4096, max=0x7FFFFFFF, help="Bytes of a commit-log file (mappedFileSizeCommitLog).")
    ] = _SEGMENT_SIZE_DEFAULT_BYTES,
    queue_entries: Annotated[
        int, typer.Option(min=1, max=100_000_000, help="Entries of a consume-queue file.")
    ] = 300_000,
    index_slots: Annotated[
        int, typer.Option(min=1, max=500_000_000, help="Slots of an index file (maxHashSlotNum).")
    ] = 5_000_000,
    index_entries: Annotated[
        int, typer.Option(min=2, max=100_000_000, help="Entries of an index file (maxIndexNum).")
    ] = 20_000_000,
    output: Output = Format.TABLE,
) -> None:
    """Write the messages of a stopped node as a store that Apache RocketMQ 5 opens and serves.

    The store has all messages of all topics with their offsets, tags, keys and
    properties, and consumer groups with their committed offsets. Every node of a
    broker group holds the same messages: export one of them. Files are sparse.
    DIR appears only once it is complete. With sizes other than RocketMQ's
    defaults the broker needs the printed settings.

    Exit code 0: written. 1: the node runs, was not stopped cleanly, is damaged,
    or the disk is full. 2: DIR is in use.

    [bold]Examples[/bold]

    ternmq down && ternmq store export rocketmq-store --data-dir .tern/data/broker-a-0
    ternmq store export /tmp/store --data-dir .tern/data/broker-a-0 --segment-size 67108864 -o json
    """
    from tern_cli.store.export import export_to  # noqa: PLC0415 - help must not wait for numpy
    from tern_store.rocketmq.store import RocketSettings  # noqa: PLC0415

    settings = RocketSettings(
        segment_size_bytes=segment_size,
        queue_entries=queue_entries,
        index_slots=index_slots,
        index_entries=index_entries,
    )
    summary = export_to(directory, data_dir, settings, _progress)
    if output is Format.JSON:
        show_json(summary)
        return
    typer.echo(
        f"{summary['messages']:,} messages of {summary['topics']} topics in {summary['queues']} queues, "
        f"{summary['bytes']:,} bytes of records, are in {summary['directory']}."
    )
    for name in summary["left_out"]:
        typer.echo(f"Left out: {name}, a name that RocketMQ keeps for a topic of its own.", err=True)
    if summary["settings"]:
        typer.echo("The broker needs these settings:")
        for name, value in summary["settings"].items():
            typer.echo(f"  {name}={value}")


def import_store(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A RocketMQ broker's storePathRootDir.", show_default=False)
    ],
    *,
    topics: Annotated[
        str, typer.Option("--topics", help="Only these topics of the store, separated by commas.", show_default="all")
    ] = "",
    rename: Annotated[
        list[str] | None, typer.Option("--rename", help="OLD=NEW: new name of a topic in the mesh; repeatable.")
    ] = None,
    batch: Annotated[
        int, typer.Option(min=1, max=65_536, help="Messages sent between two updates of the note.")
    ] = 4096,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", help="Note with the progress of the import.", show_default="DIR.ternmq-import.json, beside DIR"
        ),
    ] = None,
    patience: Annotated[str, typer.Option(help="Maximum unavailability of the mesh before the import stops.")] = "30s",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Send the messages of a RocketMQ store into a running mesh.

    The store must be a copy, or belong to a stopped broker. Topics are created
    with their original number of queues. Messages keep their queue and their
    order in it, their body (unpacked), tag, keys and properties. The message id
    and the born time become the properties rocketmq-message-id and
    rocketmq-born-ms. Left out and counted: RocketMQ's own topics, retries and
    dead letters of groups, and messages that wait for a delivery time or a
    transaction.

    A note beside DIR records the progress: when repeated, the command continues
    from there. Message ids are idempotency keys, so even without the note no
    message is stored twice within the ten minutes for which a mesh keeps these
    keys.

    Exit code 0: all imported. 1: the mesh cannot be reached, the store is
    damaged, or messages were refused. 2: wrong usage.

    [bold]Examples[/bold]

    ternmq store import /var/rocketmq/store
    ternmq store import store --topics orders,payments --rename '%DLQ%billing=billing-dead' -o json
    """
    from tern_cli.store.rocketmq_import import ImportChoice, RocketImport, send_failed  # noqa: PLC0415
    from tern_cli.store.rocketmq_log import RocketLog  # noqa: PLC0415

    log, proxies = RocketLog(directory), endpoints(endpoint)  # first: a context may bring the namespace
    choice = ImportChoice(
        topics=frozenset(name.strip() for name in topics.split(",") if name.strip()),
        renamed=_renamed(rename or []),
        namespace=namespace(),
        round_messages=batch,
    )
    place = directory.absolute()
    note = state or place.with_name(f"{place.name}.ternmq-import.json")
    job = RocketImport(log, choice, proxies, note, patience_ms=duration_ms("--patience", patience))
    was_done = job.done
    if not was_done:
        try:
            with _progress(log.end - job.position, "Importing", in_bytes=True) as progress:
                job.run(progress)
        except TernError as error:
            raise send_failed(error, note) from error
    _show_import(job.tally, note, output, was_done=was_done)
    if job.tally.refused:
        raise typer.Exit(1)


def _show_import(tally: "ImportTally", note: Path, output: Format, *, was_done: bool) -> None:
    if output is Format.JSON:
        show_json({"already_done": was_done, "state": str(note), **asdict(tally)})
        return
    if was_done:
        typer.echo(f"This import is done already, according to {note}; remove that file to send everything again.")
    again = f", {tally.replayed:,} of them were there already" if tally.replayed else ""
    typer.echo(f"{tally.messages:,} messages are in {len(tally.topics)} topics{again}.")
    for reason, count in sorted(tally.skipped.items()):
        typer.echo(f"Skipped: {count:,} of {reason}.", err=True)
    for refusal in tally.refusals:
        typer.echo(f"Refused: {refusal}", err=True)
    if tally.refused > len(tally.refusals):
        typer.echo(f"Refused: {tally.refused - len(tally.refusals):,} more.", err=True)


def _renamed(pairs: list[str]) -> dict[str, str]:
    for pair in pairs:
        old, _, new = pair.partition("=")
        if not old or not new:
            raise CommandFailed("Not a new name", f"--rename '{pair}' should look like OLD=NEW.", exit_code=2)
        topic_in("", new)
    return {pair.partition("=")[0]: pair.partition("=")[2] for pair in pairs}


@contextmanager
def _progress(total: int, title: str, *, in_bytes: bool = False) -> Iterator[Progress]:
    """Show a bar of messages or bytes on stderr; nothing when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _messages, _size_bytes: None
        return
    from rich.console import Console  # noqa: PLC0415 - rich costs 30 ms, scripts need none of it
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TimeRemainingColumn  # noqa: PLC0415
    from rich.progress import Progress as Bar  # noqa: PLC0415

    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    with Bar(title, BarColumn(), count, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda messages, size_bytes: bar.advance(task, size_bytes if in_bytes else messages)
