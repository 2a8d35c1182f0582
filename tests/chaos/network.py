"""Where the brokers of a chaos run listen, and how the network between them fails: one API, three ways.

    Loopback     all on 127.0.0.1; nothing can be cut
    Relays       the same, but each peer is dialled through a relay of its own (relay.py); needs no privileges
    Namespaces   a network namespace for each broker, joined by a bridge (namespaces.py); needs root

Law: a cut is directed. `cut("a", "b")` drops what a sends to b, silently, in connections that stand and in new ones; b's bytes still
reach a. Nothing is closed. The control plane (this process, name servers, proxies) always reaches every broker.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import IO, Protocol

from tern_cli.mesh.plan import HOST, ProcessPlan

# Behind the ports that `ternmq up --port-base` uses: link, Raft and HTTP of each directed pair of up to five nodes.
RELAY_PORTS_AT = 80


class Network(Protocol):
    """The network under a cluster."""

    kind: str
    control_host: str

    def host(self, node: str) -> str:
        """The address that *node* listens on."""
        ...

    def peer(self, node: str, other: str, raft_port: int) -> tuple[str, int]:
        """Where *node* dials the Raft port of *other*, which tells its HTTP port itself; until then it is looked for at the next one."""
        ...

    def prefix(self, node: str) -> tuple[str, ...]:
        """What stands before the command of *node*."""
        ...

    def cut(self, source: str, target: str) -> None:
        """Drop what *source* sends to *target* from now on."""
        ...

    def heal(self) -> None:
        """Undo every cut."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class Loopback:
    """No network to speak of."""

    kind = "loopback"
    control_host = HOST

    def host(self, node: str) -> str:
        """As Network.host."""
        return HOST

    def peer(self, node: str, other: str, raft_port: int) -> tuple[str, int]:
        """As Network.peer."""
        return HOST, raft_port

    def prefix(self, node: str) -> tuple[str, ...]:
        """As Network.prefix."""
        return ()

    def cut(self, source: str, target: str) -> None:
        """Not possible here."""
        raise AssertionError("this scenario needs a network that can be cut")

    def heal(self) -> None:
        """Nothing was cut."""

    def close(self) -> None:
        """Nothing was made."""


class Relays(Loopback):
    """A relay process between the brokers. Owner of that process, which ends with its standard input."""

    kind = "relays"

    def __init__(self, nodes: Sequence[str], port_base: int, raft_ports: dict[str, int]) -> None:
        self._ports = {
            pair: port_base + RELAY_PORTS_AT + 2 * number for number, pair in enumerate(permutations(nodes, 2))
        }
        pairs = [
            {"source": source, "target": target, "listen": port + at, "port": raft_ports[target] + at}
            for (source, target), port in self._ports.items()
            for at in (0, 1)
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.relay"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._tell({"pairs": pairs})

    def peer(self, node: str, other: str, raft_port: int) -> tuple[str, int]:
        """As Network.peer: through the relay of this pair."""
        return (HOST, raft_port) if node == other else (HOST, self._ports[node, other])

    def cut(self, source: str, target: str) -> None:
        """As Network.cut: in connections of either side."""
        self._tell({"cut": [source, target]})

    def heal(self) -> None:
        """As Network.heal."""
        self._tell({"heal": True})

    def close(self) -> None:
        """End the relays."""
        _pipe(self._process.stdin).close()
        self._process.wait(10)
        _pipe(self._process.stdout).close()

    def _tell(self, order: dict[str, object]) -> None:
        stdin, stdout = _pipe(self._process.stdin), _pipe(self._process.stdout)
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        assert stdout.readline() == "ok\n", "the relays are gone"


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def apart(groups: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """The directed pairs between different *groups*: cutting them all makes a partition."""
    parts = list(groups)
    return [
        (source, target) for one in parts for other in parts if one is not other for source in one for target in other
    ]


def placed(plan: ProcessPlan, network: Network, raft_ports: dict[str, int], options: Sequence[str]) -> ProcessPlan:
    """*plan* of `ternmq up` as it runs in *network*; brokers get *options* too."""
    argv = list(plan.argv)
    if plan.role == "broker":
        _set(argv, "--listen", network.host(plan.name))
        where = (network.peer(plan.name, other, port) for other, port in raft_ports.items())
        peers = (f"{other}={host}:{port}" for other, (host, port) in zip(raft_ports, where, strict=True))
        _set(argv, "--peers", ",".join(peers))
        argv += options
    if plan.role == "namesrv":
        _set(argv, "--listen", network.control_host)
    else:
        _set(argv, "--namesrv", argv[argv.index("--namesrv") + 1].replace(HOST, network.control_host))
    return ProcessPlan(name=plan.name, role=plan.role, argv=(*network.prefix(plan.name), *argv), ports=dict(plan.ports))


def _set(argv: list[str], option: str, value: str) -> None:
    argv[argv.index(option) + 1] = value


def may_make_namespaces() -> bool:
    """Whether this process may make network namespaces: root, and the tools are there."""
    return os.geteuid() == 0 and all(
        any(os.access(os.path.join(folder, tool), os.X_OK) for folder in os.environ.get("PATH", "").split(":"))
        for tool in ("ip", "unshare", "nsenter")
    )
