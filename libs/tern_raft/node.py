"""RaftNode: the broker's interface to consensus.

One owner, the core loop; only sync jobs leave it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tern_raft.barrier import Ready
from tern_raft.clocks import PeerClocks
from tern_raft.consensus import Consensus
from tern_raft.greeter import Greeter
from tern_raft.journal import CommitLogJournal
from tern_raft.membership import Membership, read_readmit
from tern_raft.pace import Pace
from tern_raft.pass_over import PassOver, Verdict
from tern_raft.readmission import Readmission
from tern_raft.runtime import Disk, Links, PeerStatus, Runtime
from tern_raft.transfer import Transfer
from tern_raft.transport import PeerTransport
from tern_raft.upkeep_clock import UpkeepClock
from tern_store import CommitLog, EntryKind, Files, Genesis, StoredEntry, SyncJob, VoteFile
from tern_store.files import REAL_FILES
from tern_store.state.vote_file import Standing
from tern_wire.limits import SEGMENT_SIZE_DEFAULT_BYTES

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """One member of a broker group.
    *members* maps names, this node's included, to (host, Raft port).
    """

    node: str
    members: dict[str, tuple[str, int]]
    group_id: bytes
    directory: Path
    bootstrap: bool = False
    segment_size_bytes: int = SEGMENT_SIZE_DEFAULT_BYTES
    election_min_s: float = 0.5
    election_max_s: float = 1.0
    # The newest state machine version of this release.
    version: int = 1
    # HTTP port of this node, sent to its peers; 0: not sent.
    http_port: int = 0

    def others(self) -> list[str]:
        """The other members, sorted."""
        return sorted(set(self.members) - {self.node})

    def genesis(self) -> Genesis:
        """The first entry of every member's log."""
        return Genesis(self.group_id, tuple(sorted(self.members)), self.segment_size_bytes)


