"""The data of `ternmq status`, and notes on problems.

Sources: the supervisor's rows, memory from the kernel, leaders from a name server, and the status
of each broker and each transaction checker.
"""

import http.client
import json
import shlex
from typing import Any

from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.http import connect
from tern_cli.mesh.process_table import is_same, rss_bytes
from tern_cli.mesh.supervision import EXIT_REFUSED
from tern_wire.paths import BROKER_PATH, CHECKER_PATH, ROUTES_PATH

_TIMEOUT_S = 1.0
# Roles with a status document, and its path.
TELLING = {"broker": BROKER_PATH, "txn-checker": CHECKER_PATH}
# Hosts named in one note.
_LOST_SHOWN_MAX = 3
_HOSTS_SHOWN_MAX = 3
_LINE_SHOWN_MAX = 300


def process_rows(files: MeshFiles, mesh: dict[str, Any], leading: set[str]) -> list[dict[str, Any]]:
    """Return one row per process and one for the supervisor.
    `state` comes from the supervisor, or is `dead` for a process that died since mesh.json was
    written, or `quarantined` for a broker that only reports its damage.
    """
    rows = [_row(files, row, leading) for row in mesh["processes"]]
    supervisor = {"name": "supervisor", "role": "supervisor", "ports": {}, "state": "running", "restarts": 0}
    return [*rows, _row(files, {**supervisor, **mesh["supervisor"]}, leading)]


def _row(files: MeshFiles, row: dict[str, Any], leading: set[str]) -> dict[str, Any]:
    alive = is_same(row["pid"], row["start_ticks"])
    state, last_line, said = row["state"], "", {}
    if state == "failed":
        state, last_line = f"failed: {row['reason']}", _last_line(files, row)
    elif state == "running" and not alive:
        state = "dead"
    elif row["role"] in TELLING and alive:
        said = answers(row, str(files.root)) or {}
        state = "quarantined" if said.get("role") == "quarantined" else state
    found = said.get("quarantined")
    return {
        "name": row["name"],
        "role": row["role"],
        "pid": row["pid"],
        "ports": row["ports"],
        "state": state,
        "rss_bytes": rss_bytes(row["pid"]) if alive else 0,
        "restarts": row["restarts"],
        "leader": "leader" if row["name"] in leading else "",
        "quarantined": found if isinstance(found, dict) else None,
        "rebuilding": str(said.get("rebuilding") or ""),
        "refuses_sends": bool(said.get("refuses_sends")),
        "space_held": said.get("space_held"),
        "dropped_unread": said.get("dropped_unread") or [],
        "lacks": str(said.get("lacks") or ""),
        "blocked": blocked_index(said),
        "silent_hosts": _silent_hosts(said),
        "last_line": last_line,
    }


