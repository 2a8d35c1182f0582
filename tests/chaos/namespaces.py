"""Network namespaces for brokers: each has an interface of its own on a bridge, and drops what it must not hear.

    this process, name servers, proxies      broker-a-0          broker-a-1         broker-a-2
           127.1.0.1 on the bridge           127.1.0.2           127.1.0.3          127.1.0.4
                     +-----------------------veth----------------veth---------------veth

Brokers listen on loopback addresses only, so these are such addresses: the kernel routes them over real interfaces once
route_localnet is on and 127.0.0.0/8 no longer belongs to `lo`. A cut is a routing rule at the receiver, `from SOURCE blackhole`: as
with a firewall nothing comes back, a sender's TCP repeats and backs off, and dialling runs into its time-out.

Law: nothing outlives the run, however it ends. This process moves into a new namespace of its own first; the brokers' are held by
children that end with their standard input; a namespace that nobody is in is gone, with its interfaces and rules.
"""

import ctypes
import os
import subprocess
from collections.abc import Sequence

_CLONE_NEWNET = 0x40000000
CONTROL_HOST = "127.1.0.1"
_PREFIX_SIZE = 24
_BRIDGE = "bridge0"
_DEVICE = "link0"
# Asked before the table of local addresses, which has to move out of the way first.
_CUT_PRIORITY, _LOCAL_PRIORITY = 10, 100


class Namespaces:
    """The namespaces of *nodes*. Owner of the children that hold them; made once in a process, which cannot go back."""

    kind = "namespaces"
    control_host = CONTROL_HOST

    def __init__(self, nodes: Sequence[str]) -> None:
        self._hosts = {node: f"127.1.0.{number}" for number, node in enumerate(nodes, 2)}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._cuts: list[tuple[str, str]] = []
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "this process may not make a network namespace")
        _loopback_as_any_network(())
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "link", "set", _BRIDGE, "up")
        _run("ip", "addr", "add", f"{CONTROL_HOST}/{_PREFIX_SIZE}", "dev", _BRIDGE)
        for number, node in enumerate(nodes):
            self._add(node, f"veth{number}")

    def _add(self, node: str, device: str) -> None:
        # It prints once it is inside, and holds the namespace until its standard input ends.
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo in; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._holders[node] = holder
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"in\n", "no namespace was made"
        _run("ip", "link", "add", device, "type", "veth", "peer", "name", _DEVICE, "netns", str(holder.pid))
        _run("ip", "link", "set", device, "master", _BRIDGE, "up")
        inside = self.prefix(node)
        _loopback_as_any_network(inside)
        _run(*inside, "ip", "link", "set", _DEVICE, "up")
        _run(*inside, "ip", "addr", "add", f"{self._hosts[node]}/{_PREFIX_SIZE}", "dev", _DEVICE)
        _run(*inside, "ip", "rule", "add", "pref", str(_LOCAL_PRIORITY), "lookup", "local")
        _run(*inside, "ip", "rule", "del", "pref", "0")

    def host(self, node: str) -> str:
        """As Network.host."""
        return self._hosts[node]

    def peer(self, node: str, other: str, raft_port: int) -> tuple[str, int]:
        """As Network.peer."""
        return self._hosts[other], raft_port

    def prefix(self, node: str) -> tuple[str, ...]:
        """As Network.prefix: nsenter becomes the command, so process ids stay what they are. Others run where this process is."""
        if node not in self._holders:
            return ()
        return ("nsenter", f"--net=/proc/{self._holders[node].pid}/ns/net")

    def cut(self, source: str, target: str) -> None:
        """As Network.cut."""
        if (source, target) not in self._cuts:
            self._cuts.append((source, target))
            self._rule("add", source, target)

    def heal(self) -> None:
        """As Network.heal."""
        for source, target in self._cuts:
            self._rule("del", source, target)
        self._cuts.clear()

    def _rule(self, verb: str, source: str, target: str) -> None:
        rule = ("pref", str(_CUT_PRIORITY), "from", self._hosts[source], "iif", _DEVICE, "blackhole")
        _run(*self.prefix(target), "ip", "rule", verb, *rule)

    def close(self) -> None:
        """Let the namespaces go."""
        for holder in self._holders.values():
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.close()
            holder.wait(10)
            holder.stdout.close()


def _loopback_as_any_network(inside: tuple[str, ...]) -> None:
    """127.0.0.1 stays on `lo`, all other addresses of 127.0.0.0/8 may be on any interface."""
    _run(*inside, "ip", "link", "set", "lo", "up")
    _run(*inside, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo")
    _run(*inside, "ip", "addr", "add", "127.0.0.1/32", "dev", "lo")
    # An established connection must ask the rules again, not remember its way.
    for key in ("conf/all/route_localnet", "conf/default/route_localnet", "ip_early_demux"):
        value = "0" if key == "ip_early_demux" else "1"
        _run(*inside, "sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{key}")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
