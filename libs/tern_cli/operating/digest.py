"""`ternmq raft digests` and `ternmq raft choose`.

They compare the brokers' states, and choose the valid state when no majority agrees.
"""

from typing import Annotated, Any

import typer

from tern_cli.commands.mesh import DataDir
from tern_cli.commands.topic import Sure, confirm
from tern_cli.operating.raft import NameServers, raft_app
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.variables import DATA_DIR
from tern_cli.views.raft_view import BrokerNode, answering_brokers, leading_node, nodes_of_group, tell

_CHOOSE_PATH = "/v1/broker/choose"
__all__ = ["digest_rows", "raft_app"]
_SHOWN = ("node", "entry", "digest", "role", "says")


@raft_app.command("digests")
def raft_digests(namesrv: NameServers = "", data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE) -> None:
    """Show the digest of each broker's state, as of the last comparison.

    The digest covers the state just before the compared entry. Brokers with the
    same entry and different digests have different states. `undecided`: too few
    brokers have reported. `held`: all have reported and no majority agrees; the
    group serves no requests until `ternmq raft choose`.

    [bold]Examples[/bold]

    ternmq raft digests
    ternmq raft digests -o json
    """
    rows = digest_rows(answering_brokers(namesrv, data_dir))
    if output is Format.JSON:
        show_json(rows)
    else:
        show_rows([{name: row[name] for name in _SHOWN} for row in rows], list(_SHOWN), output)


@raft_app.command("choose")
def raft_choose(
    node: Annotated[str, typer.Argument(help="The broker with the valid state.")],
    yes: Sure = False,
    namesrv: NameServers = "",
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Choose the valid state when the brokers of a group differ and no majority agrees.

    The chosen broker becomes the leader and serves. The brokers that differ copy
    its log, one after the other, and rebuild their state from it. The choice ends
    once a majority agrees; remaining brokers that differ are rebuilt too. The log
    itself does not change: only the states differ.

    [bold]Examples[/bold]

    ternmq raft choose broker-a-1 --yes
    """
    nodes = nodes_of_group(answering_brokers(namesrv, data_dir), "", to=node)
    leader = leading_node(nodes)
    confirm(f"Choose the state of {node}, and rebuild the brokers that differ?", yes=yes)
    tell(leader, _CHOOSE_PATH, {"node": node}, failed="Nothing is chosen")
    if output is Format.JSON:
        show_json({"broker_group": leader.broker_group, "chosen": node, "leader": leader.name})
    else:
        typer.echo(f"The state of {node} holds in {leader.broker_group}. Watch the others with `ternmq raft digests`.")


def digest_rows(nodes: list[BrokerNode]) -> list[dict[str, Any]]:
    """Return one row per node for programs; None for unknown values."""
    rows: list[dict[str, Any]] = []
    for node in nodes:
        found = node.status.get("comparison", {})
        own = found.get("digests", {}).get(node.name)
        rows.append(
            {
                "node": node.name,
                "broker_group": node.broker_group,
                "role": node.status.get("role", "no answer"),
                "entry": found.get("index") if own else None,
                "digest": own,
                "judged_entry": found.get("judged_index"),
                "chosen": found.get("chosen", ""),
                "disagreement": found.get("disagreement", {}),
                "undecided": bool(found.get("undecided")),
                "held": bool(node.status.get("held")),
                "says": _said(node, found, is_known=bool(own)),
            }
        )
    return rows


def _said(node: BrokerNode, found: dict[str, Any], *, is_known: bool) -> str:
    if not node.status:
        return "no answer"
    if found.get("chosen"):
        return f"{found['chosen']} was chosen"
    if node.status.get("held"):
        return "held: no majority agrees"
    if found.get("undecided"):
        return "undecided: too few have reported"
    if not is_known:
        return "not compared yet"
    return "judged" if found["judged_index"] >= found["index"] else "waits to be judged"
