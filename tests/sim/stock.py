"""`python -m tests.sim.stock`: pysyncobj 0.3.17 as it comes, in this simulator's world: the simulator must convict it.

Its own journal (in files, through mmap), its own dump and compaction, its own transport's interface over the simulated network, clients that
write to any node. Machines are killed, paused, cut off, their connections reset; nothing loses power, no frame is lost, doubled or
swapped within a connection: an ideal network. Then calm. Convicted is a seed in which two nodes apply different entries at one place, an
acknowledged write is not applied in the end, one is applied twice, or the nodes do not become equal. Facts: tern_raft/rules.py.
"""

import argparse
import gc
import json
import pickle
import random
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pysyncobj.journal
import pysyncobj.syncobj
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from tern_raft.frames import RAFT_CODE
from tern_remoting import Frame
from tests.sim.faults.healing import Healing
from tests.sim.machines import process as processes
from tests.sim.machines.machine import Machine
from tests.sim.machines.network import Network, SimLink
from tests.sim.machines.process import RUNNING, Process
from tests.sim.machines.scheduler import Scheduler
from tests.sim.planted.planting import quiet

CHAOS_S, CALM_S = 20.0, 60.0
FAULTS = 60
TICK_S = 0.005
WRITE_PERIOD_S = 0.007
COMPACT_AFTER_ENTRIES, BATCH_SIZE_BYTES = 40, 400
# A leader whose follower needs a dump that is not made yet sends as long as its tick lasts (syncobj.py:1310-1337): tens of thousands of
# messages. Such a seed is given up, not convicted.
FRAMES_MAX = 10_000


class _NoPoller:
    def subscribe(self, *_: Any) -> None: ...
    def unsubscribe(self, *_: Any) -> None: ...
    def poll(self, _timeout: float) -> None: ...


class StockTransport(Transport):  # type: ignore[misc]
    """pysyncobj's own interface, over the links of one process."""

    def __init__(self, owner: Any, me: Node, others: list[Node]) -> None:
        super().__init__(owner, me, others)
        self.peers = {node.id: node for node in others}
        self.ends: dict[str, SimLink] = {}

    def send(self, node: Node, message: Any) -> bool:
        """As its TCP transport: False without a connection."""
        end = self.ends.get(node.id)
        return end is not None and end.post(RAFT_CODE, [pickle.dumps(message)])

    # What the simulated network calls, by the names of tern_raft's PeerLinks --------------------------------------
    def _on_ready(self, end: SimLink) -> None:
        self.ends[end.peer.name] = end
        self._onNodeConnected(self.peers[end.peer.name])

    def _on_lost(self, end: SimLink) -> None:
        if self.ends.get(end.peer.name) is end:
            del self.ends[end.peer.name]
            self._onNodeDisconnected(self.peers[end.peer.name])

    def _on_frame(self, end: SimLink, frame: Frame) -> None:
        if self.ends.get(end.peer.name) is end:
            self._onMessageReceived(self.peers[end.peer.name], pickle.loads(frame.body))

    def _accepted(self, end: SimLink) -> None:
        self._on_ready(end)

    def _dialled(self, _name: str, end: SimLink) -> None:
        self._on_ready(end)


class StockLog(SyncObj):  # type: ignore[misc]
    """The smallest replicated log: what was applied, in order."""

    def __init__(self, me: str, others: list[str], conf: SyncObjConf) -> None:
        super().__init__(me, others, conf, nodeClass=Node, transportClass=StockTransport)
        self.entries: list[int] = []

    @replicated  # type: ignore[untyped-decorator]
    def put(self, value: int) -> int:
        """Append."""
        self.entries.append(value)
        return len(self.entries)

    @property
    def transport(self) -> StockTransport:
        """What the network talks to."""
        found: StockTransport = self._SyncObj__transport
        return found


