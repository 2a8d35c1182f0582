"""A Raft group in one thread: our Consensus, transport, journal and files; virtual clock, seeded network, kills and cuts.

Links are FIFO and lose what is in flight when they break, as TCP does. A kill loses memory and unsent messages, not files.
"""

import collections
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pysyncobj.syncobj

import tern_raft.consensus
import tern_raft.elections
from tern_raft.clocks import PeerClocks
from tern_raft.consensus import Consensus
from tern_raft.frames import decode_message, encode_message
from tern_raft.journal import CommitLogJournal
from tern_raft.membership import Membership
from tern_raft.transport import PeerTransport
from tern_store import CommitLog, Genesis, StoredEntry, VoteFile
from tern_store.files import REAL_FILES, Files
from tests.support.files.faulty_files import FaultyFiles

STEP_S = 0.005
SEGMENT_SIZE_BYTES = 64 << 10
ENTRY_SIZE_MAX_BYTES = 16 << 10


class Clock:
    """Every reading costs a little, so loops that end by time end."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        self.now_s += 2e-6
        return self.now_s

    def install(self) -> None:
        """The one clock of pysyncobj and of tern_raft; a fixture of the tests' folders undoes it."""
        for module, name in CLOCKS:
            setattr(module, name, self)


# The module globals through which pysyncobj and tern_raft read the time.
CLOCKS: tuple[tuple[ModuleType, str], ...] = (
    (pysyncobj.syncobj, "monotonicTime"),
    (tern_raft.consensus, "monotonic"),
    (tern_raft.elections, "monotonic"),
)


@dataclass(frozen=True, slots=True)
class Sent:
    """One message on its way."""

    sender: str
    receiver: str
    message: dict[str, Any]
    body: bytes

    @property
    def kind(self) -> str:
        """Its type."""
        return str(self.message["type"])


class SimNode:
    """One member, from recovery to kill."""

    def __init__(self, group: "RaftGroup", name: str, *, bootstrap: bool, applied: int = 1) -> None:
        """*applied*: what its saved state holds already."""
        self.group, self.name = group, name
        directory, files = group.directory / name, group.files[name]
        genesis = Genesis(b"g" * 16, tuple(sorted(group.names)), SEGMENT_SIZE_BYTES)
        incarnation = name.encode().ljust(16, b"-")
        self.votes = VoteFile.open(directory, bootstrap=bootstrap, group=genesis, incarnation=incarnation, files=files)
        self.log = CommitLog.open(directory, group=genesis, entry_size_max_bytes=ENTRY_SIZE_MAX_BYTES, files=files)
        self.sync_job: Any = None
        self.wall_ms = 0
        # How often a message asked for a tick.
        self.kicks = 0
        self.applied: list[tuple[int, int]] = []
        others = [other for other in group.names if other != name]
        self.journal = CommitLogJournal(self.log, self.votes, on_append=lambda: None)
        self.membership = Membership(name, others, self.votes, version=1)
        self.transport = PeerTransport(
            name,
            others,
            membership=self.membership,
            clocks=PeerClocks(monotonic=group.clock, wall_ms=lambda: self.wall_ms),
            on_behind=lambda: None,
            on_fatal=lambda _error: None,
            post=lambda peer, parts: group.send(name, peer, b"".join(parts)),
            buffered=lambda _peer: 0,
            kick=self._kick,
            on_heartbeat=lambda: None,
            kick_later=lambda _delay_s: None,
            stickiness_s=1.0,
        )
        self.consensus = Consensus(
            name,
            others,
            journal=self.journal,
            transport=self.transport,
            applied=applied,
            apply=self._apply,
            on_role=lambda: None,
            kick=lambda: None,
            call_later=lambda _delay_s, callback: callback(),
            election_min_s=1.0,
            election_max_s=2.0,
        )
        self.transport.bind(self.consensus)

    def _kick(self) -> None:
        self.kicks += 1

    def _apply(self, entry: StoredEntry) -> None:
        if entry.term == self.consensus.raftCurrentTerm:
            self.membership.settled()
        self.applied.append((entry.index, entry.crc))
        self.group.applied(self, entry)

    def append(self, body: bytes) -> StoredEntry:
        """What a client does on a leader."""
        return self.consensus.append([body], 1, urgent=False)

    @property
    def term(self) -> int:
        """Current."""
        return int(self.consensus.raftCurrentTerm)

    @property
    def committed(self) -> int:
        """The last index."""
        return int(self.consensus.raftCommitIndex)

    def hear(self, sender: str, **message: Any) -> None:
        """*sender* says *message*, whether it would or not."""
        self.transport.receive(sender, b"".join(encode_message(message)))

    def step(self, rng: random.Random) -> None:
        """One tick; the disk finishes now or later."""
        self.consensus.doTick(0)
        if self.sync_job is None:
            self.sync_job = self.log.take_sync()
        elif rng.random() < 0.7:
            self.sync_job.run()
            self.log.mark_synced(self.sync_job)
            self.sync_job = None
            self.transport.synced()


