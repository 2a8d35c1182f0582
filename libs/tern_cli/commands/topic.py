"""`ternmq topic ls|create|describe|alter|rm`."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from tern_cli.commands.admin import Topic
from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows
from tern_wire.limits import QUEUES_PER_TOPIC_DEFAULT, QUEUES_PER_TOPIC_MAX

topic_app = typer.Typer(no_args_is_help=True, help="Create, list, describe, alter and delete topics.")


class TopicType(StrEnum):
    """Kinds of messages that a topic accepts."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    MIXED = "MIXED"


class Permission(StrEnum):
    """Operations that a topic permits."""

    RW = "rw"
    R = "r"
    W = "w"
    NONE = "none"


class FullDisk(StrEnum):
    """Behaviour of a topic when the disk is full."""

    REFUSE = "refuse"
    DROP_OLDEST = "drop-oldest"


Queues = Annotated[
    int | None,
    typer.Option(
        "-q", "--queues", min=1, max=QUEUES_PER_TOPIC_MAX, help="Queues in each broker group; may grow, never shrink."
    ),
]
Kind = Annotated[
    TopicType | None,
    typer.Option(
        "--type",
        case_sensitive=False,
        help="FIFO: every message has a message group. DELAY: every message has a delivery time. TRANSACTION: every message belongs to a transaction. NORMAL: none of these. MIXED: any message.",
    ),
]
Allowed = Annotated[Permission | None, typer.Option("--permission", help="Permitted operations: rw, r, w or none.")]
WhenFull = Annotated[
    FullDisk | None,
    typer.Option(
        "--when-full",
        help="When the disk is full: refuse sends until groups have read more, or drop the oldest messages, read or not.",
    ),
]
Attribute = Annotated[
    list[str] | None,
    typer.Option("-a", "--attribute", metavar="NAME=TEXT", help="Attribute to set; NAME= removes it; repeatable."),
]
Sure = Annotated[bool, typer.Option("-y", "--yes", help="Skip the confirmation.")]


@topic_app.command("create")
def create_topic(
    topic: Topic,
    queues: Queues = None,
    type_: Kind = None,
    permission: Allowed = None,
    when_full: WhenFull = None,
    attribute: Attribute = None,
    new: Annotated[bool, typer.Option("--new", help="Fail if the topic exists.")] = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Create a topic, or confirm that it exists with these settings.

    Without options a new topic has 8 queues in each broker group and accepts any
    message.

    [bold]Examples[/bold]

    ternmq topic create orders
    ternmq topic create orders --queues 16
    ternmq topic create payments --type FIFO -a owner=billing
    """

    with administration(endpoint) as admin:
        document = admin.create_topic(
            *(topic, queues),
            only_new=new,
            type=type_,
            permission=permission,
            when_full=when_full,
            attributes=attributes_of(attribute),
        )
    _tell(document, output)


@topic_app.command("alter")
def alter_topic(
    topic: Topic,
    queues: Queues = None,
    type_: Kind = None,
    permission: Allowed = None,
    when_full: WhenFull = None,
    attribute: Attribute = None,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Change settings of a topic; settings that are not named stay.

    [bold]Examples[/bold]

    ternmq topic alter orders --queues 16
    ternmq topic alter orders --permission r      (no more sends)
    ternmq topic alter clicks --when-full drop-oldest
    ternmq topic alter orders -a owner=           (removes the attribute)
    """

    with administration(endpoint) as admin:
        document = admin.alter_topic(
            topic,
            queues=queues,
            type=type_,
            permission=permission,
            when_full=when_full,
            attributes=attributes_of(attribute),
        )
    _tell(document, output)


@topic_app.command("ls")
def list_topics(
    part: Annotated[str, typer.Argument(help="Only names that contain this text.", show_default=False)] = "",
    sort: Annotated[str, typer.Option(help="name, queues or type; -name for the reverse order.")] = "name",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """List topics, from the routes of a proxy.

    [bold]Examples[/bold]

    ternmq topic ls
    ternmq topic ls order --sort=-queues
    ternmq topic ls -o json
    """

    with administration(endpoint) as admin:
        rows = admin.topics(part, sort=sort)
    shown = (
        rows if output is Format.JSON else [{**row, "broker_groups": ", ".join(row["broker_groups"])} for row in rows]
    )
    show_rows(shown, ("topic", "type", "permission", "queues", "broker_groups"), output)


@topic_app.command("describe")
def describe_topic(topic: Topic, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show a topic's settings, the number of messages in each queue, and the groups that read it.

    [bold]Examples[/bold]

    ternmq topic describe orders
    ternmq topic describe orders -o json
    """

    with administration(endpoint) as admin:
        document = admin.topic(topic)
    if output is Format.JSON:
        show_json(document)
        return
    rows = [{**row, "messages": row["max_offset"] - row["min_offset"]} for row in document["offsets"]]
    show_rows(rows, ("queue", "min_offset", "max_offset", "messages"), output)
    typer.echo(f"{sum(row['messages'] for row in rows)} messages in {len(rows)} queues.")
    full = f", when full {document['when_full']}" if "when_full" in document else ""  # not of an older proxy
    typer.echo(f"Type {document['type']}, permission {document['permission']}{full}{shown_attributes(document)}.")
    typer.echo(f"Groups: {', '.join(document['groups']) or 'none has begun to read it'}.")


@topic_app.command("rm")
def delete_topic(topic: Topic, yes: Sure = False, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Delete a topic with all its messages.

    Its name may be used again afterwards.

    [bold]Examples[/bold]

    ternmq topic rm orders
    ternmq topic rm orders --yes
    """

    confirm(f"Delete topic {topic} with all its messages?", yes=yes)
    with administration(endpoint) as admin:
        admin.delete_topic(topic)
    if output is Format.JSON:
        show_json({"topic": topic, "deleted": True})
    else:
        typer.echo(f"Topic {topic} is deleted.")


def _tell(document: dict[str, Any], output: Format) -> None:
    if output is Format.JSON:
        show_json(document)
    else:
        typer.echo(f"Topic {document['topic']} is there, {document['queues']} queues, type {document['type']}.")


# Shared with groups -------------------------------------------------------------------------------
def attributes_of(pairs: list[str] | None) -> dict[str, str | None] | None:
    """Return NAME=TEXT pairs as changes of attributes; CommandFailed (exit 2) when malformed."""
    if not pairs:
        return None
    found: dict[str, str | None] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not name or not sign:
            raise CommandFailed("Not an attribute", f"'{pair}': write --attribute NAME=TEXT.", exit_code=2)
        found[name] = text or None
    return found


def shown_attributes(document: dict[str, Any]) -> str:
    """Return the attributes as the end of a sentence; "" when there are none."""
    pairs = [f"{name}={text}" for name, text in document["attributes"].items()]
    return f", attributes {', '.join(pairs)}" if pairs else ""


def confirm(question: str, *, yes: bool) -> None:
    """Ask *question* unless *yes*; CommandFailed when the answer is no.
    Without a terminal, --yes is required (exit 2).
    """
    if yes:
        return
    import sys  # noqa: PLC0415 - only here

    if not sys.stdin.isatty():
        raise CommandFailed("Nobody to ask", f"{question} Confirm with --yes.", exit_code=2)
    if not typer.confirm(question, err=True):
        raise CommandFailed("Nothing was done", "The answer was no.")


assert QUEUES_PER_TOPIC_DEFAULT == 8, "the help says 8"
