"""`ternmq topic placement` and `ternmq topic place`: in which broker groups a topic's keyed and ordered messages go."""

from typing import Annotated, Any

import typer

from tern_cli.commands.admin import Topic
from tern_cli.endpoint import Endpoint, administration
from tern_cli.output import Format, Output, show_json
from tern_cli.readable import shown_time


def show_placement(topic: Topic, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show in which broker groups a topic's keyed and ordered messages go, where they went before, and who still has messages of it.

    [bold]Examples[/bold]

    ternmq topic placement orders
    ternmq topic placement orders -o json
    """
    with administration(endpoint) as admin:
        document = admin.placement(topic)
    _tell(document, output)


def place_topic(
    topic: Topic,
    broker_group: Annotated[
        list[str], typer.Option("--broker-group", help="All broker groups that it is to be in; repeat it.")
    ],
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Place a topic: its keyed and ordered messages go to these broker groups from now on, and to no others.

    Broker groups that lack the topic get it first. What was sent before keeps its order and its idempotency keys: for 10 minutes or more the broker groups
    of before are asked first. Repeating the command is harmless: it completes what was broken off, and ends a move whose time has come.

    [bold]Examples[/bold]

    ternmq topic place orders --broker-group broker-a --broker-group broker-b
    ternmq topic place orders --broker-group broker-b -o json
    """
    with administration(endpoint) as admin:
        document = admin.place(topic, broker_group)
    _tell(document, output)


def _tell(document: dict[str, Any], output: Format) -> None:
    if output is Format.JSON:
        show_json(document)
        return
    groups, hosts = document["broker_groups"], document["hosts"]
    typer.echo(f"{document['topic']} is placed on {', '.join(groups)} (epoch {document['epoch']}).")
    if document["is_moving"]:
        until = document["moving_until"]
        when = f" until {shown_time(until)} at least" if until else ""
        again = " ".join(f"--broker-group {group}" for group in groups)
        typer.echo(f"It is on its way{when}; before it was on {', '.join(document['before'])}.")
        typer.echo(f"Then `ternmq topic place {document['topic']} {again}` ends the move.")
    if others := [host for host in hosts if host not in groups]:
        typer.echo(f"Messages of before are still read from {', '.join(others)}.")
