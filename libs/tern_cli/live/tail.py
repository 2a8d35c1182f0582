"""`ternmq tail`: the messages of a topic as they come."""

import sys
from typing import Annotated

import typer

from tern_cli.commands.admin import Topic
from tern_cli.endpoint import Endpoint, endpoints
from tern_cli.failures import CommandFailed
from tern_cli.live.lines import json_of, line_of, plain
from tern_cli.output import Format, Output, show_warning
from tern_cli.variables import namespace


def tail(
    topic: Topic,
    *,
    since: Annotated[
        str, typer.Option("--since", help="Begin so long ago (10m), or at a time: RFC 3339, or ms since 1970.")
    ] = "",
    earliest: Annotated[bool, typer.Option("--earliest", help="Begin with the oldest message that is kept.")] = False,
    tags: Annotated[str, typer.Option("--tags", help="Only messages with these tags: 'A || B'.")] = "",
    sql: Annotated[str, typer.Option("--sql", help="Only messages whose properties satisfy this condition.")] = "",
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="End after so many messages; 0: never.")] = 0,
    idle: Annotated[
        str, typer.Option("--idle", help="End when no message has come for so long, such as 2s; 0s: at the end.")
    ] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show the messages of a topic as they come, until Ctrl-C.

    No group is needed, and nothing is changed. A lost proxy is no event: with several endpoints
    the next one continues behind the last message. With -o json each line is a message.

    [bold]Examples[/bold]

    ternmq tail orders
    ternmq tail orders --since 10m --tags 'paid || refunded'
    ternmq tail orders --earliest --idle 0s -o json | jq .body
    """
    from tern_client import BlockingTail  # noqa: PLC0415 - help must not wait for the SDK

    if tags and sql:
        raise CommandFailed("Two filters", "Give --tags or --sql; TAGS is a property in SQL.", exit_code=2)
    if since and earliest:
        raise CommandFailed("Two begins", "Give --since or --earliest.", exit_code=2)
    paint = (lambda text, colour: typer.style(text, fg=colour)) if sys.stdout.isatty() else plain
    skipped = 0
    with BlockingTail(
        endpoints(endpoint),
        topic,
        start="earliest" if earliest else "latest",
        since=since,
        tags=tags,
        sql=sql,
        max_messages=count,
        idle=idle or None,
        namespace=namespace(),
    ) as stream:
        for message in stream:
            if stream.skipped > skipped:
                show_warning(f"{stream.skipped - skipped} messages were dropped by retention before they were read.")
                skipped = stream.skipped
            typer.echo(json_of(message) if output is Format.JSON else line_of(message, paint))
            sys.stdout.flush()
