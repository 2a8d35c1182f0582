"""`ternmq raft status` and `ternmq raft transfer-leader`: the replicated log and its leader."""

import time
from typing import Annotated, Any

import typer

from tern_cli.commands.mesh import DataDir
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.variables import DATA_DIR
from tern_cli.views.raft_view import (
    TRANSFER_PATH,
    BrokerNode,
    answering_brokers,
    ask_again,
    leader_of,
    nodes_of_group,
    raft_rows,
    tell,
)

raft_app = typer.Typer(
    no_args_is_help=True, help="Show leaders and the progress of each broker, and transfer leadership."
)

NameServers = Annotated[
    str,
    typer.Option(
        "--namesrv", envvar="TERNMQ_NAMESRV", help="Name servers, separated by commas.  [default: those of the mesh]"
    ),
]
# A handover takes some ms; a broker abandons it after a second.
_WAIT_S = 5.0
_POLL_INTERVAL_S = 0.05
_MEMBER = "member"


@raft_app.command("status")
def raft_status(namesrv: NameServers = "", data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE) -> None:
    """Show each broker's role, term and log positions, and its lag behind the leader.

    `commit`, `applied` and `last` are indexes of the log. `lag` is in entries, as
    the leader reports it. `version` is the state machine version of the broker's
    release, with the group's level where that is lower: the level rises once all
    brokers support a newer one. `fsync` is the time of the last fdatasync, `disk
    %` the use of the disk budget.

    [bold]Examples[/bold]

    ternmq raft status
    ternmq raft status -o json
    """
    nodes = answering_brokers(namesrv, data_dir)
    rows = raft_rows(nodes)
    if output is Format.JSON:
        show_json(rows)
        return
    shown = [_shown(row) for row in rows]
    show_rows(shown, list(shown[0]), output)


@raft_app.command("transfer-leader")
def transfer_leader(
    to: Annotated[
        str, typer.Option("--to", help="The new leader.  [default: the broker with most of the leader's log]")
    ] = "",
    broker_group: Annotated[
        str, typer.Option("--broker-group", help="The broker group; required if there are several.")
    ] = "",
    namesrv: NameServers = "",
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Transfer leadership to another broker without the pause of an election.

    Use it before you restart the leader's host, for instance. The command returns
    once another broker leads. Requests continue meanwhile: they wait for some
    milliseconds.

    [bold]Examples[/bold]

    ternmq raft transfer-leader
    ternmq raft transfer-leader --to broker-a-1
    """
    nodes = nodes_of_group(answering_brokers(namesrv, data_dir), broker_group, to=to)
    group = nodes[0].broker_group
    leader = leader_of(nodes)
    if leader is None:
        raise CommandFailed(
            "Nobody leads now",
            f"No broker of {group} reports that it leads. See `ternmq raft status`; an election takes a second.",
        )
    if leader.name == to:
        _tell(group, leader, leader, output)
        return
    tell(leader, TRANSFER_PATH, {"to": to}, failed="Leadership is not handed over")
    _tell(group, leader, _wait_for_another(nodes, leader, to), output)


def _wait_for_another(nodes: list[BrokerNode], before: BrokerNode, to: str) -> BrokerNode:
    give_up_s = time.monotonic() + _WAIT_S
    while time.monotonic() < give_up_s:
        found = leader_of(ask_again(nodes))
        if found is not None and found.term > before.term:
            if to and found.name != to:
                raise CommandFailed("Another broker leads", f"{found.name} was elected in term {found.term}, not {to}.")
            return found
        time.sleep(_POLL_INTERVAL_S)
    raise CommandFailed(
        "Leadership was not handed over",
        f"After {_WAIT_S:g} s no broker leads in a newer term than {before.name}'s {before.term}. See `ternmq raft status`.",
    )


def _tell(group: str, before: BrokerNode, leader: BrokerNode, output: Format) -> None:
    if output is Format.JSON:
        show_json({"broker_group": group, "leader": leader.name, "term": leader.term, "before": before.name})
    elif leader.name == before.name:
        typer.echo(f"{leader.name} leads {group} already, in term {leader.term}.")
    else:
        typer.echo(f"{leader.name} leads {group} now, in term {leader.term}; before it was {before.name}.")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return *row* for people."""
    role = row["role"]
    if row["blocked_index"] is not None:
        role = f"{role}, blocked at {row['blocked_index']}"
    elif role == "leader" and not row["serving"]:
        role = "leader, not serving yet"
    if row["standing"] not in {None, _MEMBER} and row["standing"] != role:
        role = f"{role} ({row['standing']})"
    disk = row["disk_permille"]
    known = row["term"] is not None
    return {
        "node": row["node"],
        "role": role,
        "term": _or_dash(row["term"]),
        "commit": _or_dash(row["commit_index"]),
        "applied": _or_dash(row["applied_index"]),
        "last": _or_dash(row["last_index"]),
        "lag": _or_dash(row["lag"]),
        "version": _version(row),
        "fsync_ms": _or_dash(row["fsync_ms"]),
        "disk_%": "-" if disk is None else f"{disk / 10:.1f}",
        "peers": f"{len(row['connected_peers'])}/{row['peers']}" if known else "-",
    }


def _version(row: dict[str, Any]) -> Any:
    """Return the release's version, with the group's level if it differs."""
    version, level = row["version"], row["level"]
    return _or_dash(version) if level in {None, version} else f"{version} (group {level})"


def _or_dash(value: Any) -> Any:
    return "-" if value is None else value
