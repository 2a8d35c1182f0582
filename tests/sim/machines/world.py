"""One world: machines, their network, the brokers on them, and the way in for clients. Everything follows from its seed.

Owner: the run of the seed. The nemesis breaks things here, `supervise` starts what has died, `heal` ends all faults.
"""

import os
import random
import traceback
from collections.abc import Callable
from pathlib import Path

from tern_broker.core.applied import Applied
from tern_broker.core.clock import JUMP_MS
from tern_raft import RaftNode
from tern_store import DirectoryLock, LogRot, StoreError, SyncLost, finish_swap
from tern_store.state.vote_file import Standing
from tern_wire.link.requests import Parts
from tests.sim.clients.asking import Answer
from tests.sim.faults.upgrades import Upgrades
from tests.sim.history.history import History, Violation
from tests.sim.laws.observers import Observers
from tests.sim.machines import process as processes
from tests.sim.machines.broker_node import KEY, BrokerNode, Build, NodeConfig
from tests.sim.machines.machine import DIRECTORY, EPOCH_MS, Machine
from tests.sim.machines.network import CLIENTS, Network
from tests.sim.machines.process import Process
from tests.sim.machines.scheduler import BEGIN_S, Scheduler
from tests.sim.machines.standby import Standby
from tests.sim.swarm import CLOCK_KINDS, Swarm

GROUP_ID = "5" * 32
EXIT_BROKEN, EXIT_FSYNC_FAILED, EXIT_SETTINGS = 70, 74, 78
# How far the group's time may be ahead of the true one: as far as the clocks of a majority (nemesis.py), and what drifting adds.
GROUP_TIME_AHEAD_MAX_MS = 200_000 + 15_000
# And behind it, where no clock is wrong: what a leader makes good at once, and how far their machines differ.
GROUP_TIME_BEHIND_MAX_MS = JUMP_MS + 500
# As our supervisor: a process that ended is started again after so long.
RESTART_MIN_S, RESTART_MAX_S = 0.2, 1.0


