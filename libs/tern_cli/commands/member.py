"""`ternmq group members`, `group assignments`, `group locks`: the members of groups."""

from typing import Annotated, Any

import typer

from tern_cli.commands.admin import Group, Topic
from tern_cli.endpoint import Endpoint, administration
from tern_cli.output import Format, Output, show_json, show_rows, show_warning
from tern_wire.routing.membership import Role, Strategy


def list_members(
    group: Group,
    role: Annotated[Role, typer.Option(help="The consumer group or the producer group of that name.")] = (
        Role.CONSUMER
    ),
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show the members of a group: clients of the last 120 s, and their subscriptions.

    All members of a group must have the same subscriptions; otherwise each
    receives messages that other members should get. A difference is reported on
    stderr.

    [bold]Examples[/bold]

    ternmq group members billing
    ternmq group members shop --role producer
    ternmq group members billing -o json
    """

    with administration(endpoint) as admin:
        document = admin.members(group, role)
    if output is Format.JSON:
        show_json(document)
        return
    rows: list[dict[str, Any]] = []
    for member in document["members"]:
        said = ", ".join(f"{topic} {text}" for topic, text in sorted(member["subscriptions"].items()))
        rows.append({"member": member["member"], "subscriptions": said, "strategy": member["strategy"]})
        rows[-1] |= {"room": member["room"], "address": member["address"], "version": member["version"]}
    show_rows(rows, ("member", "subscriptions", "strategy", "room", "address", "version"), output)
    typer.echo(f"{len(rows)} members, generation {document['generation']}.")
    for conflict in document["subscription_conflict"]:
        said = "; ".join(
            f"{row['filter'] or 'not at all'}: {', '.join(row['members'])}" + (", ..." if row["count"] > 16 else "")
            for row in conflict["filters"]
        )
        show_warning(f"members differ on topic {conflict['topic']} ({said}). Give all members the same subscriptions.")


def list_assignments(
    group: Group,
    topic: Topic,
    member: Annotated[str, typer.Option("-m", "--member", help="Only the queues of this member.")] = "",
    strategy: Annotated[
        Strategy | None, typer.Option(help="Assignment strategy to show.  [default: the members' own]")
    ] = None,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show the assignment of a topic's queues to the members of a group that pulls by offset.

    [bold]Examples[/bold]

    ternmq group assignments billing orders
    ternmq group assignments billing orders --strategy consistent-hash
    """

    with administration(endpoint) as admin:
        document = admin.assignments(group, topic, member=member, strategy=strategy or "")
    if output is Format.JSON:
        show_json(document)
        return
    rows: list[dict[str, Any]] = [
        {"member": name, "count": len(queues), "queues": " ".join(queues)}
        for name, queues in sorted(document["assignments"].items())
    ]
    show_rows(rows, ("member", "count", "queues"), output)
    typer.echo(f"Strategy {document['strategy']}, generation {document['generation']}.")
    if len(document["strategies"]) > 1:
        show_warning(f"members name different strategies: {', '.join(document['strategies'])}. Let all name the same.")
    if document["unassigned"]:
        show_warning(f"no member reads {' '.join(document['unassigned'])}.")


def list_locks(group: Group, topic: Topic, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show the queues of a topic that members of a group have locked for ordered reading.

    [bold]Examples[/bold]

    ternmq group locks billing orders
    """

    with administration(endpoint) as admin:
        document = admin.locks(group, topic)
    if output is Format.JSON:
        show_json(document)
        return
    rows: list[dict[str, Any]] = [{"queue": queue, **lock} for queue, lock in document["locks"].items()]
    show_rows(rows, ("queue", "member", "epoch", "expires_in_ms"), output)
