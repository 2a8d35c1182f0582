"""`ternmq raft digests` and `ternmq raft choose`: which broker says what its state is, and whose holds where no majority agrees."""

from typing import Annotated, Any

import typer

from tern_cli.commands.mesh import DataDir
from tern_cli.commands.raft import NameServers, raft_app
from tern_cli.commands.topic import Sure, confirm
from tern_cli.endpoint import DATA_DIR
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.views.raft_view import BrokerNode, answering_brokers, leading_node, nodes_of_group, tell

_CHOOSE_PATH = "/v1/broker/choose"
__all__ = ["digest_rows", "raft_app"]
_SHOWN = ("node", "entry", "digest", "role", "says")


@raft_app.command("digests")
def raft_digests(namesrv: NameServers = "", data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE) -> None:
    """Show what each broker says it has become: the digest of its state just before the entry at which they were compared last.

    Brokers with the same entry and another digest differ. `undecided`: too few have spoken; `held`: all have, no majority agrees, and the
    group takes no requests until `ternmq raft choose`.

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
    node: Annotated[str, typer.Argument(help="The broker whose state holds.")],
    yes: Sure = False,
    namesrv: NameServers = "",
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Let one broker's state hold, where the brokers of its group differ and no majority agrees.

    It is handed leadership and serves. One after the other, those that differ copy its log and make their state anew from that; when a majority
    agrees the choice is over, and who still differs is copied, too. Nothing changes in the log: it is in no doubt.

    [bold]Examples[/bold]

    ternmq raft choose broker-a-1 --yes
    """
    nodes = nodes_of_group(answering_brokers(namesrv, data_dir), "", to=node)
    leader = leading_node(nodes)
    confirm(f"Shall the state of {node} hold, and the brokers that differ be made anew?", yes=yes)
    tell(leader, _CHOOSE_PATH, {"node": node}, failed="Nothing is chosen")
    if output is Format.JSON:
        show_json({"broker_group": leader.broker_group, "chosen": node, "leader": leader.name})
    else:
        typer.echo(f"The state of {node} holds in {leader.broker_group}. Watch the others with `ternmq raft digests`.")


def digest_rows(nodes: list[BrokerNode]) -> list[dict[str, Any]]:
    """A row a node for programs: null for what is not known."""
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
        return "undecided: too few have spoken"
    if not is_known:
        return "not compared yet"
    return "judged" if found["judged_index"] >= found["index"] else "waits to be judged"
