"""The core: log, queues, state machine and consensus of one broker node, on one loop.

Owner of every file below the data directory. What crosses threads: sync and save jobs (to the disk thread and back).
"""

import asyncio
import errno
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.config import BrokerConfig
from tern_broker.core import saving
from tern_broker.core.machine import Applied, StateMachine
from tern_broker.core.topics import Topic
from tern_broker.proposer import Proposer
from tern_raft import DiskThread, RaftConfig, RaftNode
from tern_store import (
    CommitLog,
    ConsumeQueues,
    DirectoryLock,
    EntryKind,
    LogMark,
    StateSave,
    StoredEntry,
    StoreError,
    VoteFile,
    load_states,
)
from tern_wire.errors import OffsetExpired
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES
from tern_wire.record import Record, decode_record, fill_in, is_whole, record_starts
from tern_wire.requests import Parts

log = logging.getLogger(__name__)
# A restart replays at most about this much: 64 MiB are read and applied in well under a second.
SAVE_AFTER_BYTES = 64 << 20
SAVE_AFTER_S = 30.0
# Expired leases become visible, and role changes are seen, at most this late.
CLOCK_PERIOD_S = 0.05
ENTRY_HEADER_SIZE_BYTES = 48


@dataclass(frozen=True, slots=True)
class Messages:
    """Records of one queue, filled in: *data* is their concatenation, *offsets* one each."""

    data: bytearray
    offsets: npt.NDArray[np.int64]


