"""What `ternmq status` shows: the supervisor's rows with memory from the kernel and leaders from a name server."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from tern_cli.process_table import is_same, rss_bytes
from tern_wire.paths import ROUTES_PATH

_TIMEOUT_S = 1.0


def process_rows(mesh: dict[str, Any], leading: set[str]) -> list[dict[str, Any]]:
    """One row per process and one for the supervisor; a process that died since mesh.json was written is `dead`."""
    rows = [_row(row, leading) for row in mesh["processes"]]
    supervisor = {"name": "supervisor", "role": "supervisor", "ports": {}, "state": "running", "restarts": 0}
    return [*rows, _row({**supervisor, **mesh["supervisor"]}, leading)]


def _row(row: dict[str, Any], leading: set[str]) -> dict[str, Any]:
    alive = is_same(row["pid"], row["start_ticks"])
    state = row["state"]
    if state == "failed":
        state = f"failed: {row['reason']}"
    elif state == "running" and not alive:
        state = "dead"
    return {
        "name": row["name"],
        "role": row["role"],
        "pid": row["pid"],
        "ports": row["ports"],
        "state": state,
        "rss_bytes": rss_bytes(row["pid"]) if alive else 0,
        "restarts": row["restarts"],
        "leader": "leader" if row["name"] in leading else "",
    }


def leaders(namesrvs: list[str]) -> set[str]:
    """Names of the nodes that lead their broker group; empty when no name server answers: a table without them is still a status."""
    return {group["leader"] for group in routes_of(namesrvs).get("broker_groups", {}).values() if group["leader"]}


def routes_of(namesrvs: list[str]) -> dict[str, Any]:
    """The routes document (tern_wire.route.Routes) of the first name server that answers; empty when none does."""
    for endpoint in namesrvs:
        address = urlsplit(endpoint)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT_S)
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
