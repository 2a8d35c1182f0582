"""`ternmq group ls|create|describe|alter|rm`."""

from typing import Annotated, Any

import typer

from tern_cli.commands.admin import Group, duration_ms
from tern_cli.commands.topic import Attribute, Sure, attributes_of, confirm, shown_attributes
from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows
from tern_wire.limits import ATTEMPTS_MAX, INVISIBLE_MAX_MS, INVISIBLE_MIN_MS, RETRY_DELAY_MIN_MS, TIMER_DELAY_MAX_MS
from tern_wire.times import duration_text

group_app = typer.Typer(
    no_args_is_help=True, help="Create, list, describe, alter and delete consumer groups, and list their members."
)

Invisible = Annotated[
    str | None,
    typer.Option(help="Visibility timeout of a received message, such as 30s or 5m.", show_default="60s"),
]
Start = Annotated[
    str | None,
    typer.Option(
        help="Start position in a queue that the group has never read: earliest, latest, or a time such as 2026-01-31T12:00:00Z.",
        show_default="earliest",
    ),
]
Attempts = Annotated[
    int | None,
    typer.Option(
        "--max-attempts",
        min=1,
        max=ATTEMPTS_MAX,
        help="Delivery attempts before a message becomes a dead letter.",
        show_default="16",
    ),
]
Retry = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="Delay of a message after a failed delivery attempt: 'table' (10s 30s 1m ... 2h), delays '1s,10s,1m', or 'INITIAL*FACTOR..MAX' "
        "such as '5s*2..2h'.",
        show_default="table",
    ),
]
Fifo = Annotated[
    bool | None,
    typer.Option(
        "--fifo/--no-fifo", help="Deliver messages of one message group in order; to be set before the first receive."
    ),
]
Consume = Annotated[bool | None, typer.Option("--consume/--no-consume", help="Whether the group receives messages.")]
Broadcast = Annotated[
    bool | None, typer.Option("--broadcast/--no-broadcast", help="Deliver every message to each consumer.")
]


@group_app.command("create")
def create_group(
    group: Group,
    invisible: Invisible = None,
    start: Start = None,
    max_attempts: Attempts = None,
    retry: Retry = None,
    fifo: Fifo = None,
    consume: Consume = None,
    broadcast: Broadcast = None,
    attribute: Attribute = None,
    new: Annotated[bool, typer.Option("--new", help="Fail if the group exists.")] = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Create a consumer group, or confirm that it exists with these settings.

    [bold]Examples[/bold]

    ternmq group create billing
    ternmq group create billing --invisible 5m --start latest
    ternmq group create billing --max-attempts 5 --retry '5s*2..2h'
    ternmq group create payments --fifo
    """

    with administration(endpoint) as admin:
        document = admin.create_group(
            group,
            only_new=new,
            invisible_ms=_invisible_ms(invisible),
            start=start,
            max_attempts=max_attempts,
            retry=retry_of(retry),
            fifo=fifo,
            consume=consume,
            broadcast=broadcast,
            attributes=attributes_of(attribute),
        )
    _tell(document, output)


@group_app.command("alter")
def alter_group(
    group: Group,
    invisible: Invisible = None,
    start: Start = None,
    max_attempts: Attempts = None,
    retry: Retry = None,
    fifo: Fifo = None,
    consume: Consume = None,
    broadcast: Broadcast = None,
    attribute: Attribute = None,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Change settings of a consumer group; settings that are not named stay.

    [bold]Examples[/bold]

    ternmq group alter billing --no-consume       (stops receiving from now on)
    ternmq group alter billing --consume
    ternmq group alter billing --retry 1s,10s,1m
    """

    with administration(endpoint) as admin:
        document = admin.alter_group(
            group,
            invisible_ms=_invisible_ms(invisible),
            start=start,
            max_attempts=max_attempts,
            retry=retry_of(retry),
            fifo=fifo,
            consume=consume,
            broadcast=broadcast,
            attributes=attributes_of(attribute),
        )
    _tell(document, output)


@group_app.command("ls")
def list_groups(
    part: Annotated[str, typer.Argument(help="Only names that contain this text.", show_default=False)] = "",
    sort: Annotated[str, typer.Option(help="name, or -name for the reverse order.")] = "name",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """List consumer groups with their settings.

    [bold]Examples[/bold]

    ternmq group ls
    ternmq group ls bill -o json
    """

    with administration(endpoint) as admin:
        rows = admin.groups(part, sort=sort)
    show_rows(rows, ("group", "start", "invisible_ms", "max_attempts", "fifo", "consume", "broadcast"), output)


@group_app.command("describe")
def describe_group(
    group: Group,
    topic: Annotated[str, typer.Option(help="Only this topic.")] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show a consumer group's settings, and its progress in each topic, in messages.

    [bold]Examples[/bold]

    ternmq group describe billing
    ternmq group describe billing --topic orders -o json
    """

    with administration(endpoint) as admin:
        document = admin.group(group, topic)
    if output is Format.JSON:
        show_json(document)
        return
    show_rows(document["topics"], ("topic", "lag", "leased", "available"), output)
    flags = [name for name in ("fifo", "broadcast") if document[name]]
    state = "receives" if document["consume"] else "switched off"
    typer.echo(
        f"{state}, starts {document['start']}, invisible for {duration_text(document['invisible_ms'])}{shown_attributes(document)}."
    )
    delays = ", ".join(duration_text(delay_ms) for delay_ms in document["retry"]["delays_ms"][:16])
    typer.echo(f"{document['max_attempts']} attempts, rests {delays}{'; ' + ', '.join(flags) if flags else ''}.")


@group_app.command("rm")
def delete_group(group: Group, yes: Sure = False, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Delete a consumer group with its offsets, leases and dead letters.

    Its name may be used again afterwards.

    [bold]Examples[/bold]

    ternmq group rm billing
    ternmq group rm billing --yes
    """

    confirm(f"Delete group {group} with its offsets, leases and dead letters?", yes=yes)
    with administration(endpoint) as admin:
        admin.delete_group(group)
    if output is Format.JSON:
        show_json({"group": group, "deleted": True})
    else:
        typer.echo(f"Group {group} is deleted.")


def _invisible_ms(text: str | None) -> int | None:
    return None if text is None else duration_ms("--invisible", text, INVISIBLE_MIN_MS, INVISIBLE_MAX_MS)


def retry_of(text: str | None) -> dict[str, Any] | None:
    """Return the retry policy in the value of `--retry`; CommandFailed (exit 2) when it is none."""
    if text is None:
        return None
    if text == "table":
        return {"policy": "table"}
    initial, star, rest = text.partition("*")
    if not star:
        return {
            "policy": "custom",
            "delays": [duration_ms("--retry", delay, 0, TIMER_DELAY_MAX_MS) for delay in text.split(",")],
        }
    factor, _, most = rest.partition("..")
    try:
        multiplier = float(factor)
    except ValueError as error:
        raise CommandFailed("Not a retry policy", f"--retry {text}: write it like '5s*2..2h'.", exit_code=2) from error
    delays = {
        "initial": duration_ms("--retry", initial, RETRY_DELAY_MIN_MS, TIMER_DELAY_MAX_MS),
        "max": duration_ms("--retry", most, RETRY_DELAY_MIN_MS, TIMER_DELAY_MAX_MS),
    }
    return {"policy": "exponential", "multiplier": multiplier, **delays}


def _tell(document: dict[str, Any], output: Format) -> None:
    if output is Format.JSON:
        show_json(document)
    else:
        typer.echo(f"Group {document['group']} is there.")