class World:
    """The machines of one seed."""

    exit_fsync_failed = EXIT_FSYNC_FAILED

    def __init__(self, swarm: Swarm, *, build: Build, trace: Callable[[str], None] | None = None) -> None:
        processes.install()
        self.swarm, self.build = swarm, build
        self.rng = random.Random(f"world {swarm.seed}")
        random.seed(swarm.seed)  # pysyncobj's own chance
        self.scheduler = Scheduler()
        self.history = History(lambda: self.scheduler.now_s)
        self.observers = Observers()
        self.violations: list[Violation] = []
        self._trace = trace
        names = [f"n{number}" for number in range(swarm.nodes)]
        self.machines = {name: Machine(name, self.scheduler, random.Random(f"{name} {swarm.seed}")) for name in names}
        self.network = Network(self.scheduler, random.Random(f"network {swarm.seed}"), self.machines)
        self.network.weather.latency_s = swarm.latency_s
        self.network.weather.jitter_s = swarm.jitter_s
        self.network.weather.late_chance = swarm.late_chance
        self.nodes: dict[str, BrokerNode] = {}
        # Nodes of which something that was promised may be gone: wiped, rotten, failed to sync. At most a minority.
        # The group's time was taken from the earlier of two clocks, and gains 1 %.
        self.began_behind = False
        self.damaged: set[str] = set()
        self.awaits_failure: set[str] = set()  # of these, a sync is to fail soon
        self.doubted: set[str] = (
            set()
        )  # of these, the end of the log is gone, as they know: it comes back with their leader's
        # Nodes that have forgotten their votes, and that the group has not taken back.
        self.rebuilding: set[str] = set()
        # Where the logs of nodes ended that do not run now.
        self._ends: dict[str, int] = {}
        # Whether the group was founded: from then on a node may be started with or without --bootstrap, whatever it has lost.
        self.is_born = False
        self.is_calm = False
        # Judgements of the nodes' digests, a node each.
        self.comparisons = 0
        self.upgrades = Upgrades(self)
        for machine in self.machines.values():
            machine.on_gone = self._gone
            machine.on_unhandled = self._unhandled
            self.start(machine.name)

    @property
    def names(self) -> list[str]:
        """All nodes."""
        return list(self.machines)

    def say(self, text: str) -> None:
        """Into the history, and to who watches."""
        self.history.note(text)
        if self._trace is not None:
            self._trace(f"{self.scheduler.now_s - BEGIN_S:9.4f}  {text}")

    def violate(self, checker: str, text: str) -> None:
        """A promise that the world itself saw broken."""
        self.violations.append(Violation(checker, f"{text} (at {self.scheduler.now_s - BEGIN_S:.4f} s)"))
        if self._trace is not None:
            self._trace(f"{self.scheduler.now_s - BEGIN_S:9.4f}  VIOLATION {checker}: {text}")

    # Nodes -------------------------------------------------------------------------------------------------------
    def config(self, name: str) -> NodeConfig:
        """The settings of node *name*."""
        swarm = self.swarm
        ports = {other: 7001 + 3 * number for number, other in enumerate(self.machines)}
        return NodeConfig(
            node=name,
            link_port=ports[name] - 1,
            raft_port=ports[name],
            http_port=ports[name] + 1,
            peers=tuple(f"{other}=127.0.0.1:{port}" for other, port in ports.items()),
            data_dir=DIRECTORY,
            cluster_key_file=Path("/key"),
            group_id=GROUP_ID,
            bootstrap=not self.is_born or self.rng.random() < 0.5,
            segment_size_bytes=swarm.segment_size_bytes,
            retention_bytes=swarm.retention_bytes,
            election_min_ms=swarm.election_min_ms,
            election_max_ms=swarm.election_max_ms,
            limits=swarm.limits,
            release=self.upgrades.versions[name],
        )

    def start(self, name: str) -> None:
        """Begin a process on the machine *name*, unless one is there; reading its files takes a while."""
        machine = self.machines[name]
        if machine.is_up:
            return
        process = machine.begin_process()
        self.scheduler.after(
            machine.rng.uniform(0.005, 0.1) * min(machine.slow_factor, 10.0), process.run, self._boot, machine
        )

    def _boot(self, machine: Machine) -> None:
        """As tern_broker/run.py opens a node."""
        process, name, files = machine.process, machine.name, machine.files
        assert process is not None
        config = self.config(name)
        try:
            DirectoryLock.acquire(DIRECTORY, pid=process.pid, files=files)
            finish_swap(DIRECTORY, files)
            node = self._make_node(machine, process, config)
        except LogRot as rot:
            self._stand_by(machine, process, config, rot)
            return
        except StoreError as error:
            self.violate("start", f"{name}: {type(error).__name__} {error}")
            process.end(EXIT_SETTINGS)
        except SyncLost as error:
            self.say(f"{name}: the disk does not keep what is written: {error}")
            process.end(EXIT_FSYNC_FAILED)
        except OSError as error:
            # The supervisor starts it again.
            self.say(f"{name} cannot start: {error}")
            process.end(EXIT_BROKEN)
        self._begin(node)

    def _stand_by(self, machine: Machine, process: Process, config: NodeConfig, rot: LogRot) -> None:
        """As run.py: the node has forgotten what it promised, says so to its peers, and copies the leader's log."""
        name, files = machine.name, machine.files
        self.say(f"{name} must be rebuilt: {rot}")
        # A copy that a power cut has ended is begun again; what it was begun for was looked at then.
        if name not in self.damaged | self.rebuilding and "begins behind the end" not in str(rot):
            self.violate("quarantine", f"{name} found damage that nobody did: {rot}")
        self.rebuilding.add(name)
        try:
            self.build.forget_votes(config.raft(), incarnation=process.new_id(), needs_copy=True, files=files)
            links = self.build.links(
                name, config.members(), key=KEY, group_id=GROUP_ID, listen=config.listen, rng=machine.rng
            )
            links._transport = RaftNode.greeter(config.raft(), links, files=files)
        except SyncLost as error:
            self.say(f"{name}: the disk does not keep what is written: {error}")
            process.end(EXIT_FSYNC_FAILED)
        except OSError as error:
            self.say(f"{name} cannot stand by now: {error}")
            process.end(EXIT_BROKEN)
        self.network.listen(process, links)

        def done() -> None:
            self.say(f"{name} has copied the log")
            try:
                self.build.forget_votes(config.raft(), incarnation=process.new_id(), needs_copy=False, files=files)
                self.network.close(process)
                finish_swap(DIRECTORY, files)
                node = self._make_node(machine, process, config)
            except LogRot as again:
                self._stand_by(machine, process, config, again)
                return
            except SyncLost:
                process.end(EXIT_FSYNC_FAILED)
            except OSError as error:
                self.say(f"{name} cannot start: {error}")
                process.end(EXIT_BROKEN)
            self._begin(node)

        Standby(self, machine, process, config, done).begin()

    def _make_node(self, machine: Machine, process: Process, config: NodeConfig) -> BrokerNode:
        return BrokerNode(
            machine,
            process,
            config,
            build=self.build,
            rng=random.Random(f"{machine.name} {machine.starts} {self.swarm.seed}"),
            observers=self.observers,
            say=self.say,
        )

    def _begin(self, node: BrokerNode) -> None:
        name = node.name
        self.nodes[name] = node
        node.engine.on_applied.append(lambda applied: self._compared(node, applied))
        node.engine.on_applied.append(lambda applied: self._require_time(node, applied))
        node.on_standing = lambda standing: self._standing_changed(name, standing)
        self._standing_changed(name, node.votes.standing)
        self.network.listen(node.process, node.links)
        node.begin()
        end, applied = node.engine.store.log.end_index, node.engine.raft.applied_index
        self.say(f"{name} begins: end {end}, applied {applied}, {node.votes.standing.name.lower()}")

    def _standing_changed(self, name: str, standing: Standing) -> None:
        if standing is Standing.REBUILDING:
            self.rebuilding.add(name)
        elif standing is Standing.MEMBER:
            self.is_born = True
            if name in self.rebuilding or name in self.doubted:
                # Taken back, or no longer in doubt: it has everything again, and may be damaged again.
                self.doubted.discard(name)
                self.rebuilding.discard(name)
                self.damaged.discard(name)

    def _compared(self, node: BrokerNode, applied: Applied) -> None:
        """Comparisons of a process end with it, so they are counted as they come."""
        if applied.judgement is not None:
            noted = node.engine.state.comparison.noted
            self.comparisons += noted is not None and noted[0] == applied.judgement.index

    def _require_time(self, node: BrokerNode, applied: Applied) -> None:
        """No minority of clocks moves the group's time ahead, or holds it back for longer than the run has lasted."""
        run_ms = int((self.scheduler.now_s - BEGIN_S) * 1000)
        ahead_ms = applied.now_ms - EPOCH_MS - run_ms if applied.now_ms else 0
        self._require_no_lag(node, run_ms)
        if ahead_ms < -GROUP_TIME_AHEAD_MAX_MS - run_ms and (self.began_behind or self._begins_behind(node)):
            self.began_behind = True
        elif not -GROUP_TIME_AHEAD_MAX_MS - run_ms <= ahead_ms <= GROUP_TIME_AHEAD_MAX_MS:
            self.violate("group_time", f"{node.name}: the group's time is {ahead_ms} ms ahead of the true one")

    def _begins_behind(self, node: BrokerNode) -> bool:
        """Whether the leader *node* had to choose between two clocks: one is wrong, and the third member is silent. It takes the earlier."""
        is_wrong = any(abs(machine.clock.wall_offset_ms) > JUMP_MS for machine in self.machines.values())
        raft = node.engine.raft
        return is_wrong and raft.is_leader and len(raft.clocks.walls_ms()) < len(self.machines)

    def _require_no_lag(self, node: BrokerNode, run_ms: int) -> None:
        """Where all clocks are right, a leader's time is the true one: what it lags behind is missing when the next leader asks the clocks."""
        leading = node.engine.proposer._clock
        clock = leading.clock
        if clock is None or not node.engine.raft.is_serving or set(self.swarm.kinds) & CLOCK_KINDS:
            return
        # Where one is no clock and another member is silent, nobody knows which of two is right, and no time is the safe one.
        if any(abs(machine.clock.wall_offset_ms) > JUMP_MS for machine in self.machines.values()):
            return
        behind_ms = EPOCH_MS + run_ms - (clock.now_ms + leading.mono_ms() - clock.mono_ms)
        if behind_ms > GROUP_TIME_BEHIND_MAX_MS:
            self.violate("group_time", f"{node.name}: the group's time is {behind_ms} ms behind the true one")

    def _gone(self, machine: Machine, code: int | None) -> None:
        node = self.nodes.pop(machine.name, None)
        if node is not None:
            self._ends[machine.name] = node.engine.store.log.end_index
        if machine.name in self.awaits_failure:
            # The process died before the sync that was to fail.
            self.awaits_failure.discard(machine.name)
            if not machine.files.has_failed:
                self.damaged.discard(machine.name)
        if code == EXIT_SETTINGS:
            self.violate("start", f"{machine.name} refuses to run, and no supervisor starts it again")
        if code is not None:
            self.say(f"{machine.name} exits with {code}")
            self.supervise(machine.name)

    def supervise(self, name: str) -> None:
        """Start *name* again after a while."""
        self.scheduler.after(self.rng.uniform(RESTART_MIN_S, RESTART_MAX_S), self.start, name)

    def _unhandled(self, machine: Machine, error: Exception) -> None:
        self.violate("unhandled", f"{machine.name}: {type(error).__name__}: {error} [{product_frames(error)}]")

    def left_behind(self) -> set[str]:
        """Nodes whose logs end before the others' begin."""
        logs = {name: node.engine.store.log for name, node in self.nodes.items()}
        first_index = max((log.first_index for log in logs.values()), default=0)
        ends = self._ends | {name: log.end_index for name, log in logs.items()}
        return {name for name, end_index in ends.items() if end_index + 1 < first_index}

    def leader(self) -> str | None:
        """Who leads now, by the newest term."""
        leading = [(node.engine.raft.term, name) for name, node in self.nodes.items() if node.engine.raft.is_leader]
        return max(leading)[1] if leading else None

    # Clients -----------------------------------------------------------------------------------------------------
    def ask(self, name: str, code: int, parts: Parts, timeout_s: float, told: Callable[[Answer | None], None]) -> None:
        """One request of a client to node *name*; *told* exactly once."""
        Question(self, name, code, b"".join(parts), told).begin(timeout_s)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """For clients: their clock is the world's."""
        self.scheduler.after(delay_s, callback)


