"""`ternmq topic placement` and `ternmq topic place`.

A topic's placement is the set of broker groups that get its keyed and ordered messages.
"""

from typing import Annotated, Any

import typer

from tern_cli.commands.admin import Topic
from tern_cli.endpoint import Endpoint, administration
from tern_cli.output import Format, Output, show_json
from tern_cli.readable import shown_time


def show_placement(topic: Topic, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show the placement of a topic: the broker groups of its keyed and ordered messages.

    The output also has the previous placement, and the broker groups that still
    hold messages of the topic.

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
        list[str], typer.Option("--broker-group", help="A broker group of the new placement; repeat for several.")
    ],
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Place a topic: its keyed and ordered messages go to these broker groups only, from now on.

    Broker groups that lack the topic get it first. Earlier messages keep their
    order and their idempotency keys: for 10 minutes or more the previous broker
    groups are queried first. Repeating the command is harmless: it completes an
    interrupted placement, and ends a move whose time has come.

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
        typer.echo(f"It is moving{when}; before it was on {', '.join(document['before'])}.")
        typer.echo(f"Then `ternmq topic place {document['topic']} {again}` ends the move.")
    if others := [host for host in hosts if host not in groups]:
        typer.echo(f"Older messages are still read from {', '.join(others)}.")
