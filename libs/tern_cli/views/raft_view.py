"""State of the brokers' replicated log: finds their HTTP ports, requests their status, makes rows.

Brokers are queried directly, not through a proxy: a group's nodes report its problems even when no
proxy runs. Standard library only.
"""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from tern_cli.endpoint import name_servers
from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.http import connect
from tern_cli.mesh.view import blocked_index, routes_of

TRANSFER_PATH = "/v1/broker/transfer"
_STATUS_PATH = "/v1/broker"
# A stopped process accepts connections and never answers; the other rows must not wait long.
_TIMEOUT_S = 1.0
# Nodes queried at a time; a mesh on one machine has at most five.
_ASKED_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """One broker: its HTTP address, and its status document (empty without an answer)."""

    broker_group: str
    name: str
    http: str
    status: dict[str, Any] = field(default_factory=dict)
    # With TLS; data_dir is the directory of the operator's certificate.
    is_secure: bool = False
    data_dir: str = ""

    @property
    def leads(self) -> bool:
        """Return whether the broker leads its group and serves requests."""
        return self.status.get("role") == "leader" and bool(self.status.get("serving"))

    @property
    def term(self) -> int:
        """Return the Raft term of the broker."""
        return int(self.status.get("term", 0))


def ask_brokers(namesrv: str, data_dir: str) -> list[BrokerNode]:
    """Return every broker with its status, ordered by group and name.
    These are brokers that a name server lists or that `ternmq up` started in *data_dir*.
    CommandFailed when *namesrv* is no URL or mesh.json is damaged.
    """
    places: dict[tuple[str, str], str] = {}
    servers = name_servers(namesrv, data_dir)
    is_secure = any(url.startswith("https://") for url in servers)
    for name, group in routes_of(servers, data_dir).get("broker_groups", {}).items():
        places |= {(name, node): str(place["http"]) for node, place in group["nodes"].items()}
    known = {node for _, node in places}
    if not namesrv:
        # Nodes that name servers have dropped, or cannot list: an operator looks for exactly these.
        for row in MeshFiles(data_dir).read_mesh().get("processes", ()):
            if row["role"] == "broker" and row["name"] not in known:
                places[row["name"].rpartition("-")[0], row["name"]] = f"127.0.0.1:{row['ports'].get('http', 0)}"
    nodes = [
        BrokerNode(broker_group=group, name=name, http=at, is_secure=is_secure, data_dir=data_dir)
        for (group, name), at in sorted(places.items())
    ]
    return ask_again(nodes)


def answering_brokers(namesrv: str, data_dir: str) -> list[BrokerNode]:
    """Return every broker with its status; CommandFailed when none of them answers."""
    nodes = ask_brokers(namesrv, data_dir)
    if not any(node.status for node in nodes):
        asked = f"{', '.join(node.name for node in nodes)} did not answer" if nodes else "No broker is known"
        raise CommandFailed(
            "No broker can be reached", f"{asked}. Is the mesh up? Name its name servers with --namesrv."
        )
    return nodes


def nodes_of_group(nodes: list[BrokerNode], broker_group: str, *, to: str = "") -> list[BrokerNode]:
    """Return the nodes of the group named by *broker_group*, or by one of its nodes (*to*).
    CommandFailed (exit 2) when no group matches, or several do.
    """
    names = {node.broker_group for node in nodes}
    if to:
        names = {node.broker_group for node in nodes if node.name == to}
        if not names:
            raise CommandFailed("No such broker", f"'{to}' is none of {', '.join(n.name for n in nodes)}.", exit_code=2)
    if broker_group:
        names &= {broker_group}
    if len(names) != 1:
        known = ", ".join(sorted({node.broker_group for node in nodes}))
        raise CommandFailed("Which broker group?", f"Choose one with --broker-group: {known}.", exit_code=2)
    return [node for node in nodes if node.broker_group in names]


def ask_again(nodes: list[BrokerNode]) -> list[BrokerNode]:
    """Return the same *nodes* with their current status; all are queried at once."""

    def ask(node: BrokerNode) -> BrokerNode:
        code, said = call(node, "GET", _STATUS_PATH)
        return replace(node, status=said if code == 200 else {})

    with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as threads:
        return list(threads.map(ask, nodes))


def call(
    node: BrokerNode, method: str, path: str, document: dict[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return status and document of one request to *node*; (0, {}) when no answer comes in time."""
    body = None if document is None else json.dumps(document)
    try:
        url = f"{'https' if node.is_secure else 'http'}://{node.http}"
        connection = connect(url, timeout_s=_TIMEOUT_S, data_dir=node.data_dir)
    except ValueError:
        return 0, {}
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        said = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError):
        return 0, {}
    finally:
        connection.close()
    return answer.status, said if isinstance(said, dict) else {}


def leader_of(nodes: list[BrokerNode]) -> BrokerNode | None:
    """Return the serving leader of the newest term; a deposed leader may report an older one."""
    return max((node for node in nodes if node.leads), key=lambda node: node.term, default=None)


def leading_node(nodes: list[BrokerNode]) -> BrokerNode:
    """Return the leader of the newest term among *nodes* of one group, serving or not.
    CommandFailed when there is no leader.
    """
    leading = [node for node in nodes if node.status.get("role") == "leader"]
    if not leading:
        raise CommandFailed("Nobody leads now", "Most of the group's brokers must run. See `ternmq raft status`.")
    return max(leading, key=lambda node: node.term)


def tell(leader: BrokerNode, path: str, document: dict[str, Any], *, failed: str) -> None:
    """Post an operator's request to *leader*.
    CommandFailed, with the title *failed* and the reason, unless the leader accepts it.
    """
    code, answer = call(leader, "POST", path, document)
    if code != 202:
        reason = answer.get("reason") or answer.get("detail") or f"{leader.http} answered {code or 'nothing'}"
        raise CommandFailed(failed, f"{leader.name} refuses: {reason}.")


def raft_rows(nodes: list[BrokerNode]) -> list[dict[str, Any]]:
    """Return one row per node for programs; None for unknown values.
    `lag`: entries of the leader's log that the node lacks, as the leader reports it.
    """
    rows: list[dict[str, Any]] = []
    for node in nodes:
        leader = leader_of([one for one in nodes if one.broker_group == node.broker_group])
        peers = leader.status.get("peers", ()) if leader is not None else ()
        matched = {peer["node"]: int(peer["match_index"]) for peer in peers}
        lag = None
        if leader is not None and leader.name == node.name:
            lag = 0
        elif leader is not None and node.name in matched:
            lag = max(0, int(leader.status["last_index"]) - matched[node.name])
        said = node.status
        rows.append(
            {
                "node": node.name,
                "broker_group": node.broker_group,
                "http": node.http,
                "role": said.get("role", "no answer"),
                "serving": said.get("serving", False),
                "standing": said.get("standing"),
                "term": said.get("term"),
                "version": said.get("version"),
                "level": said.get("level"),
                "commit_index": said.get("commit_index"),
                "applied_index": said.get("applied_index"),
                "last_index": said.get("last_index"),
                "blocked_index": blocked_index(said),
                "lag": lag,
                "fsync_ms": said.get("fsync_ms"),
                "disk_permille": said.get("disk_permille"),
                "connected_peers": [peer["node"] for peer in said.get("peers", ()) if peer["connected"]],
                "peers": len(said.get("peers", ())),
            }
        )
    return rows