class Engine:
    """Owner: the core loop. Open, start, stop, in that order, once."""

    def __init__(self, config: BrokerConfig, *, key: bytes, rng: random.Random, on_change: Callable[[], None]) -> None:
        self._config, self._on_change = config, on_change
        self._loop = asyncio.get_running_loop()
        self._lock = DirectoryLock.acquire(config.data_dir)
        raft_config = RaftConfig(
            node=config.node,
            members=config.members(),
            group_id=bytes.fromhex(config.group_id),
            directory=config.data_dir,
            listen=config.listen,
            bootstrap=config.bootstrap,
            segment_size_bytes=config.segment_size_bytes,
            election_min_s=config.election_min_ms / 1000,
            election_max_s=config.election_max_ms / 1000,
        )
        self.state, mark, self._log, votes = _recover(config, raft_config)
        self.queues = ConsumeQueues.open(config.data_dir)
        self.queues.restore(
            {
                (topic.topic_id, queue): end
                for topic in self.state.names.topics.values()
                for queue, end in enumerate(topic.ends)
            }
        )
        self._saved = mark
        self._saved_at_s = time.monotonic()
        # Clear while a save is under way.
        self._saved_once = asyncio.Event()
        self._saved_once.set()
        self._allocating = False
        self._stopping = False
        self._was_leader: tuple[bool, bool] = (False, False)
        self.on_applied: list[Callable[[Applied], None]] = []
        self._disk = DiskThread(self._loop)
        self.raft = RaftNode(
            raft_config,
            key=key,
            log_=self._log,
            votes=votes,
            disk=self._disk,
            applied=mark.index if mark is not None else 1,
            apply=self._apply,
            on_role=self._role_changed,
            rng=rng,
        )
        self.proposer = Proposer(
            broker_group=config.broker_group,
            state=lambda: self.state,
            read_queue=self.queues.read,
            propose=self._propose,
            is_serving=lambda: self.raft.is_serving,
            leader=lambda: self.raft.leader,
            node=config.node,
            mono_ms=lambda: int(time.monotonic() * 1000),
            wall_ms=lambda: int(time.time() * 1000),
            call_soon=self._call_soon,
        )

    async def start(self) -> None:
        """Join the group."""
        await self.raft.start()
        self._clock()

    async def stop(self) -> None:
        """Leave the group, save the state, close the files."""
        self._stopping = True
        await self.raft.stop()
        self.proposer.role_changed()
        await self._saved_once.wait()
        self._save()
        await self._saved_once.wait()
        self._disk.stop()
        self._log.close()
        self._lock.release()

    # Reads -----------------------------------------------------------------------------------------------------
    def read_messages(
        self, topic: Topic, queue: int, offsets: npt.NDArray[np.int64], entries: npt.NDArray[Any]
    ) -> Messages:
        """The records that *entries* point at, copied, with offset and position filled in."""
        positions = entries["position"].astype(np.int64)
        sizes = entries["size"].astype(np.int64)
        data = self._log.read_records(positions, sizes)
        starts = np.cumsum(sizes) - sizes
        if not is_whole(data, starts, sizes):
            raise StoreError(f"no records of topic '{topic.name}' lie where queue {queue} says; restart this node")
        fill_in(data, starts, offsets, positions)
        return Messages(data, offsets)

    def pull(self, topic: Topic, queue: int, offset: int, end: int, messages_max: int, size_max_bytes: int) -> Messages:
        """Messages of [offset, end), at least one if there is one; OffsetExpired below the oldest kept."""
        oldest = topic.mins[queue]
        if offset < oldest:
            raise OffsetExpired(offset=offset, min_offset=oldest)
        count = min(messages_max, min(end, topic.ends[queue]) - offset)
        if count <= 0:
            return Messages(bytearray(), np.empty(0, np.int64))
        entries = self.queues.read(topic.topic_id, queue, offset, count)
        total = np.cumsum(entries["size"].astype(np.int64))
        entries = entries[: max(1, int(np.searchsorted(total, size_max_bytes, side="right")))]
        return self.read_messages(topic, queue, np.arange(offset, offset + len(entries), dtype=np.int64), entries)

    def pull_records(self, topic: Topic, queue: int, offset: int, count: int) -> list[Record]:
        """As pull, decoded one by one: for the few that the broker itself must look into."""
        found = self.pull(topic, queue, offset, offset + count, count, RECEIVE_SIZE_MAX_BYTES)
        return [decode_record(found.data, int(start)) for start in record_starts(found.data)]

    def status(self) -> dict[str, Any]:
        """What people and proxies ask: role, term, leader, indexes, peers, counters."""
        counters = self.state.counters
        return {
            "node": self._config.node,
            "broker_group": self._config.broker_group,
            "role": "leader" if self.raft.is_leader else "follower",
            "serving": self.raft.is_serving,
            "leader": self.raft.leader or "",
            "term": self.raft.term,
            "commit_index": self.raft.commit_index,
            "applied_index": self.raft.applied_index,
            "last_index": self._log.end_index,
            "synced_index": self._log.synced_index,
            "log_size_bytes": self._log.end_position,
            "peers": [
                {"node": peer.name, "connected": peer.connected, "match_index": peer.match_index}
                for peer in self.raft.peers()
            ],
            "topics": len(self.state.names.topics),
            "groups": len(self.state.names.groups),
            "idempotency_keys": len(self.state.keys),
            "waiting_proposals": self.proposer.waiting,
            "entries_proposed": self.proposer.entries,
            "stored": counters.stored,
            "leased": counters.leased,
            "settled": counters.settled,
            "expired": counters.expired,
        }

    # Apply -----------------------------------------------------------------------------------------------------
    def _apply(self, entry: StoredEntry) -> None:
        applied = Applied()
        if entry.kind == EntryKind.COMMANDS:
            applied = self.state.apply(entry.body, entry.position + ENTRY_HEADER_SIZE_BYTES)
            for append in applied.appends:
                self.queues.append(append.topic_id, append.queue, append.first_offset, append.entries)
        # Durable here: a verdict exists only for an entry that a majority has synced.
        self.proposer.applied(entry.index, entry.term, applied)
        for listener in self.on_applied:
            listener(applied)
        if applied.metadata_changed:
            self._on_change()

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """Run the proposer's next step in a turn of its own; half an entry must not leave it waiting for ever."""

        def step() -> None:
            try:
                callback()
            except Exception as error:
                self.raft.fail(error)
                raise

        self._loop.call_soon(step)

    def _propose(self, parts: Parts, version: int) -> tuple[int, int]:
        entry = self.raft.propose(parts, version)
        return entry.index, entry.term

    def _role_changed(self) -> None:
        # pysyncobj calls this in the middle of a tick; decide when the tick is over.
        self._loop.call_soon(self._settle_role)

    def _settle_role(self) -> None:
        role = (self.raft.is_leader, self.raft.is_serving)
        if role != self._was_leader:
            self._was_leader = role
            log.info("role changed", extra={"leader": role[0], "serving": role[1], "term": self.raft.term})
            self.proposer.role_changed()
            self._on_change()

    # Upkeep ----------------------------------------------------------------------------------------------------
    def _clock(self) -> None:
        if self._stopping:
            return
        self._settle_role()
        self.proposer.tick()
        self._allocate_ahead()
        if self._saved_once.is_set() and self.raft.applied_index > (self._saved.index if self._saved else 1):
            grown = self._log.end_position - (self._saved.position if self._saved else 0)
            if grown > SAVE_AFTER_BYTES or time.monotonic() - self._saved_at_s > SAVE_AFTER_S:
                self._save()
        self._loop.call_later(CLOCK_PERIOD_S, self._clock)

    def _allocate_ahead(self) -> None:
        """The next segment is allocated while the second half of this one is filled, so that a roll is a rename."""
        size = self._log.segment_size_bytes
        if self._allocating or self._log.end_position % size < size // 2:
            return
        spare = self._log.preallocate_next()
        if spare is None:
            return
        self._allocating = True
        made = False

        def job() -> None:
            nonlocal made
            try:
                spare.run()
                made = True
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

        def done() -> None:
            self._allocating = not made  # without space: do not try again before a restart; the roll will tell
            if made:
                self._log.mark_preallocated(spare)

        self._disk.run_soon(job, done)

    def _save(self) -> None:
        """Save the state with its applied index; the log is synced first, so that a save never runs ahead of it."""
        applied = self.raft.applied_index
        if applied <= (self._saved.index if self._saved else 1):
            return
        try:
            queue_sync = self.queues.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # Without space the state stays as it was saved; the log has everything. Try again with the next save.
            self._saved_at_s = time.monotonic()
            return
        self._saved_once.clear()
        mark = self._log.mark(applied)
        snapshot = saving.take(self.state)
        log_sync = self._log.take_sync()

        saved = False

        def job() -> None:
            nonlocal saved
            if log_sync is not None:
                log_sync.run()
            queue_sync.run()
            try:
                StateSave(self._config.data_dir, mark, saving.encode(snapshot)).run()
                saved = True
            except OSError as error:
                if error.errno != errno.ENOSPC:  # without space the last save stays; the log has everything
                    raise

        def done() -> None:
            if log_sync is not None:
                self._log.mark_synced(log_sync)
            self._saved, self._saved_at_s = mark if saved else self._saved, time.monotonic()
            self._saved_once.set()

        self._disk.run_soon(job, done)


def _recover(config: BrokerConfig, raft_config: RaftConfig) -> tuple[StateMachine, LogMark | None, CommitLog, VoteFile]:
    """The newest saved state that the log still reaches, and the log behind it."""
    refused: StoreError | None = None
    for saved in [*load_states(config.data_dir), None]:
        try:
            commit_log, votes = RaftNode.open_log(raft_config, saved.mark if saved is not None else None)
        except StoreError as error:
            if saved is None:
                raise refused or error from error
            refused = refused or error
            continue
        if saved is None:
            return StateMachine(), None, commit_log, votes
        try:
            return saving.load(saved.payload), saved.mark, commit_log, votes
        except ValueError as error:
            # Another release's format: the log has everything that it says.
            log.warning("replaying the log", extra={"reason": str(error)})
            commit_log.close()
    raise AssertionError("unreachable: None is always tried")
