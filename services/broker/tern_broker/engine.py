"""The core: log, queues, state machine and consensus of one broker node, on one loop.

Owner of every file below the data directory. What crosses threads: sync and save jobs (to the disk thread and back).
"""

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.allocator import Allocator
from tern_broker.config import BrokerConfig
from tern_broker.core import saving
from tern_broker.core.machine import Applied, StateMachine
from tern_broker.core.topics import Topic
from tern_broker.proposer import Proposer
from tern_broker.saver import Saver
from tern_broker.scrubber import Scrubber
from tern_broker.trimmer import Trimmer
from tern_raft import EXIT_BROKEN, EXIT_FSYNC_FAILED, Links, RaftNode, Runtime
from tern_store import (
    HEADER_SIZE_BYTES,
    DerivedDamage,
    DirectoryLock,
    EntryKind,
    Files,
    LogMark,
    LogRot,
    Store,
    StoredEntry,
    StoreError,
    TrimJob,
)
from tern_store.files import REAL_FILES
from tern_store.small_files import ABORT, read_text, remove_abort, write_abort
from tern_wire.errors import OffsetExpired
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES
from tern_wire.record import Record, decode_record, fill_in, is_whole, record_starts
from tern_wire.requests import Parts

log = logging.getLogger(__name__)
# Expired leases become visible, and role changes are seen, at most this late.
CLOCK_PERIOD_S = 0.05


@dataclass(frozen=True, slots=True)
class Messages:
    """Records of one queue, filled in: *data* is their concatenation, *offsets* one each."""

    data: memoryview
    offsets: npt.NDArray[np.int64]