def born_group(seed: int = 1, size: int = 3) -> "RaftGroup":
    """A group with its files in memory, elected and in agreement."""
    group = RaftGroup(Path("/data"), seed, size, make_files=FaultyFiles)
    group.elect()
    group.run_until(group.is_converged)
    return group


class RaftGroup:
    """The world of one seed."""

    def __init__(
        self, directory: Path, seed: int, size: int = 3, *, make_files: Callable[[], Files] = lambda: REAL_FILES
    ) -> None:
        self.rng = random.Random(seed)
        random.seed(seed)
        self.clock = Clock()
        self.clock.install()
        self.directory, self.names = directory, [f"n{number}" for number in range(size)]
        self.files = {name: make_files() for name in self.names}
        # A list here gets every message that is sent from now on.
        self.tape: list[Sent] | None = None
        self.up: set[frozenset[str]] = set()
        self.flying: dict[tuple[str, str], collections.deque[tuple[float, bytes]]] = {}
        self.halves: dict[str, int] = {}
        self.paused: set[str] = set()
        self.history: dict[int, int] = {}
        self.acked: set[int] = set()
        self.proposed: dict[tuple[str, int, int], int] = {}
        self.sent = 0
        self.faults: collections.Counter[str] = collections.Counter()
        self.nodes: dict[str, SimNode] = {}
        self.values: dict[int, bytes] = {}
        for name in self.names:
            self.nodes[name] = SimNode(self, name, bootstrap=True)

    # Network ---------------------------------------------------------------------------------------------------
    def send(self, sender: str, receiver: str, body: bytes) -> bool:
        """Queue a message on a live link."""
        queue = self.flying.get((sender, receiver))
        if queue is None:
            return False
        if self.tape is not None:
            self.tape.append(Sent(sender, receiver, decode_message(body), body))
        latency_s = self.rng.choice((0.001, 0.003, 0.02, 0.15)) if self.rng.random() < 0.2 else 0.001
        arrival_s = max(self.clock.now_s + latency_s, queue[-1][0] if queue else 0.0)
        queue.append((arrival_s, body))
        return True

    def connect(self, one: str, two: str) -> None:
        """A new link, empty."""
        pair = frozenset((one, two))
        if pair in self.up or one not in self.nodes or two not in self.nodes:
            return
        self.up.add(pair)
        self.flying[one, two], self.flying[two, one] = collections.deque(), collections.deque()
        self.nodes[one].transport.connected(two)
        self.nodes[two].transport.connected(one)

    def cut(self, one: str, two: str) -> None:
        """Break a link: what is in flight is gone."""
        pair = frozenset((one, two))
        if pair not in self.up:
            return
        self.up.discard(pair)
        del self.flying[one, two], self.flying[two, one]
        for here, there in ((one, two), (two, one)):
            if here in self.nodes:
                self.nodes[here].transport.lost(there)

    def deliver(self, receiver: str) -> None:
        """Everything that has arrived at *receiver*."""
        for sender in self.names:
            queue = self.flying.get((sender, receiver))
            while queue and queue[0][0] <= self.clock.now_s and (sender, receiver) in self.flying:
                self.nodes[receiver].transport.receive(sender, queue.popleft()[1])

    # Faults ----------------------------------------------------------------------------------------------------
    def kill(self, name: str) -> None:
        """SIGKILL: memory goes, files stay."""
        for other in self.names:
            if other != name:
                self.cut(name, other)
        node = self.nodes.pop(name)
        node.log.close()
        node.votes.close()
        self.paused.discard(name)
        self.faults["kill"] += 1

    def disturb(self) -> None:
        """Maybe one fault."""
        rng, chance = self.rng, self.rng.random()
        if chance < 0.004:
            self.halves = {name: rng.randrange(2) for name in self.names}
            self.faults["partition"] += 1
        elif chance < 0.010:
            self.halves = {}
        elif chance < 0.013 and self.nodes:
            self.kill(rng.choice(sorted(self.nodes)))
        elif chance < 0.019:
            down = [name for name in self.names if name not in self.nodes]
            if down:
                self.nodes[down[0]] = SimNode(self, down[0], bootstrap=False)
        elif chance < 0.022:
            self.paused.add(rng.choice(self.names))
            self.faults["pause"] += 1
        elif chance < 0.027 and self.paused:
            self.paused.remove(rng.choice(sorted(self.paused)))
        elif chance < 0.030:
            self.cut(*rng.sample(self.names, 2))
            self.faults["reset"] += 1

    def isolate(self, name: str) -> None:
        """Nobody hears *name*, until `heal`; to be followed by steps that do not heal."""
        self.halves = {other: int(other == name) for other in self.names}

    def restart(self, name: str, *, applied: int = 1) -> SimNode:
        """Kill *name* and start it with a saved state that holds *applied*."""
        self.kill(name)
        node = self.nodes[name] = SimNode(self, name, bootstrap=False, applied=applied)
        return node

    def heal(self) -> None:
        """No faults any more."""
        self.halves = {}
        self.paused.clear()
        for name in self.names:
            if name not in self.nodes:
                self.nodes[name] = SimNode(self, name, bootstrap=False)

    # The run ---------------------------------------------------------------------------------------------------
    def applied(self, node: SimNode, entry: StoredEntry) -> None:
        """One history for all: the first node to apply an index decides what stands there."""
        expected = self.history.setdefault(entry.index, entry.crc)
        assert expected == entry.crc, f"{node.name} applied another entry at {entry.index}"
        value = self.proposed.pop((node.name, entry.index, entry.term), None)
        if value is not None:
            self.acked.add(value)
            self.values[value] = bytes(entry.body)

    def step(self, *, chaos: bool, heals: bool = True) -> None:
        """Five milliseconds."""
        self.clock.now_s += STEP_S
        if chaos:
            self.disturb()
        elif heals:
            self.heal()
        for number, one in enumerate(self.names):
            for two in self.names[number + 1 :]:
                if self.halves and self.halves[one] != self.halves[two]:
                    self.cut(one, two)
                elif self.rng.random() < 0.1:
                    self.connect(one, two)
        for name in self.rng.sample(self.names, len(self.names)):
            node = self.nodes.get(name)
            if node is None or name in self.paused:
                continue
            self.deliver(name)
            if chaos and node.consensus.is_serving and self.rng.random() < 0.5:
                payload = b"%d" % self.sent + b"." * self.rng.choice((10, 200, 3000))
                entry = node.consensus.append([payload], 1, urgent=False)
                self.proposed[name, entry.index, entry.term] = self.sent
                self.sent += 1
            node.step(self.rng)

    def run_until(self, holds: Callable[[], bool], *, within_s: float = 10.0, heals: bool = True) -> float:
        """Calm until *holds*; the virtual seconds that it took."""
        began_s = self.clock.now_s
        while not holds():
            assert self.clock.now_s < began_s + within_s, f"not within {within_s} s"
            self.step(chaos=False, heals=heals)
        return self.clock.now_s - began_s

    def run(self, seconds: float, *, heals: bool = True) -> None:
        """Calm for so long."""
        until_s = self.clock.now_s + seconds
        self.run_until(lambda: self.clock.now_s >= until_s, within_s=seconds + 1, heals=heals)

    def elect(self, *, heals: bool = True) -> tuple[SimNode, list[SimNode]]:
        """Run until one leads; it and the others that live, sorted."""
        self.run_until(lambda: self.leader is not None, heals=heals)
        leader = self.leader
        assert leader is not None
        return leader, [node for node in self.nodes.values() if node is not leader]

    @property
    def leader(self) -> SimNode | None:
        """Who serves in the newest term."""
        serving = [node for node in self.nodes.values() if node.consensus.is_serving]
        return max(serving, key=lambda node: node.consensus.raftCurrentTerm, default=None)

    def said(self, kind: str, sender: SimNode | None = None, receiver: SimNode | None = None) -> list[Sent]:
        """What the tape has of these."""
        assert self.tape is not None
        return [
            sent
            for sent in self.tape
            if sent.kind == kind
            and (sender is None or sent.sender == sender.name)
            and (receiver is None or sent.receiver == receiver.name)
        ]

    def is_converged(self) -> bool:
        """Everybody has applied the same, to the end of the leader's log."""
        ends = {(node.log.end_index, node.consensus.raftLastApplied) for node in self.nodes.values()}
        return len(self.nodes) == len(self.names) and len(ends) == 1 and len(set(next(iter(ends)))) == 1
