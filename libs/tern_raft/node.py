"""RaftNode: what a broker sees of consensus. One owner, the core loop; only sync jobs leave its thread."""

import asyncio
import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tern_raft.consensus import Consensus
from tern_raft.disk import DiskThread
from tern_raft.journal import CommitLogJournal
from tern_raft.links import PeerLinks
from tern_raft.transport import PeerTransport
from tern_store import CommitLog, Genesis, LogMark, StoredEntry, StoreError, VoteFile
from tern_wire.limits import ENTRY_SIZE_MAX_BYTES, SEGMENT_SIZE_DEFAULT_BYTES

log = logging.getLogger(__name__)
# Exit code of a node that must not go on in this process; the supervisor starts it again.
EXIT_BROKEN = 70
# The clock of elections and heartbeats; everything else is driven by events.
TICK_PERIOD_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """One member of a broker group. *members* maps names to (host, Raft port), the own name included."""

    node: str
    members: dict[str, tuple[str, int]]
    group_id: bytes
    directory: Path
    listen: str = "127.0.0.1"
    bootstrap: bool = False
    segment_size_bytes: int = SEGMENT_SIZE_DEFAULT_BYTES
    election_min_s: float = 1.0
    election_max_s: float = 2.0

    def genesis(self) -> Genesis:
        """What every member's log begins with."""
        return Genesis(self.group_id, tuple(sorted(self.members)), self.segment_size_bytes)


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """A member as the leader sees it: the last index it is known to have (0 on followers)."""

    name: str
    connected: bool
    match_index: int


class RaftNode:
    """One node of a replicated log: propose on the leader, apply everywhere."""

    def __init__(
        self,
        config: RaftConfig,
        *,
        key: bytes,
        log_: CommitLog,
        votes: VoteFile,
        disk: DiskThread,
        applied: int,
        apply: Callable[[StoredEntry], None],
        on_role: Callable[[], None],
        rng: random.Random,
        on_fatal: Callable[[Exception], None] | None = None,
    ) -> None:
        self._config, self._disk = config, disk
        self._on_fatal = on_fatal or _end_process
        self._loop = asyncio.get_running_loop()
        self._syncing = False
        self._tick_due = False
        self._stopped = False
        self.log = log_
        self._journal = CommitLogJournal(log_, votes, on_append=self._sync_soon)
        others = sorted(set(config.members) - {config.node})
        self._links = PeerLinks(
            config.node, config.members, key=key, group_id=config.group_id.hex(), listen=config.listen, rng=rng
        )
        self._transport = PeerTransport(
            config.node,
            others,
            post=self._links.post,
            buffered=self._links.buffered,
            kick=self._kick,
            stickiness_s=config.election_min_s,
        )
        self._consensus = Consensus(
            config.node,
            others,
            journal=self._journal,
            transport=self._transport,
            applied=applied,
            apply=apply,
            on_role=on_role,
            election_min_s=config.election_min_s,
            election_max_s=config.election_max_s,
        )
        self._transport.bind(self._consensus)
        self._others = others

    @staticmethod
    def open_log(config: RaftConfig, start: LogMark | None) -> tuple[CommitLog, VoteFile]:
        """Recover the log behind *start* and the vote; StoreError subclasses say what is wrong and what to do."""
        votes = VoteFile.open(config.directory, bootstrap=config.bootstrap, group=config.genesis())
        commit_log = CommitLog.open(
            config.directory,
            group=config.genesis(),
            segment_size_bytes=config.segment_size_bytes,
            entry_size_max_bytes=ENTRY_SIZE_MAX_BYTES,
            start=start,
        )
        if commit_log.was_created and votes.term > 0:
            commit_log.close()
            raise StoreError(
                f"{config.directory} holds votes of term {votes.term} but no log: the log was lost, and this node may not "
                "vote as if it had never had one. Restore the directory, or wait for a release that rebuilds nodes."
            )
        return commit_log, votes

    async def start(self) -> None:
        """Listen, dial, tick."""
        await self._links.start(self._transport)
        self._sync_soon()
        self._clock()

    async def stop(self) -> None:
        """Leave the group in order; nothing is acknowledged any more. The log stays open for a last save."""
        self._stopped = True
        await self._links.stop()

    # What the broker asks --------------------------------------------------------------------------------------
    @property
    def is_leader(self) -> bool:
        """Whether this node believes to lead (a deposed leader may for up to election_min_s)."""
        return not self._stopped and self._consensus.is_leader

    @property
    def is_serving(self) -> bool:
        """Leader with everything that was committed before its term applied."""
        return not self._stopped and self._consensus.is_serving

    @property
    def leader(self) -> str | None:
        """Who leads, as far as this node knows."""
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
        """The last index that the state machine has seen."""
        return int(self._consensus.raftLastApplied)

    def peers(self) -> list[PeerStatus]:
        """The other members."""
        connected = {str(node.id) for node in self._consensus.otherNodes if self._consensus.isNodeConnected(node)}
        return [PeerStatus(name, name in connected, self._consensus.match_index(name)) for name in self._others]

    def propose(self, parts: list[bytes | bytearray | memoryview], version: int) -> StoredEntry:
        """Append one entry as the leader (the caller has just checked is_serving). Its fate is seen by `apply`."""
        entry = self._consensus.append(parts, version)
        self._kick()
        return entry

    def fail(self, error: Exception) -> None:
        """The owner met what must not happen: end the process, as for an exception in apply."""
        self._on_fatal(error)

    # Driving ---------------------------------------------------------------------------------------------------
    def _clock(self) -> None:
        if not self._stopped:
            self._kick()
            self._loop.call_later(TICK_PERIOD_S, self._clock)

    def _kick(self) -> None:
        """Tick once in the next turn of the loop, however many events ask for it."""
        if not self._tick_due and not self._stopped:
            self._tick_due = True
            self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._tick_due = False
        if self._stopped:
            return
        try:
            self._consensus.doTick(0)
        except Exception as error:
            # An entry half applied, a log that cannot be read: going on would apply it twice. A restart replays from the save.
            self._on_fatal(error)
            raise
        if self._consensus.needs_apply:
            self._kick()

    def _sync_soon(self) -> None:
        """One fdatasync at a time covers everything appended before it: group commit."""
        if not self._syncing and (job := self.log.take_sync()) is not None:
            self._syncing = True
            self._disk.run_soon(job.run, lambda: self._synced(job))

    def _synced(self, job: object) -> None:
        self._syncing = False
        self.log.mark_synced(job)  # type: ignore[arg-type]
        if self._stopped:
            return
        self._transport.synced()
        self._sync_soon()
        self._kick()


def _end_process(error: Exception) -> None:
    log.critical("this node cannot go on; it ends, and replays the log when it is started again", exc_info=error)
    os._exit(EXIT_BROKEN)
