"""A second broker group beside a mesh of `ternmq up`: one broker, started by hand, whom the same name servers hear of."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.support.mesh.mesh import Mesh, eventually

BROKER_GROUP, NODE = "broker-b", "broker-b-0"
_GROUP_ID = "b" * 32
# Behind the three brokers of the mesh.
_PORT_OFFSET = 50


class SecondGroup:
    """It is there once it was started."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it leads itself and every proxy knows."""
        mesh, link = self._mesh, self._mesh.port_base + _PORT_OFFSET
        options = {
            "cluster": "tern",
            "broker-group": BROKER_GROUP,
            "node": NODE,
            "listen": "127.0.0.1",
            "link-port": str(link),
            "raft-port": str(link + 1),
            "http-port": str(link + 2),
            "peers": f"{NODE}=127.0.0.1:{link + 1}",
            "namesrv": mesh.namesrv,
            "data-dir": str(mesh.directory / "data" / NODE),
            "cluster-key-file": str(mesh.directory / "cluster.key"),
            "group-id": _GROUP_ID,
            "heartbeat-interval-ms": "1000",
            "segment-size-bytes": str(16 << 20),
        }
        flat = itertools.chain.from_iterable((f"--{name}", value) for name, value in options.items())
        with (mesh.directory / "logs" / f"{NODE}.log").open("wb") as log:
            command = [sys.executable, "-P", "-m", "tern_broker", *flat, "--bootstrap"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        for proxy in range(sum(each["role"] == "proxy" for each in mesh.processes())):
            eventually(partial(_leads, mesh, proxy), within_s=30, what=f"proxy-{proxy} knows {NODE}")

    def stop(self) -> None:
        """End it, if it was started."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=30)


@contextmanager
def second_group(mesh: Mesh) -> Iterator[SecondGroup]:
    """One that is stopped behind the block."""
    found = SecondGroup(mesh)
    try:
        yield found
    finally:
        found.stop()


def _leads(mesh: Mesh, proxy: int) -> bool:
    found = mesh.call("GET", "/readyz", proxy=proxy).json()
    return bool(found.get("leaders", {}).get(BROKER_GROUP))
