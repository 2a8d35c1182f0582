"""A broker on a machine: what tern_broker/run.py does in a process, in virtual time, with the real Engine and LinkDispatcher.

`Build` makes every part, so that a test can plant a bug in one of them. Owner: the world.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.dispatcher import LinkDispatcher
from tern_broker.node.rebuild_offer import rebuild_offer
from tern_raft import PeerLinks, RaftNode
from tern_remoting import Frame
from tern_store import StoredEntry, StoreLimits
from tern_store.retention import DiskUse, Pressure
from tern_store.small_files import QUARANTINE
from tern_store.state.vote_file import Standing
from tern_wire.link.commands import STATE_MACHINE_VERSION
from tern_wire.link.requests import ERROR, Parts, RequestCode, read_error
from tests.sim.laws.kept_unread import lost_unread
from tests.sim.laws.observers import Observers
from tests.sim.machines.machine import DIRECTORY, Machine
from tests.sim.machines.process import Process
from tests.support.broker.roomy_link import RoomyLink

DISK_CHECK_PERIOD_S = 1.0
# What must stay free on the machines here, whose disks are small; the product's figure is for real ones.
DISK_FREE_MIN_BYTES = 64 << 10
KEY = b"k" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig(BrokerConfig):
    """A broker's settings, with files so small that a short run has many of them."""

    limits: StoreLimits = field(default_factory=StoreLimits)
    # The version of the state machine that the release on this machine knows.
    release: int = STATE_MACHINE_VERSION

    def state_machine_version(self) -> int:
        """As the world says."""
        return self.release

    def store_limits(self) -> StoreLimits:
        """As the seed says."""
        return self.limits


class Reply(RoomyLink):
    """What LinkDispatcher takes for the link of a proxy: one request's way back."""

    __slots__ = ("_send", "closed")

    def __init__(self, send: Callable[[int, bytes], None]) -> None:
        self._send, self.closed = send, False

    def reply(self, _opaque: int, code: int, parts: Parts) -> bool:
        """Answer."""
        self._send(code, b"".join(parts))
        return True


@dataclass(slots=True)
class Build:
    """Makes the parts of a node. A test overrides one to plant a bug."""

    engine: Callable[..., Engine] = Engine
    dispatcher: Callable[..., LinkDispatcher] = LinkDispatcher
    links: Callable[..., PeerLinks] = PeerLinks
    # What a node does that finds damage, before it stands by; (config, incarnation=, files=).
    forget_votes: Callable[..., None] = RaftNode.forget_votes


class BrokerNode:
    """One process of a broker, from its start to its end."""

    def __init__(
        self,
        machine: Machine,
        process: Process,
        config: NodeConfig,
        *,
        build: Build,
        rng: random.Random,
        observers: Observers,
        say: Callable[[str], None],
    ) -> None:
        """Opens the files, which raises what Engine raises."""
        self.machine, self.process, self.config = machine, process, config
        self.name = machine.name
        self._observers, self._say = observers, say
        self.links = build.links(
            config.node, config.members(), key=KEY, group_id=config.group_id, listen=config.listen, rng=rng
        )
        self.engine = build.engine(
            config, runtime=process, links=self.links, files=machine.files, on_change=lambda: None
        )
        self.links._transport = self.engine.raft.transport
        self.dispatcher = build.dispatcher(config, self.engine, key=KEY, rng=rng, monotonic=process.monotonic)
        self.offer = rebuild_offer(config, self.engine, key=KEY)
        self.votes = self.engine.raft._votes
        self._commit, self._role = self.engine.raft.commit_index, (0, False)
        self._vote = self.votes._vote
        # Told when the node's standing has changed.
        self.on_standing: Callable[[Standing], None] = lambda standing: None
        observers.started(self.name, self.engine.raft.applied_index)
        self._observe_apply()
        process.after_event = self.observe
        process.on_end.append(lambda: observers.stopped(self.name))
        observers.ghosts.attach(self)

    def begin(self) -> None:
        """Join the group; the links have been told before."""
        self.engine.begin()
        self._watch_disk()

    def request(self, code: int, body: bytes, send: Callable[[int, bytes], None]) -> None:
        """One request of a client; *send* is given the reply's code and body."""
        if code == RequestCode.STATUS:  # also asked of nodes that are quarantined
            self.dispatcher.on_frame(Reply(send), Frame(code, 1, 0, "", body))  # type: ignore[arg-type]
            return
        is_damaged = self.machine.files.has(DIRECTORY, QUARANTINE)

        def reply(reply_code: int, reply_body: bytes) -> None:
            bug = read_error(reply_body).fields.get("bug", "") if reply_code == ERROR else ""
            self._observers.served(self.name, reply_code, is_damaged, str(bug))
            send(reply_code, reply_body)

        self.dispatcher.on_frame(Reply(reply), Frame(code, 1, 0, "", body))  # type: ignore[arg-type]

    # Observed ----------------------------------------------------------------------------------------------------
    def _observe_apply(self) -> None:
        consensus, observers, name = self.engine.raft._consensus, self._observers, self.name
        apply = consensus._apply

        def observed(entry: StoredEntry) -> None:
            for text in lost_unread(self, entry):
                observers.unread(text)
            apply(entry)
            observers.applied(name, entry.index, entry.term, entry.crc)
            leasing, alive = self.engine.state.leasing, 0
            for row in leasing.deliveries.values():
                for one in row:
                    if one is not None:
                        alive += len(one.leases) + len(one.rests)
            observers.deadlines(name, alive, len(leasing.deadlines), leasing.deadlines.pairs)

        consensus._apply = observed

    def observe(self) -> None:
        """After each event: what it has changed."""
        consensus, vote = self.engine.raft._consensus, self.votes._vote
        commit = consensus._SyncObj__raftCommitIndex
        if commit != self._commit:
            self._commit = commit
            self._observers.committed(self.name, commit)
        if vote is not self._vote:
            before, self._vote = self._vote, vote
            if vote.voted_for is not None:
                self._observers.voted(self.name, vote.term, vote.voted_for)
            if vote.standing is not before.standing:
                self._say(f"{self.name} is {vote.standing.name.lower()}, floor {vote.floor_term}")
                self.on_standing(vote.standing)
        acts = consensus.raftCurrentTerm, consensus._SyncObj__votedForNodeId
        if acts != (vote.term, vote.voted_for):
            kept = vote.term, vote.voted_for
            self._observers.ghosts.acts(self.name, acts, kept, self.engine.store.log.end_term)
        # Behind the vote: a group of one elects itself in one event.
        is_leader = consensus.is_leader
        if is_leader != self._role[1] or (is_leader and vote.term != self._role[0]):
            self._role = (vote.term, is_leader)
            self._observers.role(self.name, vote.term, is_leader)
            self._say(f"{self.name} {'leads' if is_leader else 'follows'} in term {vote.term}, commit {commit}")

    # As run.py's _watch_disk -------------------------------------------------------------------------------------
    def _watch_disk(self) -> None:
        files, engine = self.machine.files, self.engine
        has_limit = files.capacity_bytes is not None
        engine.disk_used(DiskUse(files.used_bytes, files.capacity_bytes or 1) if has_limit else DiskUse(0, 1))
        self.dispatcher.sends.disk_full = (
            files.free_bytes(DIRECTORY) < DISK_FREE_MIN_BYTES
            or engine.trimmer.pressure is Pressure.REFUSE
            or engine.store.log.is_on_reserve
        )
        self.process.call_later(DISK_CHECK_PERIOD_S, self._watch_disk)