class Question:
    """One request of a client on its way there and back. It may arrive long after the client has given up."""

    __slots__ = ("_body", "_code", "_name", "_told", "_world")

    def __init__(self, world: World, name: str, code: int, body: bytes, told: Callable[[Answer | None], None]) -> None:
        self._world, self._name, self._code, self._body = world, name, code, body
        self._told: Callable[[Answer | None], None] | None = told

    def begin(self, timeout_s: float) -> None:
        """Send it; the answer is None after *timeout_s*."""
        self._world.scheduler.after(timeout_s, self._tell, None)
        self._world.scheduler.after(self._world.network.latency_s(), self._arrive)

    def _tell(self, answer: Answer | None) -> None:
        told, self._told = self._told, None
        if told is not None:
            told(answer)

    def _lost(self) -> None:
        self._world.scheduler.after(self._world.network.latency_s(), self._tell, None)

    def _arrive(self) -> None:
        world = self._world
        if world.network.is_cut(CLIENTS, self._name):
            world.network.when_healed(self._arrive)
            return
        node = world.nodes.get(self._name)
        if node is None:
            self._lost()  # nobody listens: refused at once
            return
        process = node.process
        process.on_end.append(self._lost)
        process.run(self._work, node)

    def _work(self, node: BrokerNode) -> None:
        node.request(self._code, self._body, lambda code, body: self._reply(node, code, body))

    def _reply(self, node: BrokerNode, code: int, body: bytes) -> None:
        if self._lost in node.process.on_end:
            node.process.on_end.remove(self._lost)
        self._world.scheduler.after(self._world.network.latency_s(), self._come_back, Answer(code, body))

    def _come_back(self, answer: Answer) -> None:
        if self._world.network.is_cut(self._name, CLIENTS):
            self._world.network.when_healed(lambda: self._come_back(answer))
        else:
            self._tell(answer)


def product_frames(error: BaseException) -> str:
    """Where in the product *error* came from, the innermost last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/tests/" not in frame.filename]
    return "; ".join(f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames[-6:])