class RaftNode:
    """One node of a replicated log: propose on the leader, apply everywhere."""

    def __init__(
        self,
        config: RaftConfig,
        *,
        runtime: Runtime,
        links: Links,
        log_: CommitLog,
        votes: VoteFile,
        disk: Disk,
        applied: int,
        apply: Callable[[StoredEntry], None],
        on_role: Callable[[], None],
        on_behind: Callable[[], None],
        on_fatal: Callable[[Exception], None],
        pass_over: Callable[[StoredEntry], None] = lambda _entry: None,
        on_clock: Callable[[], None] = lambda: None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """*apply* receives every committed entry once, in order; *pass_over* those that are
        skipped.
        *on_fatal* ends the process. *on_clock* is called every few ms, *on_tick* after any
        progress. *on_behind*: the leader's log begins behind this one's end, so this node must be
        rebuilt.
        """
        self._runtime, self._disk, self._votes = runtime, disk, votes
        self._on_fatal, self._apply_commands, self._pass_over_commands = on_fatal, apply, pass_over
        self._on_clock, self._on_tick = on_clock, on_tick
        self._syncing = False
        self._tick_due = False
        self._clock = UpkeepClock(self._step, runtime)
        self._stopped = False
        self.log = log_
        self._journal = CommitLogJournal(log_, votes, on_append=self._sync_soon)
        others = config.others()
        self._membership = _membership(config, votes)
        self.transport = PeerTransport(
            config.node,
            others,
            membership=self._membership,
            clocks=PeerClocks(monotonic=runtime.monotonic, wall_ms=runtime.wall_ms),
            post=links.post,
            buffered=links.buffered,
            kick=self._kick,
            on_heartbeat=self._clock.heartbeat,
            kick_later=lambda delay_s: runtime.call_later(delay_s, self._kick),
            on_behind=on_behind,
            on_fatal=on_fatal,
            stickiness_s=config.election_min_s,
        )
        self._consensus = Consensus(
            config.node,
            others,
            journal=self._journal,
            transport=self.transport,
            applied=applied,
            apply=self._apply,
            on_role=on_role,
            kick=self._kick,
            call_later=runtime.call_later,
            election_min_s=config.election_min_s,
            election_max_s=config.election_max_s,
        )
        self.transport.bind(self._consensus)
        self.pass_over = self.transport.pass_over = PassOver(
            log_,
            consensus=lambda: self._consensus,
            membership=self._membership,
            others=others,
            monotonic=runtime.monotonic,
        )
        self._consensus.may_apply = lambda index: self.pass_over.verdict(index) is not Verdict.WAIT
        self._others = others
        self._readmission = Readmission(self._consensus, self._membership, others, runtime.monotonic)
        self._transfer = Transfer(self._consensus, self._membership, others, runtime.monotonic)
        self._pace = Pace(self._behind, runtime.monotonic, lambda delay_s: runtime.call_later(delay_s, self._kick))
        # Set by the owner: this node leads without serving, since its state is in doubt.
        self.is_held = False
        # Duration of the log's last sync.
        self.sync_s = 0.0

    @staticmethod
    def open_votes(config: RaftConfig, *, incarnation: bytes, files: Files = REAL_FILES) -> VoteFile:
        """Open term and vote; *incarnation* is for a directory without one. StoreError."""
        return VoteFile.open(
            config.directory,
            bootstrap=config.bootstrap,
            group=config.genesis(),
            incarnation=incarnation,
            files=files,
        )

    @staticmethod
    def forget_votes(config: RaftConfig, *, incarnation: bytes, needs_copy: bool, files: Files = REAL_FILES) -> None:
        """Durable here: the log is lost, so the group must readmit this node as *incarnation*.
        *needs_copy*: its log must be copied first; False once it has been.
        """
        votes = RaftNode.open_votes(config, incarnation=incarnation, files=files)
        if votes.standing is not Standing.UNBORN:
            votes.forget(incarnation, needs_copy=needs_copy)
        votes.close()

    @staticmethod
    def greeter(config: RaftConfig, links: Links, *, files: Files = REAL_FILES) -> Greeter:
        """The receiver of the links' events while this node has no usable log."""
        votes = RaftNode.open_votes(config, incarnation=b"", files=files)
        votes.close()
        return Greeter(_membership(config, votes), links.post)

    def begin(self) -> None:
        """Start ticking; the links listen and dial from now on."""
        if self.log.end_index > 1:
            self.transport.elections.begin()
        self._sync_soon()
        self._clock.begin()

    def finish(self) -> None:
        """Stop acknowledging. The log stays open for a last save; the owner closes the links."""
        self._stopped = True
        self._clock.stop()

    # The broker's queries and commands ------------------------------------------------------------
    @property
    def is_leader(self) -> bool:
        """Whether this node considers itself leader; a deposed one may for election_min_s."""
        return not self._stopped and self._consensus.is_leader

    @property
    def is_serving(self) -> bool:
        """Whether it leads, has applied all entries committed before its term, and is not held."""
        return self.is_current and not self.is_held

    @property
    def is_current(self) -> bool:
        """Whether this node leads and has applied everything committed before its term, held or
        not.
        """
        return not self._stopped and self._consensus.is_serving

    @property
    def leader(self) -> str | None:
        """The leader as far as this node knows."""
        return self._consensus.leader_name

    @property
    def term(self) -> int:
        """The current term."""
        return int(self._consensus.raftCurrentTerm)

    @property
    def commit_index(self) -> int:
        """The last index known to be committed."""
        return int(self._consensus.raftCommitIndex)

    @property
    def applied_index(self) -> int:
        """The last index that the state machine has applied."""
        return int(self._consensus.raftLastApplied)

    @property
    def is_yielding(self) -> bool:
        """Whether leadership is being handed over: propose nothing new."""
        return self._transfer.is_under_way

    @property
    def may_propose(self) -> bool:
        """Whether the followers keep up; if not, check again at every tick: the wait is short."""
        return self._pace.may_go_on()

    def _behind(self, lag_entries: int) -> set[str]:
        least = self.log.end_index - lag_entries
        match_index, counts = self._consensus.match_index, self._membership.counts
        return {peer for peer in self._others if counts(peer) and match_index(peer) < least}

    @property
    def standing(self) -> Standing:
        """This node's standing in its group."""
        return self._votes.standing

    @property
    def common_version(self) -> int:
        """The state machine's version that all members support; 0 while any is missing or
        partial.
        """
        return self._membership.common_version()

    @property
    def clocks(self) -> PeerClocks:
        """The members' clocks."""
        return self.transport.clocks

    @property
    def campaigns(self) -> int:
        """Campaigns that this node has begun."""
        return self.transport.elections.campaigns

    @property
    def transfers(self) -> int:
        """Handovers of leadership that this node has begun."""
        return self._transfer.count

    def peers(self) -> list[PeerStatus]:
        """The other members' statuses."""
        connected = {str(node.id) for node in self._consensus.otherNodes if self._consensus.isNodeConnected(node)}
        found = []
        for name in self._others:
            standing = self._membership.standing_of(name)
            found.append(
                PeerStatus(
                    name=name,
                    connected=name in connected,
                    match_index=self._consensus.match_index(name),
                    standing=standing.name.lower() if standing is not None else "unknown",
                    version=self._membership.version_of(name),
                    disk_permille=self.transport.disk_permille.get(name, 0) if name in connected else 0,
                )
            )
        return found

    def counted(self) -> set[str]:
        """The other members that are connected and vote."""
        return {peer for peer in self._others if self._membership.counts(peer)}

    def hear_digests(self, heard: Callable[[str, int, int], None]) -> None:
        """Pass digests of peers' states to *heard* (peer, index, digest)."""
        self.transport.on_digest = heard

    def tell_digest(self, index: int, digest: int) -> None:
        """Send the leader this node's digest at entry *index*; lost ones are requested again."""
        if (leader := self.leader) is not None and leader in self._others:
            self.transport.tell_digest(leader, index, digest)

    def when_current(self, ready: Ready) -> None:
        """Call *ready* when the applied state is the leader's current one; False: it does not
        lead.
        """
        self.transport.barrier.ask(ready)
        self._kick()

    def transfer(self, to: str | None) -> str:
        """Hand leadership to *to* (None: the most complete member); return an obstacle, or ""."""
        reason = self._transfer.begin(to)
        self._kick()
        return reason

    def propose(
        self, parts: list[bytes | bytearray | memoryview], version: int, *, urgent: bool = False
    ) -> StoredEntry:
        """Append one entry as the leader; the caller has just checked is_serving.
        `apply` shows its outcome. An *urgent* entry stores no message and may use the last space of
        a full disk. OSError other than SyncLost: nothing was appended.
        """
        entry = self._consensus.append(parts, version, urgent=urgent)
        self._kick()
        return entry

    # Driving --------------------------------------------------------------------------------------
    def _step(self) -> None:
        self._readmission.step()
        self.pass_over.step()
        self._on_clock()
        self._kick()

    def _kick(self) -> None:
        """Tick once in the next turn of the loop, however many events request it."""
        if not self._tick_due and not self._stopped:
            self._tick_due = True
            self._runtime.call_soon(self._tick)

    def _tick(self) -> None:
        self._tick_due = False
        if self._stopped:
            return
        try:
            self._consensus.doTick(0)
            self._serve_barrier()
        except Exception as error:
            # An entry half applied, or an unreadable log: continuing would apply it twice (L1,
            # syncobj.py:594-597). A restart replays from the saved state.
            self._on_fatal(error)
            raise
        self._transfer.step()
        self._on_tick()
        if self._consensus.needs_apply:
            self._kick()

    def _serve_barrier(self) -> None:
        barrier = self.transport.barrier
        if not barrier.is_busy:
            return
        if not self.is_serving:
            barrier.fail()
            return
        if barrier.wants_round:
            barrier.begin(self._consensus.ask_all(), self.commit_index)
        barrier.settle(self.applied_index)

    def _apply(self, entry: StoredEntry) -> None:
        if entry.kind == EntryKind.READMIT and self._membership.readmitted(*read_readmit(entry.body), entry.term):
            self.transport.greet_all()
        if entry.term == self.term and self._membership.settled():
            self.transport.greet_all()
        if self.pass_over.verdict(entry.index) is Verdict.SKIP:
            self._pass_over_commands(entry)
        else:
            self._apply_commands(entry)
        if entry.kind == EntryKind.PASS_OVER:
            # It concerns an earlier entry, which is applied or skipped by now.
            self.log.forget_pass_overs(entry.index)

    def _sync_soon(self) -> None:
        """Start a sync unless one runs; it covers every entry before it (group commit)."""
        if not self._syncing and (job := self.log.take_sync()) is not None:
            self._syncing = True
            self._disk.run_soon(lambda: self._sync(job), lambda: self._synced(job))

    def _sync(self, job: SyncJob) -> None:
        """Run *job* on the disk thread."""
        began_s = self._runtime.monotonic()
        job.run()
        self.sync_s = self._runtime.monotonic() - began_s

    def _synced(self, job: SyncJob) -> None:
        self._syncing = False
        self.log.mark_synced(job)
        if self._stopped:
            return
        self.transport.synced()
        self._sync_soon()
        self._kick()


def _membership(config: RaftConfig, votes: VoteFile) -> Membership:
    return Membership(config.node, config.others(), votes, version=config.version, http_port=config.http_port)