class StockWorld:
    """One seed. Owner: the caller."""

    def __init__(self, seed: int, directory: Path) -> None:
        processes.install()
        pysyncobj.syncobj.createJournal = pysyncobj.journal.createJournal  # tern_raft puts its own there
        pysyncobj.syncobj.createPoller = lambda _kind: _NoPoller()
        random.seed(seed)
        self.rng = random.Random(f"stock {seed}")
        self.directory = directory
        self.scheduler = Scheduler()
        self.machines = {
            name: Machine(name, self.scheduler, random.Random(f"{name} {seed}")) for name in ("n0", "n1", "n2")
        }
        self.network = Network(self.scheduler, random.Random(f"network {seed}"), self.machines)
        self.nodes: dict[str, StockLog] = {}
        self.seen: dict[str, int] = {}
        self.canon: list[int] = []
        self.written = 0
        self.acked: set[int] = set()
        self.faults: Counter[str] = Counter()
        self.convicted = ""
        self._is_calm = False
        self._healing = Healing(self.scheduler)
        for machine in self.machines.values():
            machine.on_gone = lambda machine, _code: self._gone(machine)
            machine.on_unhandled = lambda machine, error: None  # its own thread would log it and go on
            self._start(machine)

    @property
    def is_flooded(self) -> bool:
        """Whether it sends more than anybody wants to wait for."""
        return self.network.frames > FRAMES_MAX

    def run(self) -> str:
        """Why it is convicted; empty when it is not, or when it was given up."""
        begin_s = self.scheduler.now_s
        for _ in range(FAULTS):
            self.scheduler.after(self.rng.uniform(1.0, CHAOS_S), self._strike)
        self._write()
        self.scheduler.run_until(begin_s + CHAOS_S, lambda: bool(self.convicted) or self.is_flooded)
        self._calm()
        self.scheduler.run_until(begin_s + CHAOS_S + CALM_S, self._is_over)
        if not self.convicted and not self.is_flooded:
            self._judge()
        return self.convicted

    def close(self) -> None:
        """Every process goes."""
        self._is_calm = True
        for machine in self.machines.values():
            machine.kill()

    # Nodes -------------------------------------------------------------------------------------------------------
    def _start(self, machine: Machine) -> None:
        if machine.process is None:
            process = machine.begin_process()
            self.scheduler.after(0.02, process.run, self._boot, machine, process)

    def _boot(self, machine: Machine, process: Process) -> None:
        name = machine.name
        conf = SyncObjConf(
            autoTick=False,
            useFork=False,
            commandsWaitLeader=False,
            journalFile=str(self.directory / f"{name}.journal"),
            fullDumpFile=str(self.directory / f"{name}.dump"),
            logCompactionMinEntries=COMPACT_AFTER_ENTRIES,
            logCompactionMinTime=10**9,
            appendEntriesBatchSizeBytes=BATCH_SIZE_BYTES,
            leaderFallbackTimeout=3.0,
        )
        node = self.nodes[name] = StockLog(name, [other for other in self.machines if other != name], conf)
        self.seen[name] = 0
        process.after_event = lambda: self._compare(name)
        self.network.listen(process, node.transport)
        self._tick(process, node)

    def _tick(self, process: Process, node: StockLog) -> None:
        process.call_later(TICK_S, self._tick, process, node)
        node.doTick(0)

    def _gone(self, machine: Machine) -> None:
        if (node := self.nodes.pop(machine.name, None)) is not None:
            node._SyncObj__raftLog._destroy()  # the kernel would close its files; what they hold stays
        self.scheduler.after(0.1 if self._is_calm else self.rng.uniform(0.1, 1.6), self._start, machine)

    # Clients -----------------------------------------------------------------------------------------------------
    def _write(self) -> None:
        if self._is_calm:
            return
        self.scheduler.after(WRITE_PERIOD_S, self._write)
        name = self.rng.choice(list(self.machines))
        node, process = self.nodes.get(name), self.machines[name].process
        if node is None or process is None:
            return
        value = self.written
        self.written += 1

        def told(_result: Any, error: Any) -> None:
            if error == FAIL_REASON.SUCCESS:
                self.acked.add(value)

        process.run(lambda: node.put(value, callback=told))

    # Faults ------------------------------------------------------------------------------------------------------
    def _strike(self) -> None:
        machine = self.machines[self.rng.choice(list(self.machines))]
        kind = self.rng.choices(("kill", "pause", "cut", "reset"), (3, 3, 4, 4))[0]
        self.faults[kind] += 1
        others = [other for other in self.machines if other != machine.name]
        if kind == "kill":
            machine.kill()
        elif kind == "pause":
            machine.pause()
            self._healing.after(self.rng.uniform(0.1, 1.6), machine.resume)
        elif kind == "cut":
            pairs = [pair for other in others for pair in ((machine.name, other), (other, machine.name))]
            self._healing.after(self.rng.uniform(0.1, 1.6), self.network.cut(*pairs, breaks=self.rng.random() < 0.5))
        else:
            self.network.reset(machine.name, self.rng.choice(others))

    def _calm(self) -> None:
        self._is_calm = True
        self._healing.all()

    # Verdict -----------------------------------------------------------------------------------------------------
    def _compare(self, name: str) -> None:
        entries = self.nodes[name].entries
        begin = self.seen[name] if len(entries) >= self.seen[name] else 0
        for place in range(begin, len(entries)):
            if place == len(self.canon):
                self.canon.append(entries[place])
            elif self.canon[place] != entries[place] and not self.convicted:
                at_s = self.scheduler.now_s - 1000
                self.convicted = f"diverged: {name} applies write {entries[place]} as number {place}, where {self.canon[place]} was applied ({at_s:.3f} s)"
                return
        self.seen[name] = len(entries)

    def _is_over(self) -> bool:
        return bool(self.convicted) or self.is_flooded or self._is_equal()

    def _is_equal(self) -> bool:
        lengths = {len(node.entries) for node in self.nodes.values()}
        leaders = sum(bool(node._isLeader()) for node in self.nodes.values())
        logs = {node._SyncObj__raftLog[-1][1] == node.raftLastApplied for node in self.nodes.values()}
        return len(self.nodes) == len(self.machines) and len(lengths) == 1 and leaders == 1 and logs == {True}

    def _judge(self) -> None:
        lengths = {name: len(node.entries) for name, node in self.nodes.items()}
        best = max((node.entries for node in self.nodes.values()), key=len, default=[])
        lost = sorted(self.acked - set(best))
        if not self._is_equal():
            self.convicted = f"stuck: after {CALM_S:g} calm seconds the nodes have applied {lengths}"
        elif lost:
            self.convicted = f"lost: {len(lost)} of {len(self.acked)} acknowledged writes are gone, such as {lost[:5]}"
        elif len(set(best)) != len(best):
            twice = [value for value, times in Counter(best).items() if times > 1]
            self.convicted = f"duplicated: {len(twice)} writes were applied twice, such as {twice[:5]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StockResult:
    """What a seed came to. *reason*: why it convicts, empty if it does not."""

    reason: str
    writes: int
    acknowledged: int
    faults: dict[str, int]
    events: int


