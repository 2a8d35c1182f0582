"""`ternmq msg get|find|trace`, `ternmq group lag|seek`, `ternmq topic stats`.

Commands that look up stored messages and the progress of groups.
"""

import base64
from typing import Annotated, Any

import typer

from tern_cli.commands.admin import Group, Topic
from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_facts, show_json, show_rows
from tern_cli.readable import shown_time
from tern_wire.limits import QUERY_MESSAGES_MAX
from tern_wire.times import duration_text

msg_app = typer.Typer(no_args_is_help=True, help="Inspect single messages: get, find, trace.")

MessageId = Annotated[str, typer.Argument(help="The message's id.", show_default=False)]
_MESSAGE_COLUMNS = ("message_id", "queue", "offset", "tag", "keys", "stored_at", "body")
_TIME_HELP = "Ms since 1970, or a time such as 2026-01-31T12:00:00Z."


@msg_app.command("get")
def get_message(topic: Topic, message_id: MessageId, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show one message by its id.

    [bold]Examples[/bold]

    ternmq msg get orders 7F0000011A2B3C4D5E6F000000000001
    """

    with administration(endpoint) as admin:
        message = _readable(admin.message(topic, message_id))
    if output is Format.JSON:
        show_json(message)
    else:
        show_facts(message)


@msg_app.command("find")
def find_messages(
    topic: Topic,
    key: Annotated[str, typer.Argument(help="A full key of the messages.", show_default=False)],
    *,
    begin: Annotated[str, typer.Option("--from", help=f"Stored at this time or later. {_TIME_HELP}")] = "",
    end: Annotated[str, typer.Option("--to", help=f"Stored at this time or before. {_TIME_HELP}")] = "",
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=QUERY_MESSAGES_MAX, help="Maximum number.")] = 32,
    cursor: Annotated[str, typer.Option("--cursor", help="Continue after a page: its next_cursor.")] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Find messages by key, newest first.

    [bold]Examples[/bold]

    ternmq msg find orders 4711
    ternmq msg find orders 4711 --from 2026-01-31T12:00:00Z -o json
    """

    with administration(endpoint) as admin:
        page = admin.find(topic, key, begin=begin, end=end, limit=limit, cursor=cursor)
    messages = [_readable(message) for message in page["messages"]]
    if output is Format.JSON:
        show_json({**page, "messages": messages})
        return
    rows = [{column: message.get(column, "") for column in _MESSAGE_COLUMNS} for message in messages]
    show_rows(rows, _MESSAGE_COLUMNS, output)
    if page.get("next_cursor"):
        typer.echo(f"There may be more: --cursor {page['next_cursor']}")


@msg_app.command("trace")
def trace_message(topic: Topic, message_id: MessageId, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show where a message is stored, and its state in each consumer group.

    [bold]Examples[/bold]

    ternmq msg trace orders 7F0000011A2B3C4D5E6F000000000001
    """

    with administration(endpoint) as admin:
        found = admin.trace(topic, message_id)
    if output is Format.JSON:
        show_json(found)
        return
    place = (
        f"{found['queue']} at offset {found['offset']}" if "offset" in found else f"{found['queue']}, not visible now"
    )
    typer.echo(f"Stored in {place}, at {shown_time(found['stored_at'])}.")
    columns = ("group", "state", "attempts", "until", "reason")
    show_rows([{column: group.get(column, "") for column in columns} for group in found["groups"]], columns, output)


def show_lag(
    group: Group,
    topic: Annotated[
        str, typer.Option("-t", "--topic", help="Only this topic; by default all that the group reads.")
    ] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show the lag of a consumer group, in messages and in seconds.

    [bold]Examples[/bold]

    ternmq group lag billing
    ternmq group lag billing --topic orders -o json
    """

    with administration(endpoint) as admin:
        document = admin.lag(group, topic)
    if output is Format.JSON:
        show_json(document)
        return
    columns = ("topic", "queue", "committed", "max_offset", "lag", "lag_ms", "leased", "resting", "dying")
    rows = [{**queue, "topic": part["topic"]} for part in document["topics"] for queue in part["queues"]]
    show_rows(rows, columns, output)
    typer.echo(
        f"{document['lag']} messages behind, {duration_text(document['lag_ms'])}; {document['dead_letters']} dead letters."
    )


def seek_group(
    group: Group,
    topic: Topic,
    *,
    to: Annotated[str, typer.Option("--to", help=f"earliest, latest, or a time. {_TIME_HELP}")] = "",
    shift: Annotated[int, typer.Option("--shift", help="Messages forward, or backward if negative.")] = 0,
    offset: Annotated[
        list[str] | None, typer.Option("--offset", help="queue=offset, such as broker-a:3=42; repeatable.")
    ] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", help="Only this queue; repeatable.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the new offsets, and move nothing.")] = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Move a consumer group to another position in a topic.

    Messages in flight are delivered again or skipped, depending on the new
    position. Preview the move with --dry-run.

    [bold]Examples[/bold]

    ternmq group seek billing orders --to earliest --dry-run
    ternmq group seek billing orders --to 2026-01-31T12:00:00Z
    ternmq group seek billing orders --shift -1000
    ternmq group seek billing orders --offset broker-a:3=42
    """

    if sum(map(bool, (to, shift, offset))) != 1:
        raise CommandFailed("Where to?", "Give exactly one of --to, --shift and --offset.", exit_code=2)
    place: Any = to if to in {"earliest", "latest"} else {"time": to}
    if shift:
        place = {"shift": shift}
    elif offset:
        place = {"offsets": _offsets(offset)}
    with administration(endpoint) as admin:
        rows = admin.seek(group, topic, place, queues=queue or None, dry_run=dry_run)
    if output is Format.JSON:
        show_json({"group": group, "topic": topic, "dry_run": dry_run, "queues": rows})
        return
    show_rows(rows, ("queue", "before", "after"), output)
    typer.echo("Nothing was moved." if dry_run else f"{group} continues there.")


def show_topic_stats(topic: Topic, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show the size of a topic, and its rates of incoming and outgoing messages.

    The rates are averages of the last minute.

    [bold]Examples[/bold]

    ternmq topic stats orders
    """

    with administration(endpoint) as admin:
        document = admin.topic_stats(topic)
    if output is Format.JSON:
        show_json(document)
        return
    columns = ("queue", "min_offset", "max_offset", "messages", "in_messages_per_s", "last_visible_at")
    show_rows(document["queues"], columns, output)
    flows = ", ".join(
        f"{way} {document[way]['messages_per_s']:.1f} messages/s and {document[way]['bytes_per_s'] / 1_000:.1f} kB/s"
        for way in ("in", "out")
    )
    waiting = f", {document['scheduled']} wait for their time" if document["scheduled"] else ""
    typer.echo(f"{document['messages']} messages{waiting}; {flows}; groups: {', '.join(document['groups']) or 'none'}.")


def _offsets(pairs: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pair in pairs:
        name, _, number = pair.rpartition("=")
        if not name or not number.isdecimal() or not number.isascii():
            raise CommandFailed("Not an offset", f"'{pair}' should look like broker-a:3=42.", exit_code=2)
        found[name] = int(number)
    return found


def _readable(message: dict[str, Any]) -> dict[str, Any]:
    """Return *message* with its body as text, or as `body_base64` when it is not UTF-8."""
    body = message.pop("body", b"")
    try:
        return {**message, "body": body.decode()}
    except UnicodeDecodeError:
        return {**message, "body_base64": base64.b64encode(body).decode()}
