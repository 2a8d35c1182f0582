"""`ternmq scheduled ls` and `cancel`: messages that wait for their delivery time."""

from typing import Annotated, Any

import typer

from tern_cli.commands.admin import Topic
from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows
from tern_wire.limits import SCHEDULED_LISTED_MAX
from tern_wire.times import parse_time_ms

scheduled_app = typer.Typer(no_args_is_help=True, help="List and cancel messages that wait for their delivery time.")


@scheduled_app.command(name="ls")
def list_scheduled(
    topic: Topic,
    *,
    begin: Annotated[
        str,
        typer.Option("--from", help="Delivered at this time or later: RFC 3339, or ms since 1970.", show_default=False),
    ] = "",
    end: Annotated[str, typer.Option("--to", help="Delivered before this time.", show_default=False)] = "",
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Maximum number.")] = 100,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """List the messages of a topic that wait for their delivery time, the earliest first.

    [bold]Examples[/bold]

    ternmq scheduled ls orders
    ternmq scheduled ls orders --to 2026-01-31T12:00:00Z -n 1000 -o json
    """
    from tern_client import ScheduledMessage  # noqa: PLC0415 - help must not wait for the SDK

    begin_ms, end_ms = time_ms_of(begin, "--from") or 0, time_ms_of(end, "--to")
    found: list[ScheduledMessage] = []
    cursor, is_more = "", True
    with administration(endpoint) as admin:
        while is_more and len(found) < count:
            limit = min(count - len(found), SCHEDULED_LISTED_MAX)
            page = admin.scheduled(topic, begin_ms=begin_ms, end_ms=end_ms, limit=limit, cursor=cursor)
            found += page.messages
            cursor, is_more = page.next_cursor, bool(page.next_cursor)
    rows: list[dict[str, Any]] = [
        {
            "deliver_at": message.deliver_at,
            "message_id": message.message_id,
            "queue": message.queue,
            "tag": message.tag,
            "keys": list(message.keys),
            "body_size": message.body_size,
            "recall_handle": message.recall_handle,
        }
        for message in found
    ]
    if output is Format.JSON:
        show_json(rows)
        return
    show_rows(rows, ("deliver_at", "message_id", "queue", "tag", "keys", "body_size", "recall_handle"), output)
    typer.echo(f"{len(rows)} messages wait" + (", and more." if is_more else "."))


@scheduled_app.command(name="cancel")
def cancel_scheduled(
    topic: Topic,
    recall_handle: Annotated[
        str, typer.Argument(help="The handle that `ternmq send` or `ternmq scheduled ls` printed.")
    ],
    endpoint: Endpoint = "",
) -> None:
    """Cancel the delivery of a scheduled message. Exit code 1 when it is too late.

    [bold]Examples[/bold]

    ternmq scheduled cancel orders AQAAAZ...
    """

    with administration(endpoint) as admin:
        admin.recall(topic, recall_handle)
    typer.echo("The message will not be delivered.")


def time_ms_of(text: str, option: str) -> int | None:
    """Return the value *text* of *option* as ms since 1970; None when empty.
    CommandFailed (exit 2) when it is not a time.
    """
    if not text:
        return None
    try:
        return parse_time_ms(text)
    except ValueError as error:
        raise CommandFailed("Not a time", f"{option}: {error}.", exit_code=2) from error
