"""`ternmq topic`, `ternmq group`, `ternmq offsets`."""

from enum import StrEnum
from typing import Annotated

import typer

from tern_cli.endpoint import Endpoint, endpoints, name_servers
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows
from tern_wire.limits import QUEUES_PER_TOPIC_DEFAULT, QUEUES_PER_TOPIC_MAX
from tern_wire.times import parse_duration_ms

topic_app = typer.Typer(no_args_is_help=True, help="Create, list and describe topics.")
group_app = typer.Typer(no_args_is_help=True, help="Create consumer groups.")

Topic = Annotated[str, typer.Argument(help="The topic's name.", show_default=False)]
Group = Annotated[str, typer.Argument(help="The consumer group's name.", show_default=False)]


class Start(StrEnum):
    """Where a new group begins in a queue that it has never read."""

    EARLIEST = "earliest"
    LATEST = "latest"


@topic_app.command("create")
def create_topic(
    topic: Topic,
    queues: Annotated[
        int, typer.Option("-q", "--queues", min=1, max=QUEUES_PER_TOPIC_MAX, help="Queues in the broker group.")
    ] = QUEUES_PER_TOPIC_DEFAULT,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Create a topic, or see that it is there. Queue counts may grow later, never shrink.

    [bold]Examples[/bold]

    ternmq topic create orders
    ternmq topic create orders --queues 16
    """
    from tern_client import BlockingAdmin  # noqa: PLC0415 - help must not wait for the SDK

    with BlockingAdmin(endpoints(endpoint)) as admin:
        document = admin.create_topic(topic, queues)
    if output is Format.JSON:
        show_json(document)
    else:
        typer.echo(f"Topic {topic} is there, {document.get('queues', queues)} queues.")


@topic_app.command("ls")
def list_topics(
    namesrv: Annotated[
        str,
        typer.Option(
            "--namesrv",
            envvar="TERNMQ_NAMESRV",
            help="Name servers, by commas.  [default: those of the endpoint's mesh]",
        ),
    ] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """List all topics. Name servers know them; a topic appears there with the next heartbeat of its broker (1 s).

    They are those of the mesh in TERNMQ_DATA_DIR or .tern; of an --endpoint elsewhere, name them with --namesrv.

    [bold]Examples[/bold]

    ternmq topic ls
    ternmq topic ls -o json
    """
    from tern_cli.mesh_view import routes_of  # noqa: PLC0415

    asked = name_servers(namesrv, endpoint)
    routes = routes_of(asked)
    if not routes:
        raise CommandFailed("No name server can be reached", f"{', '.join(asked)} did not answer. Is the mesh up?")
    rows = [
        {"topic": name, "queues": sum(route["queues"] for route in groups.values()), "broker_groups": ", ".join(groups)}
        for name, groups in sorted(routes["topics"].items())
    ]
    show_rows(rows, ("topic", "queues", "broker_groups"), output)


@topic_app.command("describe")
def describe_topic(topic: Topic, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show a topic's queues and how many messages each holds.

    [bold]Examples[/bold]

    ternmq topic describe orders
    """
    _show_queues(topic, endpoint, output)


@group_app.command("create")
def create_group(
    group: Group,
    invisible: Annotated[
        str, typer.Option(help="How long a received message stays with its consumer, such as 30s or 5m.")
    ] = "60s",
    start: Annotated[Start, typer.Option(help="Where it begins in a queue that it has never read.")] = Start.EARLIEST,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Create a consumer group, or see that it is there.

    [bold]Examples[/bold]

    ternmq group create billing
    ternmq group create billing --invisible 5m --start latest
    """
    from tern_client import BlockingAdmin  # noqa: PLC0415

    invisible_ms = duration_ms("--invisible", invisible)
    with BlockingAdmin(endpoints(endpoint)) as admin:
        document = admin.create_group(group, invisible_ms=invisible_ms, start=start.value)
    if output is Format.JSON:
        show_json(document)
    else:
        typer.echo(f"Group {group} is there.")


def show_offsets(
    topic: Topic,
    group: Annotated[str, typer.Option("-g", "--group", help="Show this group's committed offsets too.")] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show min and max offset of every queue of a topic.

    [bold]Examples[/bold]

    ternmq offsets orders
    ternmq offsets orders -g billing
    """
    _show_queues(topic, endpoint, output, group)


def _show_queues(topic: str, endpoint: str, output: Format, group: str = "") -> None:
    from tern_client import BlockingAdmin  # noqa: PLC0415

    with BlockingAdmin(endpoints(endpoint)) as admin:
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


def duration_ms(option: str, text: str) -> int:
    """Milliseconds of what stands behind *option*; CommandFailed (exit 2) when it is no duration."""
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise CommandFailed("Not a duration", f"{option}: {error}.", exit_code=2) from error
