"""`ternmq broker-group ls|show|join|restore`: broker groups of a running mesh.

Law: every command may be repeated, after a Ctrl-C too. Finished steps stay finished, and the rest
follows. Broker groups belong to the cluster: a namespace in the environment has no effect, and
topics of all namespaces are moved. `broker_group_drain.py` has the removal of a broker group.
"""

import time
from typing import Annotated, Any

import typer

from tern_cli.commands.admin import duration_ms
from tern_cli.commands.mesh import DataDir
from tern_cli.endpoint import Endpoint, endpoints
from tern_cli.failures import CommandFailed
from tern_cli.operating.namesrv import NameServers, name_server_urls
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.progress import counting, waiting
from tern_cli.variables import DATA_DIR
from tern_cli.views.broker_group_view import failure_lines, group_rows, left_lines, left_rows, move_lines
from tern_cli.views.namesrv_view import permit
from tern_cli.views.topic_moves import ClusterAdmin, TopicName, place_all

broker_group_app = typer.Typer(
    no_args_is_help=True,
    help="""Add broker groups to a running mesh, and remove them.

    A broker group is 1, 3 or 5 brokers that replicate one log. Topics are spread
    over several groups. The placement of a topic (`ternmq topic placement`) names
    the groups of its keyed and ordered messages, and changes only on request.""",
)
BrokerGroup = Annotated[
    str, typer.Argument(metavar="NAME", help="The broker group, such as broker-b.", show_default=False)
]
# Pause between two checks of a step that takes seconds.
POLL_INTERVAL_S = 0.25


