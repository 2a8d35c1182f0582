"""A mesh of real processes to do harm to: the plan and the supervisor of `ternmq up`, in a network that can fail.

The supervisor is a child of this process and dies with it; the brokers die with the supervisor. `held` stops the supervisor for a
while, so that a node that was killed stays down and its files may be touched; everything else is signals.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from tern_cli.mesh.files import GROUP_ID_SIZE_BYTES, MeshFiles
from tern_cli.mesh.plan import MeshPlan, MeshShape, member_names, plan_mesh, plan_to_document, shape_from_base
from tern_cli.mesh.process_table import start_ticks
from tests.chaos.client import Client, pause
from tests.chaos.network import Loopback, Network, Relays, placed

POLL_S = 0.01
START_WITHIN_S = 90
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
Status = dict[str, Any]
# What must be equal on all replicas of a group at rest. Followers learn of a commit with the next message only, and a group at rest
# still moves its clock as leases end: so commit and applied must have reached what the last look saw.
EQUAL = ("term", "last_index", "log_size_bytes", "log_first_index")
FIGURES = ("node", "role", "commit_index", "applied_index", *EQUAL)


class Stuck(AssertionError):
    """Something that had to happen did not, in its time."""


class Cluster:
    """Three brokers, their name server and proxies. Owner of the supervisor process and of the directory."""

    def __init__(
        self,
        directory: Path,
        *,
        port_base: int,
        network: Network | None = None,
        use_relays: bool = False,
        options: Sequence[str] = (),
        segment_size_bytes: int = 16 << 20,
        proxies: int = 1,
    ) -> None:
        self.directory = directory
        self.files = MeshFiles(directory)
        self.files.make_folders()
        self.files.make_key()
        shape = shape_from_base(
            {"proxies": proxies, "segment_size_bytes": segment_size_bytes, "disk_budget_bytes": 0}, port_base
        )
        self.nodes = member_names(3)
        group_id = os.urandom(GROUP_ID_SIZE_BYTES).hex()
        made = plan_mesh(MeshShape(**shape), data_dir=str(directory), group_id=group_id, python=sys.executable)
        self._cluster = {"version": 1, "group_id": group_id, "members": self.nodes, "shape": shape, "born": False}
        self.files.write_cluster(self._cluster)
        raft_ports = {plan.name: plan.ports["raft"] for plan in made.processes if plan.role == "broker"}
        self.network = network or (Relays(self.nodes, port_base, raft_ports) if use_relays else Loopback())
        processes = tuple(placed(plan, self.network, raft_ports, options) for plan in made.processes)
        self.plan = MeshPlan(cluster=made.cluster, data_dir=made.data_dir, processes=processes)
        self._clients = {
            plan.name: Client(self.network.host(plan.name), plan.ports["http"])
            for plan in processes
            if plan.role == "broker"
        }
        self._asking = {name: asyncio.Lock() for name in self._clients}
        self.proxy_names = [plan.name for plan in processes if plan.role == "proxy"]
        self.proxies = [("127.0.0.1", plan.ports["http"]) for plan in processes if plan.role == "proxy"]
        self._supervisor: subprocess.Popen[bytes] | None = None

    # Life --------------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Start everything, and wait until a node serves."""
        with self.files.log("supervisor").open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "tern_cli.mesh.supervisor"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                process_group=0,  # ^C is ours to handle: the processes must not see it too
                # SIGKILL, because it may be stopped then; what it started gets SIGTERM as it dies.
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - one call, no lock
            )
        assert self._supervisor.stdin is not None
        with self._supervisor.stdin as stdin:
            stdin.write(json.dumps(plan_to_document(self.plan)).encode())
        # As long as the meshes of other tests have: nothing is harmed yet, and a busy machine starts processes slowly.
        await self.leader(within_s=START_WITHIN_S)
        await self.equal(within_s=START_WITHIN_S, lag=True)
        self.files.write_cluster({**self._cluster, "born": True})

    async def stop(self) -> None:
        """Stop everything; what does not stop is killed by the supervisor."""
        for client in self._clients.values():
            client.close()
        if self._supervisor is not None:
            for plan in self.plan.processes:
                with contextlib.suppress(ProcessLookupError, Stuck):
                    os.kill(self.pid(plan.name), signal.SIGCONT)
            self._supervisor.send_signal(signal.SIGCONT)
            self._supervisor.terminate()
            await asyncio.to_thread(self._supervisor.wait, 20)
            self._supervisor = None

    def close(self, *, keep: bool) -> None:
        """Let the network go, and the files unless they are wanted."""
        self.network.close()
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Harm --------------------------------------------------------------------------------------------------------
    def pid(self, name: str) -> int:
        """The process id of *name*; Stuck when it does not run now."""
        for row in self.files.read_mesh().get("processes", ()):
            if row["name"] == name and start_ticks(row["pid"]) == row["start_ticks"] != 0:
                return int(row["pid"])
        raise Stuck(f"{name} does not run")

    def signal(self, name: str, number: signal.Signals) -> int:
        """Send *number* to *name*; its process id."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def state(self, name: str) -> str:
        """What the supervisor makes of *name*: running, restarting, failed, stopped."""
        rows = self.files.read_mesh().get("processes", ())
        return next((str(row["state"]) for row in rows if row["name"] == name), "")

    def quarantines(self, name: str) -> int:
        """How often *name* has found its log damaged, by what it wrote into its log of events."""
        return self.files.log(name).read_bytes().count(b'"event":"quarantined')

    async def kill(self, *names: str) -> None:
        """kill -9 at once; returns when they are dead."""
        pids = [self.pid(name) for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        await self.until(lambda: not any(start_ticks(pid) for pid in pids), within_s=5, what=f"{names} are dead")

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """For the length of a block nothing that died is started again."""
        assert self._supervisor is not None
        self._supervisor.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._supervisor.send_signal(signal.SIGCONT)

    def data(self, name: str) -> Path:
        """The directory of a broker."""
        return self.files.data(name)

    # Looking -----------------------------------------------------------------------------------------------------
    async def status(self, name: str, *, within_s: float = 0.5) -> Status:
        """GET /v1/broker; {} when it does not answer."""
        async with self._asking[name]:
            code, found = await self._clients[name].ask_json("GET", "/v1/broker", within_s=within_s)
        return found if code == 200 and isinstance(found, dict) else {}

    async def statuses(self) -> dict[str, Status]:
        """Of all brokers, asked at once."""
        found = await asyncio.gather(*(self.status(name) for name in self.nodes))
        return dict(zip(self.nodes, found, strict=True))

    async def leader(self, *, within_s: float = 20, but: str = "") -> str:
        """The broker that leads and serves in the highest term, other than *but*."""
        found = ""

        async def look() -> bool:
            nonlocal found
            serving = [
                (status["term"], name)
                for name, status in (await self.statuses()).items()
                if status.get("serving") and name != but
            ]
            found = max(serving)[1] if serving else ""
            return bool(found)

        await self.poll(look, within_s=within_s, what="a leader that serves")
        return found

    async def followers(self) -> list[str]:
        """All but the leader."""
        leader = await self.leader()
        return [name for name in self.nodes if name != leader]

    async def equal(self, *, within_s: float, lag: bool = False) -> float:
        """Seconds until all replicas are equal; with *lag* (under load): until each has applied what the leader had committed."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        last: list[Status] = []

        async def look() -> bool:
            nonlocal last
            before, last = last, list((await self.statuses()).values())
            if not all(status.get("role") in {"leader", "follower"} for status in last):
                return False
            committed = max((status.get("commit_index", 0) for status in before), default=0)
            if not committed or any(status["applied_index"] < committed for status in last):
                return False
            return lag or len({tuple(status.get(name) for name in EQUAL) for status in last}) == 1

        try:
            await self.poll(look, within_s=within_s, what="all replicas are equal")
        except Stuck as error:
            seen = [{name: status.get(name) for name in FIGURES} for status in last]
            raise Stuck(f"{error}: {seen}") from error
        return loop.time() - began_s

    async def poll(self, look: Callable[[], Awaitable[bool]], *, within_s: float, what: str) -> None:
        """Ask again and again until *look* (a coroutine function) says True; Stuck after the deadline."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while not await look():
            if loop.time() >= until:
                raise Stuck(f"not within {within_s} s: {what}")
            await pause(POLL_S)

    async def until(self, look: Callable[[], bool], *, within_s: float, what: str) -> None:
        """As poll, for something that does not wait."""

        async def ask() -> bool:
            return look()

        await self.poll(ask, within_s=within_s, what=what)
