"""`ternmq raft blocked` and `ternmq raft pass-over`.

They show brokers that cannot apply an entry of the log, and skip an entry that none can apply.
"""

from typing import Annotated, Any

import typer

from tern_cli.commands.mesh import DataDir
from tern_cli.commands.topic import Sure, confirm
from tern_cli.operating.digest import raft_app
from tern_cli.operating.raft import NameServers
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.variables import DATA_DIR
from tern_cli.views.raft_view import BrokerNode, answering_brokers, leading_node, nodes_of_group, tell

_PATH = "/v1/broker/pass-over"
__all__ = ["blocked_rows", "raft_app"]
_SHOWN = ("node", "entry", "raised", "holds", "says")


@raft_app.command("blocked")
def raft_blocked(namesrv: NameServers = "", data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE) -> None:
    """Show brokers that cannot apply an entry of their log, with the error and the contents.

    A blocked broker keeps its log, votes, and acknowledges writes, but applies
    nothing more. While one broker is blocked the others serve; while most are,
    the group serves no requests. Start a release that can apply the entry:
    nothing is lost, and each broker continues without further action. If there is
    no such release, see `ternmq raft pass-over`.

    [bold]Examples[/bold]

    ternmq raft blocked
    ternmq raft blocked -o json
    """
    rows = blocked_rows(answering_brokers(namesrv, data_dir))
    if output is Format.JSON:
        show_json(rows)
    elif not any(row["entry"] for row in rows):
        typer.echo("No broker is blocked.")
    else:
        show_rows([{name: row[name] for name in _SHOWN} for row in rows], list(_SHOWN), output)


@raft_app.command("pass-over")
def raft_pass_over(
    entry: Annotated[int, typer.Argument(min=1, help="The entry that no broker of the group can apply.")],
    broker_group: Annotated[
        str, typer.Option("--broker-group", help="The broker group; required if there are several.")
    ] = "",
    withdraw: Annotated[
        bool,
        typer.Option(
            "--withdraw", help="Withdraw the request while not all brokers have agreed; the entry is tried again."
        ),
    ] = False,
    yes: Sure = False,
    namesrv: NameServers = "",
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Skip an entry that no broker of the group can apply.

    The commands in the entry never take effect: its messages are not stored, its
    acks not counted. If an earlier release has applied the entry, replies that
    clients got then are no longer true: return to that release if there is one.
    All brokers of the group must be up and blocked at this entry. The entry is
    skipped once each of them has agreed, within a second.

    [bold]Examples[/bold]

    ternmq raft blocked
    ternmq raft pass-over 48211 --yes
    """
    nodes = nodes_of_group(answering_brokers(namesrv, data_dir), broker_group)
    leader = leading_node(nodes)
    if not withdraw:
        holds = _holds((leader.status.get("blocked") or {}).get("commands", {}))
        confirm(f"Skip entry {entry} of {leader.broker_group} for good ({holds})?", yes=yes)
    failed = "Nothing is withdrawn" if withdraw else "Nothing is passed over"
    tell(leader, _PATH, {"index": entry, "withdraw": withdraw}, failed=failed)
    if output is Format.JSON:
        facts = {"broker_group": leader.broker_group, "entry": entry, "withdrawn": withdraw, "leader": leader.name}
        show_json(facts)
    elif withdraw:
        typer.echo(f"Entry {entry} of {leader.broker_group} is tried again.")
    else:
        typer.echo(f"{leader.broker_group} passes over entry {entry}. Watch it with `ternmq raft blocked`.")


def blocked_rows(nodes: list[BrokerNode]) -> list[dict[str, Any]]:
    """Return one row per node for programs; None for unknown values."""
    rows: list[dict[str, Any]] = []
    for node in nodes:
        found = node.status.get("blocked") or {}
        rows.append(
            {
                "node": node.name,
                "broker_group": node.broker_group,
                "role": node.status.get("role", "no answer"),
                "entry": found.get("index"),
                "crc": found.get("crc"),
                "raised": f"{found['error']} ({found['where']})" if found.get("error") else "",
                "release": found.get("release"),
                "commands": found.get("commands", {}),
                "holds": _holds(found.get("commands", {})) if found else "",
                "asked": bool(found.get("asked")),
                "says": _said(node, found),
            }
        )
    return rows


def _said(node: BrokerNode, found: dict[str, Any]) -> str:
    if not node.status:
        return "no answer"
    if not found:
        return "applies everything"
    return "waits for all to agree" if found.get("asked") else "blocked"


def _holds(commands: dict[str, int]) -> str:
    """Return the counts of an entry's commands as text."""
    return ", ".join(f"{count} {name}" for name, count in sorted(commands.items())) or "no commands"