@broker_group_app.command("ls")
def list_broker_groups(endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """List broker groups: their leader, their connected nodes, and whether they accept writes.

    [bold]Examples[/bold]

    ternmq broker-group ls
    ternmq broker-group ls -o json
    """
    with ClusterAdmin(endpoints(endpoint)) as admins:
        rows = group_rows(admins.whole.cluster())
    show_rows(rows, ("broker_group", "leader", "term", "nodes", "writable"), output)


@broker_group_app.command("show")
def show_broker_group(name: BrokerGroup, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show the messages left to read in a broker group, and what prevents its removal.

    [bold]Examples[/bold]

    ternmq broker-group show broker-b
    ternmq broker-group show broker-b -o json
    """
    with ClusterAdmin(endpoints(endpoint)) as admins:
        left = admins.whole.broker_group(name)
    tell_left(left, output)


@broker_group_app.command("join")
def join_broker_group(
    name: BrokerGroup,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="PATTERN",
            help="Only topics that match, such as 'orders*', or 'shop/orders*' in a namespace; repeatable.",
        ),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All topics, which is the default.")] = False,
    timeout: Annotated[str, typer.Option(help="Maximum time until the broker group has a leader.")] = "60s",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Give a new broker group of the mesh its share of the topics.

    Waits until the broker group has a leader, creates there the groups that the
    other broker groups have, and places the topics of all namespaces there as
    well. Order and idempotency keys hold meanwhile: each topic moves for 10
    minutes or more. Repeat the command at any time: it completes an interrupted
    run.

    [bold]Examples[/bold]

    ternmq broker-group join broker-b
    ternmq broker-group join broker-b --topic 'orders*' --topic 'shop/*'
    ternmq broker-group join broker-b -o json
    """
    if topic and all_topics:
        raise CommandFailed("Which topics?", "Use --topic or --all-topics, not both.", exit_code=2)
    patience_ms = duration_ms("--timeout", timeout)
    with ClusterAdmin(endpoints(endpoint)) as admins:
        _wait_for_leader(admins, name, patience_ms / 1_000)
        joined = admins.whole.join(name)
        topics = [each for each in _topics_of(admins, name) if each.matches(topic or ())]
        if topic and not topics:
            raise CommandFailed("No such topic", f"No topic is like {', '.join(topic)}. See `ternmq topic ls`.")
        with counting(len(topics), f"topics to {name}") as step:
            moves = place_all(admins, topics, lambda placed: with_group(placed["broker_groups"], name), step)
    if output is Format.JSON:
        show_json({**joined, "moves": [move.document() for move in moves]})
    else:
        typer.echo(
            f"{name}: {joined['groups']:,} groups and {joined['producer_groups']:,} producer groups are new there."
        )
        for line in move_lines(moves, _again(name, topic or [])):
            typer.echo(line)
    if failures := failure_lines(moves):
        raise CommandFailed(
            "Not every topic is placed", f"Repeat `{_again(name, topic or [])}`: finished moves stay.", lines=failures
        )


@broker_group_app.command("restore")
def restore_broker_group(
    name: BrokerGroup, namesrv: NameServers = None, data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE
) -> None:
    """Restore the write permission of a broker group that is to stay after all.

    Topics return with `ternmq broker-group join`.

    [bold]Examples[/bold]

    ternmq broker-group restore broker-b
    """
    taken, topics = permit(name_server_urls(namesrv, data_dir), name, writable=True, data_dir=data_dir)
    if output is Format.JSON:
        facts = {"broker_group": name, "writable": True, "topics": topics}
        show_json({**facts, "name_servers": [one.url for one in taken]})
        return
    typer.echo(f"{name} may be written again. `ternmq broker-group join {name}` places topics there.")


# Shared with draining -----------------------------------------------------------------------------
def tell_left(left: dict[str, Any], output: Format, *, is_withdrawn: bool = False) -> None:
    """Show the contents left in a broker group.
    *is_withdrawn*: this command has withdrawn the group's write permission.
    """
    if output is Format.JSON:
        show_json(left)
        return
    if rows := left_rows(left):
        show_rows(rows, tuple(rows[0]), output)
        if (more := sum(left[count] for count in ("placed", "moving"))) > len(rows):
            typer.echo(f"These are {len(rows)} of {more:,} or more topics.")
    for line in left_lines(left, is_withdrawn=is_withdrawn):
        typer.echo(line)
    if left["is_drained"]:
        typer.echo(f"{left['broker_group']} is drained: nothing in it is still needed.")


def with_group(groups: list[str], name: str) -> list[str]:
    """Return *groups* with *name* among them."""
    return groups if name in groups else [*groups, name]


def _topics_of(admins: ClusterAdmin, name: str) -> list[TopicName]:
    """Return all topics of the cluster, in order."""
    rows = [row for which in ("here", "elsewhere") for row in admins.whole.broker_group_topics(name, which=which)]
    return sorted({TopicName(row["namespace"], row["topic"]) for row in rows})


def _wait_for_leader(admins: ClusterAdmin, name: str, patience_s: float) -> None:
    """Wait until broker group *name* has a leader.
    CommandFailed when none is elected in time, or when the group may not be written.
    """
    give_up_s = time.monotonic() + patience_s
    with waiting(f"{name} has no leader yet"):
        while True:
            known = admins.whole.cluster()["broker_groups"]
            found = known.get(name)
            if found is not None and not found["writable"]:
                detail = f"Nothing may be written to {name}. Run `ternmq broker-group restore {name}` first."
                raise CommandFailed("Its write permission is withdrawn", detail)
            if found is not None and found["leader"]:
                return
            if time.monotonic() >= give_up_s:
                break
            time.sleep(POLL_INTERVAL_S)
    if found is None:
        names = ", ".join(sorted(known)) or "none"
        detail = (
            f"No broker of {name} has registered; known: {names}. Start its brokers, and see `ternmq namesrv status`."
        )
        raise CommandFailed("No such broker group", detail)
    detail = f"Most of the brokers of {name} must run and reach each other. See `ternmq raft status`, and their logs."
    raise CommandFailed("The broker group has no leader", detail)


def _again(name: str, patterns: list[str]) -> str:
    return " ".join([f"ternmq broker-group join {name}", *(f"--topic '{pattern}'" for pattern in patterns)])