def run_seed(seed: int) -> StockResult:
    """Run *seed*, and leave nothing behind."""
    with quiet(), tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # pysyncobj leaves files to the garbage collector
        world = StockWorld(seed, Path(directory))
        reason = world.run()
        world.close()
        result = StockResult(
            reason=reason,
            writes=world.written,
            acknowledged=len(world.acked),
            faults=dict(world.faults),
            events=world.scheduler.events,
        )
        vars(RUNNING).clear()  # the last process that ran: all of the world hangs on it
        del world
        gc.collect()
    return result


def main() -> int:
    """The command: the first seed that convicts, and why."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim.stock", description="pysyncobj as it comes must be convicted"
    )
    parser.add_argument("--seeds", type=int, default=60, help="at most so many (default 60)")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--all", action="store_true", help="run all of them and count")
    options = parser.parse_args()
    reasons: Counter[str] = Counter()
    convicting = []
    for seed in range(options.first, options.first + options.seeds):
        result = run_seed(seed)
        if result.reason:
            facts = f"{result.writes} writes, {result.acknowledged} acknowledged, faults {result.faults}"
            print(f"seed {seed}: {result.reason}; {facts}", flush=True)
            convicting.append(seed)
            reasons[result.reason.split(":", 1)[0]] += 1
            if not options.all:
                break
    print(json.dumps({"seeds": options.seeds, "convicting": convicting, "reasons": dict(reasons)}))
    return 0 if convicting else 1


if __name__ == "__main__":
    sys.exit(main())
