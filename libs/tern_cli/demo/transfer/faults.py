"""What goes wrong on purpose in a run, and when: SIGKILL to the broker that leads, and to the txn-checker."""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

from tern_cli.demo.leader import LeaderKill
from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.process_table import send_signal

# Of all transfers, when the checker and the leader are killed.
CHECKER_KILL_AT, LEADER_KILL_AT = 0.3, 0.5
_CHECKER_ROLE = "txn-checker"


def checker_process(mesh: dict[str, Any]) -> dict[str, Any]:
    """The first txn-checker in mesh.json that runs; CommandFailed when there is none."""
    for row in mesh.get("processes", []):
        if row["role"] == _CHECKER_ROLE and row["pid"]:
            return dict(row)
    raise CommandFailed(
        "No txn-checker to kill",
        "--kill-checker needs a mesh of `ternmq up` with a txn-checker on this machine, and mesh.json names none.",
        exit_code=2,
    )


class Faults:
    """The kills of one run. Owner: that run, which says from time to time how far it is."""

    __slots__ = ("_checker_due", "_files", "_leader", "_leader_due", "_say", "killed")

    def __init__(self, files: MeshFiles, say: Callable[[str], None]) -> None:
        self._files, self._say = files, say
        self._leader = LeaderKill(files)
        self._leader_due, self._checker_due = asyncio.Event(), asyncio.Event()
        # What was killed, by what it was.
        self.killed: dict[str, str] = {}

    def note(self, settled: float, *, may_be_checked: bool) -> None:
        """*settled*: the part of all transfers; *may_be_checked*: a checker would have something to do."""
        if settled >= LEADER_KILL_AT:
            self._leader_due.set()
        if settled >= CHECKER_KILL_AT and may_be_checked:
            self._checker_due.set()

    async def kill_leader(self) -> None:
        """When it is time."""
        await self._leader_due.wait()
        victim = await self._leader.kill()
        self.killed["leader"] = victim.name
        self._say(f"SIGKILL to {victim.name} (pid {victim.pid}), the leader")

    async def kill_checker(self) -> None:
        """When it is time; CommandFailed when none runs then."""
        await self._checker_due.wait()
        row = checker_process(self._files.read_mesh())
        if not send_signal(row["pid"], row["start_ticks"], signal.SIGKILL):
            raise CommandFailed("No txn-checker to kill", f"{row['name']} ended just now. See `ternmq status`.")
        self.killed[_CHECKER_ROLE] = row["name"]
        self._say(f"SIGKILL to {row['name']} (pid {row['pid']})")

    async def until_healed(self) -> None:
        """Until the killed leader is back and has caught up; CommandFailed when it does not come."""
        if self._leader.victim:
            self._say(f"Waiting for {self._leader.victim.name} to come back and catch up ...")
            await self._leader.wait_until_caught_up(lambda: time.monotonic() * 1_000)
