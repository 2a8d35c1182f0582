"""`ternmq offsets`, and the arguments that commands about topics and groups share."""

from typing import Annotated

import typer

from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_rows
from tern_wire.times import duration_text, given_duration, parse_duration_ms

Topic = Annotated[str, typer.Argument(help="The topic's name.", show_default=False)]
Group = Annotated[str, typer.Argument(help="The consumer group's name.", show_default=False)]


def show_offsets(
    topic: Topic,
    group: Annotated[str, typer.Option("-g", "--group", help="Show this group's committed offsets too.")] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show the minimum and maximum offset of every queue of a topic.

    With --group, the group's committed offset and its lag are shown too.

    [bold]Examples[/bold]

    ternmq offsets orders
    ternmq offsets orders -g billing
    """
    _show_queues(topic, endpoint, output, group)


def _show_queues(topic: str, endpoint: str, output: Format, group: str = "") -> None:

    with administration(endpoint) as admin:
        queues = admin.offsets(topic)
        committed = admin.group_offsets(group, topic) if group else {}
    rows: list[dict[str, str | int]] = []
    for row in queues:
        shown: dict[str, str | int] = {"queue": row.queue, "min_offset": row.min_offset, "max_offset": row.max_offset}
        shown["messages"] = row.max_offset - row.min_offset
        if group:
            shown["committed"] = committed.get(row.queue, 0)
            shown["lag"] = row.max_offset - max(committed.get(row.queue, 0), row.min_offset)
        rows.append(shown)
    columns = ["queue", "min_offset", "max_offset", "messages", *(["committed", "lag"] if group else [])]
    show_rows(rows, columns, output)
    if output is Format.TABLE:
        typer.echo(f"{sum(row.max_offset - row.min_offset for row in queues)} messages in {len(queues)} queues.")


def duration_ms(option: str, text: str, least_ms: int = 0, most_ms: int | None = None) -> int:
    """Return the milliseconds in *text*, the value of *option*.
    CommandFailed (exit 2) when it is no duration, or not between *least_ms* and *most_ms*.
    """
    try:
        found_ms = parse_duration_ms(text)
    except ValueError as error:
        raise CommandFailed("Not a duration", f"{option}: {error}.", exit_code=2) from error
    if most_ms is not None and not least_ms <= found_ms <= most_ms:
        allowed = (
            f"use {duration_text(least_ms)} to {duration_text(most_ms)}"
            if least_ms
            else f"at most {duration_text(most_ms)}"
        )
        raise CommandFailed("The time is out of range", f"{option} is {given_duration(text)}; {allowed}.", exit_code=2)
    return found_ms
