"""A fresh mesh for one bench: started by `ternmq up`, measured, stopped, removed.

It has a folder and ports of its own.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
_PORTS = (0, 10, *range(20, 43))  # ports of `ternmq up --port-base` for 1 proxy, 1 name server, 3 brokers
_UP_TIMEOUT_S = 60.0
# The folder of logs for "The bench failed".
FAILED_LOGS = "failed-logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMesh:
    """A running mesh: its proxy's port, its processes with the supervisor, its start time."""

    port: int
    pids: dict[str, int]
    startup_s: float
    data_dir: Path

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Send one request to the proxy outside the measured path; RuntimeError when it fails."""
        connection = HTTPConnection(HOST, self.port, timeout=30)
        try:
            connection.request(
                method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"}
            )
            reply = connection.getresponse()
            text = reply.read()
        finally:
            connection.close()
        if reply.status >= 300:
            raise RuntimeError(f"{method} {path}: {reply.status} {text[:500].decode(errors='replace')}")
        document: dict[str, Any] = json.loads(text or b"{}")
        return document

    def brokers(self) -> list[str]:
        """Return the addresses of the brokers' HTTP ports."""
        running = json.loads((self.data_dir / "mesh.json").read_bytes())
        return [f"{HOST}:{row['ports']['http']}" for row in running["processes"] if row["role"] == "broker"]

    def broker_statuses(self) -> list[dict[str, Any]]:
        """Return the status of each broker."""
        return [_get(address, "/v1/broker") for address in self.brokers()]

    def stored(self, topic: str) -> int:
        """Return the number of messages in the topic, from the offsets of its queues."""
        queues = self.ask("GET", f"/v1/topics/{topic}/offsets")["queues"]
        return sum(queue["max_offset"] - queue["min_offset"] for queue in queues)


# The proxy's setting for the number of topics and groups that one client may create in a second.
_ANY_CREATIONS = "TERN_PROXY_CREATIONS_PER_S"


@contextmanager
def own_mesh(folder: Path, *options: str, tree: Path | None = None) -> Iterator[OwnMesh]:
    """Yield a mesh of 3 brokers below *folder*.

    *folder* is on a real disk, since /tmp may be memory, where fdatasync costs nothing. *options*:
    more of `ternmq up`; *tree*: another checkout, whose code the processes run. The logs of its
    processes stay below *folder* after a failure: see FAILED_LOGS.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data_dir = Path(tempfile.mkdtemp(prefix="mesh-", dir=folder.resolve()))
    port_base = _free_port_base()
    try:
        began_s = time.monotonic()
        _ternmq("up", "--port-base", str(port_base), "--disk-budget", "0", *options, data_dir=data_dir, tree=tree)
        mesh = OwnMesh(port=port_base, pids={}, startup_s=0, data_dir=data_dir)
        mesh.ask("PUT", "/v1/topics/first", {"queues": 1})
        mesh.ask("POST", "/v1/topics/first/messages", "the first message")
        startup_s = time.monotonic() - began_s
        yield OwnMesh(port=port_base, pids=_pids(data_dir), startup_s=startup_s, data_dir=data_dir)
    except Exception:
        _keep_logs(data_dir, folder / FAILED_LOGS)
        raise
    finally:
        _ternmq("down", data_dir=data_dir, tree=tree)
        shutil.rmtree(data_dir)


def _keep_logs(data_dir: Path, kept: Path) -> None:
    """Replace the kept logs by those of the mesh that has just failed."""
    shutil.rmtree(kept, ignore_errors=True)
    for log in data_dir.rglob("*.log"):
        kept.mkdir(exist_ok=True)
        shutil.copy(log, kept / log.name)


def restart(mesh: OwnMesh) -> OwnMesh:
    """Return the same mesh after `ternmq down` and `ternmq up`.

    `startup_s`: from the start of `ternmq up` until every broker is ready.
    """
    _ternmq("down", data_dir=mesh.data_dir)
    began_s = time.monotonic()
    _ternmq("up", data_dir=mesh.data_dir)
    while not all(map(_is_ready, mesh.brokers())):
        if time.monotonic() > began_s + _UP_TIMEOUT_S:
            raise RuntimeError(f"not every broker is ready {_UP_TIMEOUT_S:.0f} s after `ternmq up`")
        time.sleep(0.02)
    return replace(mesh, pids=_pids(mesh.data_dir), startup_s=time.monotonic() - began_s)


def _get(address: str, path: str) -> dict[str, Any]:
    connection = HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", path)
        document: dict[str, Any] = json.loads(connection.getresponse().read())
        return document
    finally:
        connection.close()


def _is_ready(address: str) -> bool:
    connection = HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _ternmq(command: str, *options: str, data_dir: Path, tree: Path | None = None) -> None:
    argv = [sys.executable, "-m", "tern_cli", command, *options, "--data-dir", str(data_dir)]
    # One client creates ten thousand topics here. Another checkout may not have the setting.
    more = {_ANY_CREATIONS: "0"} if tree is None else {"PYTHONPATH": os.pathsep.join(map(str, _sources(tree)))}
    done = subprocess.run(  # noqa: S603
        argv, capture_output=True, text=True, timeout=_UP_TIMEOUT_S, check=False, cwd=tree, env={**os.environ, **more}
    )
    if done.returncode:
        raise RuntimeError(f"ternmq {command}: exit {done.returncode}\n{done.stdout}{done.stderr}")


def _sources(tree: Path) -> list[Path]:
    """Return the paths of the packages in the checkout *tree*; they come before installed ones."""
    root = tree.resolve()
    return [root / "libs", *sorted(path for path in (root / "services").iterdir() if path.is_dir()), root / "spark"]


def _pids(data_dir: Path) -> dict[str, int]:
    running = json.loads((data_dir / "mesh.json").read_bytes())
    return {
        **{process["name"]: process["pid"] for process in running["processes"]},
        "supervisor": running["supervisor"]["pid"],
        "load": os.getpid(),
    }


def _free_port_base() -> int:
    for _ in range(100):
        base = random.randrange(20_000, 32_000, 100)  # below the kernel's ephemeral ports
        if all(_is_free(base + offset) for offset in _PORTS):
            return base
    raise RuntimeError("no free range of 100 ports between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
