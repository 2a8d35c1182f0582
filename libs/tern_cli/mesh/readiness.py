"""Probes of a starting mesh: it accepts a message, name servers are warm, processes are ready.

Standard library only and one short connection per probe, so that `ternmq up` starts fast.
"""

import http.client
import json
from pathlib import Path
from typing import Any

from tern_cli.mesh.http import connect, connect_to_proxy
from tern_wire.reasons import reason_of

# `ternmq up` sends one message per start to this topic. The messages stay, as a record of the
# starts.
READINESS_TOPIC = "ternmq-up"
_TIMEOUT_S = 2.0
# Code of a mesh that refuses sends for lack of disk space (tern_wire.errors.DiskFull, which is not
# imported to start fast).
DISK_FULL = "disk-full"


def accepts_a_message(endpoint: str, directory: Path) -> str:
    """Return "" once a message is stored through *endpoint*, else why not.
    In a secure mesh the probe uses the root key, which may create a topic (as durable as a message)
    but may not send. *directory*: that of the mesh's files.
    """
    path = f"/v1/topics/{READINESS_TOPIC}"
    # The topic is created on every attempt: a name server that has just started answers an unknown
    # topic with 503 for some seconds.
    key = _root_key(endpoint, directory)

    def ask(method: str, path: str, body: bytes) -> tuple[int, dict[str, Any], str]:
        connection = connect_to_proxy(endpoint, timeout_s=_TIMEOUT_S, directory=directory)
        return _ask(connection, endpoint, method, path, body, key)

    status, told, said = ask("PUT", path, b'{"queues":1}')
    if status < 300 and not key:
        status, told, said = ask("POST", f"{path}/messages", b"up")
    # A full disk refuses sends only. Receiving and acking, which may free it, must be possible.
    return "" if 200 <= status < 300 or told.get("code") == DISK_FULL else said


def is_warming_up(namesrv: str, directory: Path) -> str:
    """Return why a topic unknown to the name server may still exist; "" when it cannot.
    A name server that does not answer gives "" and delays nothing: proxies query another one.
    """
    connection = connect(namesrv, timeout_s=_TIMEOUT_S, data_dir=str(directory))
    _, told, _ = _ask(connection, namesrv, "GET", "/readyz")
    return f"The name server {namesrv} has not registered every broker group yet" if told.get("warm") is False else ""


def why_not_ready(row: dict[str, Any], directory: Path) -> str:
    """Return "" once the proxy or the checker of *row* (of mesh.json) is ready, else why not.
    A proxy is queried with the root key.
    """
    url = str(row["url"])
    if row["role"] == "proxy":
        key = _root_key(url, directory)
        connection = connect_to_proxy(url, timeout_s=_TIMEOUT_S, directory=directory)
    else:
        key, connection = "", connect(url, timeout_s=_TIMEOUT_S, data_dir=str(directory))
    status, _, said = _ask(connection, f"{row['name']} at {url}", "GET", "/readyz", key=key)
    return "" if status < 300 else said


def _root_key(endpoint: str, directory: Path) -> str:
    return f"Bearer {(directory / 'root.key').read_text().strip()}" if endpoint.startswith("https://") else ""


def _ask(
    connection: http.client.HTTPConnection, endpoint: str, method: str, path: str, body: bytes = b"", key: str = ""
) -> tuple[int, dict[str, Any], str]:
    """Return status, document ({} when there is none) and a sentence. Closes *connection*."""
    try:
        headers = {"Content-Type": "application/json" if method == "PUT" else "text/plain"}
        if key:
            headers["Authorization"] = key
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        body = response.read()
        told = _document(body)
        detail = told.get("detail") or body[:200].decode("utf-8", "replace")
        return response.status, told, f"{endpoint} answers {response.status}: {detail}"
    except (OSError, http.client.HTTPException) as error:
        return 599, {}, f"{endpoint} does not answer ({reason_of(error)})"
    finally:
        connection.close()


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
