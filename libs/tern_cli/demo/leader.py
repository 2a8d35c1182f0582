"""Fault of the demo: SIGKILL of the leading broker, then a wait until that node has caught up.

Works on a mesh of `ternmq up` on this machine. Processes come from .tern/mesh.json, their state
from each broker's own HTTP port.
"""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.process_table import send_signal
from tern_cli.mesh.view import node_status

__all__ = ["BACK_WITHIN_MS", "BrokerProcess", "LeaderKill", "broker_processes", "node_status"]

BACK_WITHIN_MS = 60_000
_LOOK_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProcess:
    """One broker of the mesh, from mesh.json."""

    name: str
    pid: int
    start_ticks: int
    http_port: int


def broker_processes(mesh: dict[str, Any]) -> list[BrokerProcess]:
    """Return the brokers in mesh.json, running or not; CommandFailed for fewer than three."""
    found = [
        BrokerProcess(
            name=row["name"], pid=row["pid"], start_ticks=row.get("start_ticks", 0), http_port=row["ports"]["http"]
        )
        for row in mesh.get("processes", [])
        if row.get("role") == "broker"
    ]
    if len(found) < 3:
        raise CommandFailed(
            "No leader to kill",
            f"--kill-leader needs a mesh of `ternmq up` with three brokers on this machine; mesh.json names {len(found)}.",
            exit_code=2,
        )
    return found


class LeaderKill:
    """Kills the leader once and follows its recovery. Owned by one run."""

    __slots__ = ("_files", "victim")

    def __init__(self, files: MeshFiles) -> None:
        self._files = files
        self.victim: BrokerProcess | None = None

    async def kill(self) -> BrokerProcess:
        """Send SIGKILL to the leading broker and return it; CommandFailed when none leads."""
        for broker in broker_processes(self._files.read_mesh()):
            status = await asyncio.to_thread(node_status, broker.http_port)
            if status.get("role") == "leader" and send_signal(broker.pid, broker.start_ticks, signal.SIGKILL):
                self.victim = broker
                return broker
        raise CommandFailed("No leader to kill", "No broker reports that it leads. See `ternmq status`.")

    async def wait_until_caught_up(self, now_ms: Callable[[], float]) -> float:
        """Wait until the victim runs again and has caught up with the leader; return the ms."""
        assert self.victim is not None, "kill first"
        began_ms = now_ms()
        while now_ms() - began_ms < BACK_WITHIN_MS:
            if await self._is_caught_up(self.victim):
                return now_ms() - began_ms
            await asyncio.sleep(_LOOK_INTERVAL_S)
        raise CommandFailed(
            "The killed broker did not come back",
            f"{self.victim.name} has not caught up within {BACK_WITHIN_MS // 1_000} s. Its log ends with:",
            lines=self._files.last_lines(self.victim.name, 10),
        )

    async def _is_caught_up(self, victim: BrokerProcess) -> bool:
        brokers = broker_processes(self._files.read_mesh())
        again = next((broker for broker in brokers if broker.name == victim.name), None)
        if again is None or again.pid in {0, victim.pid}:
            return False
        # The leader is read first: entries that it has committed now must be applied by the other a
        # moment later.
        statuses = [await asyncio.to_thread(node_status, broker.http_port) for broker in brokers if broker != again]
        committed = [status["commit_index"] for status in statuses if status.get("role") == "leader"]
        own = await asyncio.to_thread(node_status, again.http_port)
        if own.get("role") == "leader":
            return True
        return bool(committed) and own.get("applied_index", -1) >= max(committed)