class Engine:
    """Owner: the core loop. Open, start, stop, in that order, once."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        runtime: Runtime,
        links: Links,
        files: Files = REAL_FILES,
        on_change: Callable[[], None],
    ) -> None:
        """Recover what is in the data directory. StoreError and its kin say what is wrong with it."""
        self._config, self._runtime, self._on_change = config, runtime, on_change
        self._lock = DirectoryLock.acquire(config.data_dir, files=files)
        raft_config = config.raft()
        _require_no_loss(config, runtime.boot_id, files)
        votes = RaftNode.open_votes(raft_config, files=files)
        self.store = Store.open(
            config.data_dir,
            group=raft_config.genesis(),
            accepts=saving.is_known,
            may_begin=votes.term == 0,
            limits=config.store_limits(),
            files=files,
        )
        self._log = self.store.log
        mark = self.store.applied
        self.state = saving.load(self.store.payload) if self.store.payload is not None else StateMachine()
        if self.store.rebuilding:
            log.warning("making queues, index and timers again from the log", extra={"reason": self.store.rebuilding})
        write_abort(config.data_dir, runtime.pid, runtime.boot_id, files)
        self._stopping = False
        self._was_leader: tuple[bool, bool] = (False, False)
        self.on_applied: list[Callable[[Applied], None]] = []
        self._disk = runtime.open_disk(self._disk_failed)
        self.raft = RaftNode(
            raft_config,
            runtime=runtime,
            links=links,
            log_=self._log,
            votes=votes,
            disk=self._disk,
            applied=mark.index if mark is not None else 1,
            apply=self._apply,
            on_role=self._role_changed,
            on_fatal=self.fail,
        )
        self._saver = Saver(
            self.store,
            self._disk,
            state=lambda: self.state,
            applied=lambda: self.raft.applied_index,
            monotonic=runtime.monotonic,
        )
        self._allocator = Allocator(self._log, self._disk)
        self._scrubber = Scrubber(self.store, on_damage=self.fail)
        self.proposer = Proposer(
            broker_group=config.broker_group,
            state=lambda: self.state,
            read_queue=self.store.read_queue,
            propose=self._propose,
            is_serving=lambda: self.raft.is_serving,
            leader=lambda: self.raft.leader,
            node=config.node,
            mono_ms=lambda: int(runtime.monotonic() * 1000),
            wall_ms=runtime.wall_ms,
            call_soon=self._call_soon,
        )
        self.trimmer = Trimmer(
            config.retention(),
            self.store,
            self.proposer,
            state=lambda: self.state,
            hour=lambda: time.localtime(runtime.wall_ms() / 1000).tm_hour,
        )

    def begin(self) -> None:
        """Join the group, now that the links listen."""
        self.raft.begin()
        self._clock()

    def finish(self, done: Callable[[], None]) -> None:
        """Leave the group, save the state, close the files; then *done*."""
        self._stopping = True
        self.raft.finish()
        self.proposer.role_changed()

        def saved(is_saved: bool) -> None:
            self._disk.stop()
            self.store.close()
            if is_saved:
                remove_abort(self._config.data_dir, self.store.files)
            self._lock.release()
            done()

        self._saver.finish(saved)

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
            return Messages(memoryview(b""), np.empty(0, np.int64))
        entries = self.store.read_queue(topic.topic_id, queue, offset, count)
        total = np.cumsum(entries["size"].astype(np.int64))
        entries = entries[: max(1, int(np.searchsorted(total, size_max_bytes, side="right")))]
        return self.read_messages(topic, queue, np.arange(offset, offset + len(entries), dtype=np.int64), entries)

    def pull_records(self, topic: Topic, queue: int, offset: int, count: int) -> list[Record]:
        """As pull, decoded one by one: for the few that the broker itself must look into."""
        found = self.pull(topic, queue, offset, offset + count, count, RECEIVE_SIZE_MAX_BYTES)
        return [decode_record(found.data, int(start)) for start in record_starts(found.data)]

    def trim_now(self) -> dict[str, Any]:
        """Somebody wants retention to look now; only the leader can."""
        if self.raft.is_serving:
            self.trimmer.trim_now()
        return {"asked": self.raft.is_serving, "leader": self.raft.leader or ""}

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
            "log_size_bytes": self._log.end_position - self._log.start.position,
            "log_first_index": self._log.first_index,
            "rebuilding": self.store.rebuilding,
            "scrub_passes": self._scrubber.passes,
            "scrubbed_bytes": self._scrubber.checked_bytes,
            "disk_pressure": self.trimmer.pressure.value,
            "trims": self.trimmer.trims,
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
        self._saver.before_apply(entry)
        applied = Applied()
        if entry.kind == EntryKind.COMMANDS:
            applied = self.state.apply(entry.body, entry.position + HEADER_SIZE_BYTES)
            if applied.appends:
                names = self._topic_names(applied)
                for appends in applied.appends:
                    self.store.dispatch(entry, appends, names, self.state.now_ms)
            if applied.moves or applied.trim is not None:
                self._apply_retention(entry, applied)
        # Durable here: a verdict exists only for an entry that a majority has synced.
        self.proposer.applied(entry.index, entry.term, applied)
        for listener in self.on_applied:
            listener(applied)
        if applied.metadata_changed:
            self._on_change()

    def _topic_names(self, applied: Applied) -> dict[int, bytes]:
        topics = self.state.names.topics_by_id
        wanted = {topic_id for appends in applied.appends for topic_id in appends.topic_ids()}
        return {topic_id: topics[topic_id].name.encode() for topic_id in wanted}

    def _apply_retention(self, entry: StoredEntry, applied: Applied) -> None:
        names = {topic_id: topic.name.encode() for topic_id, topic in self.state.names.topics_by_id.items()}
        for moves in applied.moves:
            self.store.move(entry, moves.rows, moves.positions, names, self.state.now_ms)
        trim = applied.trim
        if trim is None:
            return
        for group_id, topic_id, queue, messages in trim.lost:
            facts = {
                "group": self.state.names.groups_by_id[group_id].name,
                "topic": self.state.names.topics_by_id[topic_id].name,
                "queue": queue,
                "messages": messages,
            }
            log.warning("retention dropped messages that a group had not read", extra=facts)
        self._drop_segments(self.store.trim(LogMark(trim.index, trim.position, trim.crc, trim.term), trim.floors))

    def _drop_segments(self, job: TrimJob | None) -> None:
        if job is not None:
            log.info("retention dropped segments", extra={"first_index": self._log.first_index})
            self._disk.run_soon(job.run, lambda: self.store.trimmed(job))

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """Run the proposer's next step in a turn of its own; half an entry must not leave it waiting for ever."""

        def step() -> None:
            try:
                callback()
            except Exception as error:
                self.raft.fail(error)
                raise

        self._runtime.call_soon(step)

    def _propose(self, parts: Parts, version: int, urgent: bool) -> tuple[int, int]:
        entry = self.raft.propose(parts, version, urgent=urgent)
        return entry.index, entry.term

    def _role_changed(self) -> None:
        # pysyncobj calls this in the middle of a tick; decide when the tick is over.
        self._runtime.call_soon(self._settle_role)

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
        try:
            self._keep_up()
        except Exception as error:
            # Damage that upkeep met, or a step half done: a clock that silently stops would be worse than either.
            self.fail(error)
            raise
        self._runtime.call_later(CLOCK_PERIOD_S, self._clock)

    def _keep_up(self) -> None:
        now_s = self._runtime.monotonic()
        self._settle_role()
        self.proposer.tick()
        self._allocator.step(now_s)
        self._saver.save_if_due()
        self._drop_segments(self.store.wanted_trim())
        self._scrubber.step(now_s)
        if self.raft.is_serving:
            held_back = min((peer.match_index for peer in self.raft.peers()), default=self.raft.applied_index)
            self.trimmer.step(now_s, held_back=held_back)

    def fail_soon(self, error: Exception) -> None:
        """As `fail`, when the replies that are on their way have left."""
        self._runtime.call_later(CLOCK_PERIOD_S, self.fail, error)

    def fail(self, error: Exception) -> None:
        """End the process; damage is noted first, so that the next start deals with it."""
        if isinstance(error, LogRot | DerivedDamage):
            self._note(error)
        elif isinstance(error, OSError) and error.errno != errno.ENOSPC:
            self._disk_failed(error)
        log.critical("this node cannot go on; it ends, and replays the log when it is started again", exc_info=error)
        self._runtime.end(EXIT_BROKEN)

    def _disk_failed(self, error: OSError) -> None:
        """A sync failed, on this thread or the disk's: the kernel has marked what it lost clean, so trying again would lie.

        The note keeps every later start from serving what may not be on the disk; the node comes back only when it is rebuilt.
        """
        self._log.fail(error)
        reason = f"a sync failed ({error.strerror}): what was written since the last one may be lost"
        segment = self._log.segment_bases[-1]
        lost = LogRot(self._config.data_dir / "commitlog" / f"{segment:020d}", segment, reason)
        self._note(lost)
        log.critical("the disk failed; this node must be rebuilt", extra={"error": str(error)})
        self._runtime.end(EXIT_FSYNC_FAILED)

    def _note(self, damage: LogRot | DerivedDamage) -> None:
        try:
            self.store.note_damage(damage)
        except OSError:
            log.critical("the disk does not take the note of what was found", extra={"damage": str(damage)})


def _require_no_loss(config: BrokerConfig, boot_id: str, files: Files) -> None:
    """StoreError when messages that were acknowledged from the page cache may have gone with the machine."""
    before = read_text(config.data_dir / ABORT, files)
    if config.flush == "async" and before is not None and not config.accept_loss and boot_id not in before:
        raise StoreError(
            f"{config.data_dir} was not closed before the machine stopped, and with --flush async its last messages may be "
            "lost although they were acknowledged. A node that has lost them must not vote. Start it with --accept-loss "
            "if that loss can be borne, or if it is the only such node and the others are up."
        )