def notes(files: MeshFiles, rows: list[dict[str, Any]]) -> list[str]:
    """Return one or two sentences for each problem in *rows* (of process_rows)."""
    found: list[str] = []
    for row in rows:
        name = row["name"]
        if row["state"] == "quarantined":
            damage = row["quarantined"] or {}
            where = f"{damage.get('file', 'its log')} is damaged at byte {damage.get('position', '?')}"
            check = f"ternmq store verify --data-dir {shlex.quote(str(files.data(name)))}"
            found.append(
                f"{name} is quarantined: {where} ({damage.get('reason', 'see its log')}). It takes no part in its group. "
                f"Once it is stopped, `{check}` lists all damage."
            )
        if row["state"].startswith("failed"):
            last = f" {files.log(name)} ends with: {row['last_line']}" if row["last_line"] else ""
            found.append(f"{name} {row['state']}.{last}")
        if row["rebuilding"]:
            found.append(f"{name} is rebuilding derived files from its log: {row['rebuilding']}.")
        if row["refuses_sends"]:
            found.append(f"{name} refuses sends, because its disk or its budget is full; receiving and acking go on.")
        if row["space_held"]:
            found.append(f"{name} cannot make room: {_space_held(row['space_held'])}")
        # Every node counts the same drops, so only the leader's count is shown.
        if row["dropped_unread"] and row["leader"]:
            found.append(f"{name} has dropped unread messages, {_dropped(row['dropped_unread'])}.")
        if row["lacks"]:
            found.append(f"{name} is refused something by its operating system, and tries again: {row['lacks']}.")
        if row["blocked"]:
            found.append(
                f"{name} cannot apply entry {row['blocked']} of its log and waits in front of it: see `ternmq raft blocked`."
            )
        if row["silent_hosts"]:
            more = len(row["silent_hosts"]) - _HOSTS_SHOWN_MAX
            hosts = ", ".join(row["silent_hosts"][:_HOSTS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
            found.append(f"{name} asks about open transactions and gets no answer from {hosts}; it goes on trying.")
    return found


def _space_held(held: dict[str, Any]) -> str:
    topic, group, messages = held.get("topic"), held.get("group"), held.get("messages", 0)
    whose = f"group {group} has not read" if group else "no consumer group has begun to read"
    return (
        f"{whose} {messages:,} messages of topic {topic}, which are younger than the retention. Let it read on, or seek it forward; add disk "
        f"space; or let them go: `ternmq topic alter {topic} --when-full drop-oldest`."
    )


def _dropped(rows: list[dict[str, Any]]) -> str:
    shown = "; ".join(
        f"{row['messages']:,} messages of {row['topic']} for {row['group']}" for row in rows[:_LOST_SHOWN_MAX]
    )
    return f"{shown} and more" if len(rows) > _LOST_SHOWN_MAX else shown


def blocked_index(said: dict[str, Any]) -> int | None:
    """Return the entry that a broker cannot apply, from its status; None if there is none."""
    found = said.get("blocked")
    return found.get("index") if isinstance(found, dict) else None


def _silent_hosts(said: dict[str, Any]) -> list[str]:
    """Return the hosts in a checker's status whose circuits are not closed.
    Each comes with the result of the last call.
    """
    hosts = said.get("hosts")
    return [
        f"{host.get('host')}:{host.get('port')} ({host.get('last')})"
        for host in (hosts if isinstance(hosts, list) else [])
        if isinstance(host, dict) and host.get("circuit") != "closed"
    ]


def answers(row: dict[str, Any], data_dir: str = "") -> dict[str, Any] | None:
    """Return the status of a broker or a checker of the mesh in *data_dir*.
    {} when the answer is not a status, None when there is no answer.
    """
    url = row.get("url") or f"http://127.0.0.1:{row['ports'].get('http', 0)}"
    connection = connect(url, timeout_s=_TIMEOUT_S, data_dir=data_dir)
    try:
        connection.request("GET", TELLING[row["role"]])
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    try:
        status = json.loads(body) if answer.status == 200 else {}
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}


def node_status(port: int) -> dict[str, Any]:
    """Return the status of the broker whose HTTP port is *port*; {} when it does not answer."""
    return answers({"role": "broker", "ports": {"http": port}}) or {}


def _last_line(files: MeshFiles, row: dict[str, Any]) -> str:
    """Return why the process of *row* ended: its refusal to start or its log's last line, or ""."""
    lines = [line.strip() for line in files.last_lines(row["name"], 50) if line.strip()]
    # A refusal counts only if the process ended with it: the log also holds earlier starts.
    refusals = [line for line in lines if line.startswith("error: ")] if row.get("exit_code") == EXIT_REFUSED else []
    return next(iter([*refusals[-1:], *lines[-1:]]), "")[:_LINE_SHOWN_MAX]


def leaders(namesrvs: list[str], data_dir: str = "") -> set[str]:
    """Return the nodes that lead their broker group.
    Empty when no name server answers: a table without leaders is still a status.
    """
    return {
        group["leader"] for group in routes_of(namesrvs, data_dir).get("broker_groups", {}).values() if group["leader"]
    }


def routes_of(namesrvs: list[str], data_dir: str = "") -> dict[str, Any]:
    """Return the routes document of the first name server that answers; empty when none does.
    The document is tern_wire.routing.route.Routes. *data_dir*: directory of the operator's
    certificate, for https.
    """
    for endpoint in namesrvs:
        connection = connect(endpoint, timeout_s=_TIMEOUT_S, data_dir=data_dir)
        try:
            connection.request("GET", ROUTES_PATH)
            routes = json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            continue
        finally:
            connection.close()
        if isinstance(routes, dict) and "broker_groups" in routes:
            return routes
    return {}
