"""More broker groups beside the one of a bench's mesh: three brokers each, started by hand."""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from loadtest.bench.own_mesh import HOST, OwnMesh

BROKERS = 3
# Ports behind those of the mesh: link, Raft and HTTP of each broker.
_FIRST_PORT, _PORTS_EACH = 80, 3
_READY_WITHIN_S = 60.0


@contextmanager
def more_groups(mesh: OwnMesh, count: int) -> Iterator[OwnMesh]:
    """Yield *mesh* with *count* more broker groups, their processes among its own; end them after.

    Topics that are created from now on are in all groups. RuntimeError when a group has no leader
    within a minute.
    """
    running = json.loads((mesh.data_dir / "mesh.json").read_bytes())
    names = [chr(ord("b") + number) for number in range(count)]
    pids = dict(mesh.pids)
    with ExitStack() as stack:
        for number, letter in enumerate(names):
            for node, process in _start(mesh, running["namesrvs"], number, letter, stack):
                pids[node] = process.pid
        _wait_for({f"broker-{letter}" for letter in names}, mesh)
        yield replace(mesh, pids=pids)


def _start(
    mesh: OwnMesh, name_servers: list[str], number: int, letter: str, stack: ExitStack
) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    first = mesh.port + _FIRST_PORT + number * BROKERS * _PORTS_EACH
    links = {f"broker-{letter}-{node}": first + node * _PORTS_EACH for node in range(BROKERS)}
    for name, link in links.items():
        options = {
            "cluster": "tern",
            "broker-group": f"broker-{letter}",
            "node": name,
            "listen": HOST,
            "link-port": str(link),
            "raft-port": str(link + 1),
            "http-port": str(link + 2),
            "peers": ",".join(f"{peer}={HOST}:{port + 1}" for peer, port in links.items()),
            "namesrv": ",".join(name_servers),
            "data-dir": str(mesh.data_dir / "data" / name),
            "cluster-key-file": str(mesh.data_dir / "cluster.key"),
            "group-id": letter * 32,
            "heartbeat-interval-ms": "2000",
        }
        flat = itertools.chain.from_iterable((f"--{option}", value) for option, value in options.items())
        with (mesh.data_dir / "logs" / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-P", "-m", "tern_broker", *flat, "--bootstrap"]
            process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603 - our own module
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)
        yield name, process


def _wait_for(groups: set[str], mesh: OwnMesh) -> None:
    deadline_s = time.monotonic() + _READY_WITHIN_S
    while missing := {name for name in groups if not mesh.ask("GET", "/readyz").get("leaders", {}).get(name)}:
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"no leader of {', '.join(sorted(missing))} after {_READY_WITHIN_S:.0f} s")
        time.sleep(0.1)
