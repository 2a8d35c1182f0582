"""The core: log, queues, state machine and consensus of one broker node, on one loop.

Owner of every file below the data directory. Sync and save jobs run on the disk threads.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.core.applied import Applied
from tern_broker.core.machine import StateMachine
from tern_broker.fatal_stop import Ending, GuardedDisk, guarded
from tern_broker.group_time import GroupTime
from tern_broker.poison import Poison, was_applied
from tern_broker.proposer import Proposer
from tern_broker.reading.message_groups import MessageGroups
from tern_broker.reading.reader import Reader
from tern_broker.reading.statistics import Statistics
from tern_broker.reading.turns import Turns
from tern_broker.start_checks import require_new_enough
from tern_broker.upkeep.allocator import Allocator
from tern_broker.upkeep.comparer import Comparer
from tern_broker.upkeep.dropped_unread import DroppedUnread
from tern_broker.upkeep.feature_level_upgrade import FeatureLevelUpgrade
from tern_broker.upkeep.key_tables import KeyTables
from tern_broker.upkeep.published_keys import PublishedKeys
from tern_broker.upkeep.saved_state import SavedStates
from tern_broker.upkeep.saver import Saver
from tern_broker.upkeep.scrubber import Scrubber
from tern_broker.upkeep.segment_removal import SegmentRemoval
from tern_broker.upkeep.timer_delivery import TimerDelivery, apply_timers
from tern_broker.upkeep.topic_files import drop_topics
from tern_broker.upkeep.trimmer import Trimmer
from tern_raft import Links, RaftNode, Runtime
from tern_store import (
    HEADER_SIZE_BYTES,
    EntryKind,
    Files,
    LogMark,
    LogRot,
    Store,
    StoredEntry,
)
from tern_store.file_errors import NotedFiles
from tern_store.files import REAL_FILES, is_done
from tern_store.half_message_keys import index_committed
from tern_store.retention import DiskUse
from tern_store.small_files import remove_abort, write_abort
from tern_store.state.vote_file import Standing
from tern_wire.link.requests import Parts

log = logging.getLogger(__name__)
# A verified entry is trusted this long: after that, its bytes may have been read from the disk
# again.
DISTRUST_PERIOD_S = 60.0
DISK_FULL_PERMILLE = 900
LEAVE_PERIOD_S = 10.0


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
        """Recover from the data directory, whose lock the caller holds. StoreError."""
        self._config, self._runtime, self._on_change = config, runtime, on_change
        files = noted = NotedFiles(files, runtime.monotonic)
        # The resource that the operating system refuses this node, in a sentence; "" if none.
        self.lack = noted.lack
        raft_config = self._raft_config = config.raft()
        votes = RaftNode.open_votes(raft_config, incarnation=runtime.new_id(), files=files)
        if votes.replaced:
            log.warning("this node has lost its votes: the group must readmit it", extra={"reason": votes.replaced})
        if votes.needs_copy:
            raise LogRot(config.data_dir / "commitlog", 0, "data written to it may be lost; it must be copied anew")
        states = SavedStates()
        self.store = Store.open(
            config.data_dir,
            group=raft_config.genesis(),
            accepts=states.accepts,
            knows=states.knows,
            may_begin=votes.standing == Standing.UNBORN or (votes.standing == Standing.MEMBER and votes.term == 0),
            on_tear=votes.doubt,
            limits=config.store_limits(),
            files=files,
        )
        self._log = self.store.log
        self.poison = Poison(config.data_dir, config.release_name(), files)
        self.reader = Reader(self.store)
        self.turns = Turns(runtime.call_soon, runtime.monotonic)
        self.dropped_unread = DroppedUnread()
        self.statistics = Statistics(runtime.monotonic)
        mark = self.store.applied
        fresh = StateMachine(config.store_limits().table_keys_max)
        self.state = states.state(self.store.payload) if self.store.payload is not None else fresh
        require_new_enough(self.state.feature_level.level, raft_config.version)
        if self.store.rebuilding:
            log.warning("making queues, index and timers again from the log", extra={"reason": self.store.rebuilding})
        # On a full disk an older note, or none, suffices: it only informs the verification of a
        # stopped node.
        is_done(lambda: write_abort(config.data_dir, runtime.pid, files))
        self._stopping = False
        self._was_leader: tuple[bool, bool] = (False, False)
        self.time = GroupTime(members=len(raft_config.members), raft=lambda: self.raft, monotonic=runtime.monotonic)
        self._end_at_start = self._log.end_index
        self._leave_at_s = 0.0
        self._distrust_at_s = 0.0
        self.on_applied: list[Callable[[Applied], None]] = [self.statistics.applied]
        self._ending = Ending(config.data_dir, self.store, votes, runtime, raft=lambda: self.raft)
        self.fail, self.fail_soon = self._ending.fail, self._ending.fail_soon
        # One thread for the log alone, whose syncs acks wait for, and one for saves, space and
        # trims.
        self._log_disk = GuardedDisk(runtime.open_disk(self._ending.disk_failed), self.fail)
        self._disk = GuardedDisk(runtime.open_disk(self._ending.disk_failed), self.fail)
        self._key_tables = KeyTables(self.store, self._disk, fail=self.fail)
        self.raft = RaftNode(
            raft_config,
            runtime=runtime,
            links=links,
            log_=self._log,
            votes=votes,
            disk=self._log_disk,
            applied=mark.index if mark is not None else 1,
            apply=self._apply,
            pass_over=self._pass_over,
            on_role=self._role_changed,
            on_behind=self._left_behind,
            on_clock=self._clock,
            on_tick=self._ticked,
            on_fatal=self.fail,
        )
        self.poison.block(self.raft)
        # Called every few ms.
        self.on_clock: list[Callable[[], None]] = [self.statistics.sample]
        # Called like on_clock, with the monotonic time (s), only while this node leads and serves.
        self.on_lead: list[Callable[[float], None]] = []
        # Called when this node begins or ends to lead, or to serve.
        self.on_role: list[Callable[[], None]] = []
        self._saver = Saver(
            self.store,
            self._log_disk,
            self._disk,
            state=lambda: self.state,
            applied=lambda: self.raft.applied_index,
            is_short=noted.take_short,
            monotonic=runtime.monotonic,
        )
        self._allocator = Allocator(self._log, self._disk)
        self._dropper = SegmentRemoval(self.store, self._disk, call_later=runtime.call_later)
        self.scrubber = Scrubber(self.store, on_damage=self.fail)
        self.proposer = Proposer(
            broker_group=config.broker_group,
            state=lambda: self.state,
            read_queue=self.store.read_queue,
            read_message_groups=MessageGroups(self._log.read_records).read,
            propose=self._propose,
            is_serving=lambda: self.raft.is_serving and not self.raft.is_yielding,
            leader=lambda: self.raft.leader,
            node=config.node,
            mono_ms=lambda: int(runtime.monotonic() * 1000),
            clocks=self.time.clocks,
            call_soon=self._call_soon,
            expected_ms=self.time.expected_ms,
            may_propose=lambda: self.raft.may_propose,
        )
        self.level_upgrade = FeatureLevelUpgrade(
            self.raft,
            level=lambda: self.state.feature_level.level,
            now_ms=lambda: self.state.now_ms,
            propose=self._propose,
        )
        self.time.tell_by(self.proposer)
        self._firer = TimerDelivery(
            self.store,
            self.proposer,
            is_serving=lambda: self.raft.is_serving,
            followed_ms=lambda: self.time.expected_ms() or self.state.now_ms,
            call_later=runtime.call_later,
            fail=self.fail,
        )
        self.on_lead += [self._firer.step, PublishedKeys(self.proposer, lambda: self.state).step]
        self.on_clock.append(self._firer.look_ahead)
        self.on_applied.append(self._firer.applied)
        self.trimmer = Trimmer(
            config.retention(),
            self.store,
            self.proposer,
            state=lambda: self.state,
            hour=lambda: time.localtime(runtime.wall_ms() / 1000).tm_hour,
        )
        self.comparer = Comparer(
            config,
            raft=self.raft,
            state=lambda: self.state,
            propose=self._propose,
            leave=lambda reason: self.fail(self._ending.rot(self._log.end_position, reason)),
            on_held=self._role_changed,
            monotonic=runtime.monotonic,
        )

    def begin(self) -> None:
        """Join the group, now that the links listen."""
        self.raft.begin()

    def finish(self, done: Callable[[], None]) -> None:
        """Leave the group, save the state, close the files; then call *done*."""
        self._stopping = True
        self._dropper.stop()
        self.turns.stop()
        self.raft.finish()
        self.proposer.role_changed()

        def saved(is_saved: bool) -> None:
            self._log_disk.stop()
            self._disk.stop()
            self.store.close()
            if is_saved:
                remove_abort(self._config.data_dir, self.store.files)
            done()

        self._saver.finish(saved, self._runtime.call_later)

    # Requests of operators ------------------------------------------------------------------------
    def trim_now(self) -> dict[str, Any]:
        """Run retention at the next step; only the leader can."""
        if self.raft.is_serving:
            self.trimmer.trim_now()
        return {"asked": self.raft.is_serving, "leader": self.raft.leader or ""}

    def transfer(self, to: str) -> dict[str, Any]:
        """Hand leadership over to *to* ("": the follower with the longest log)."""
        reason = self.raft.transfer(to or None)
        return {"asked": not reason, "to": to, "leader": self.raft.leader or "", "reason": reason}

    def disk_used(self, disk: DiskUse) -> None:
        """Set the measured disk usage. Trim and refusal follow the fullest disk of all members."""
        own = 1000 if self._log.is_on_reserve else min(1000, int(disk.ratio * 1000))
        self.raft.transport.own_disk_permille = own
        fullest = max((peer.disk_permille for peer in self.raft.peers()), default=0) if self.raft.is_serving else 0
        self.trimmer.disk_used(DiskUse(fullest, 1000) if fullest > own else disk)

    # Apply ----------------------------------------------------------------------------------------
    def _apply(self, entry: StoredEntry) -> None:
        self._ending.require_known(entry.version, self._raft_config.version)
        try:
            self._apply_whole(entry)
        except Exception as error:
            self.poison.met(entry, error)
            raise
        self.poison.applied(entry.index)

    def _pass_over(self, entry: StoredEntry) -> None:
        """Handle an *entry* that no node applies, as all voters have agreed."""
        self._saver.before_apply(entry)
        self._tell_applied(entry, self.state.pass_over(entry.index, entry.crc))
        self.poison.applied(entry.index)

    def _apply_whole(self, entry: StoredEntry) -> None:
        self._saver.before_apply(entry)
        if entry.kind != EntryKind.COMMANDS:
            applied = Applied()
            passed_over = self.state.passed_over.entries
            if entry.kind == EntryKind.PASS_OVER and (reason := was_applied(entry, passed_over, self._log)):
                self.fail(self._ending.rot(self._log.end_position, reason))
        else:
            at = entry.position + HEADER_SIZE_BYTES
            applied = self.state.apply(entry.body, at, entry.index, version=entry.version)
            self._ending.require_known(self.state.feature_level.level, self._raft_config.version)
            # Durable here: a verdict exists only for an entry that a majority has synced.
            self.proposer.decided(entry.index, entry.term, applied)
            names = self._topic_names(applied) if applied.appends else {}
            for appends in applied.appends:
                self.store.dispatch(entry, appends, names, self.state.now_ms)
            apply_timers(self.store, entry, applied, self.state.names)
            for records in applied.committed:
                index_committed(self.store, records, self._topic_names(applied), self.state.now_ms)
            self._key_tables.applied(entry.index, applied)
            if applied.moves or applied.trim is not None:
                self._apply_retention(entry, applied)
            drop_topics(self.store, applied.dropped_topics)
            self.comparer.applied(applied)
        self._tell_applied(entry, applied)

    def _tell_applied(self, entry: StoredEntry, applied: Applied) -> None:
        self.proposer.applied(entry.index, entry.term, applied)
        for listener in self.on_applied:
            listener(applied)
        if self._was_leader == (True, False):
            # The first entry of this node's term may just have been applied: notify without waiting
            # for the clock.
            self._runtime.call_soon(self._settle_role)
        if applied.metadata_changed:
            self._on_change()

    def _topic_names(self, applied: Applied) -> dict[int, bytes]:
        topics = self.state.names.topics_by_id
        wanted = {topic_id for appends in applied.appends for topic_id in appends.topic_ids()}
        wanted.update(*(records["topic"].tolist() for records in applied.committed))
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
            if entry.index > self._end_at_start:
                self.dropped_unread.add(str(facts["topic"]), str(facts["group"]), messages)
        self.store.want_trim(LogMark(trim.index, trim.position, trim.crc, trim.term), trim.floors)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        """Run the proposer's next step in its own turn; an error ends the whole node."""
        self._runtime.call_soon(guarded, callback, self.fail)

    def _propose(self, parts: Parts, urgent: bool) -> tuple[int, int]:
        entry = self.raft.propose(parts, self.state.feature_level.level, urgent=urgent)
        return entry.index, entry.term

    def _role_changed(self) -> None:
        # pysyncobj calls this in the middle of a tick; decide when the tick is over.
        self._runtime.call_soon(self._settle_role)

    def _settle_role(self) -> None:
        role = (self.raft.is_leader, self.raft.is_serving)
        if role != self._was_leader:
            self._was_leader = role
            # Data that a follower read long ago was never served; a leader serves it.
            self._log.distrust()
            log.info("role changed", extra={"leader": role[0], "serving": role[1], "term": self.raft.term})
            self.proposer.role_changed()
            for listener in self.on_role:
                listener()
            self._on_change()

    def _ticked(self) -> None:
        self.proposer.resume()

    # Upkeep ---------------------------------------------------------------------------------------
    def _clock(self) -> None:
        if self._stopping:
            return
        # Upkeep may meet damage, or stop half way: a clock that silently stops would be worse.
        guarded(self._keep_up, self.fail)

    def _keep_up(self) -> None:
        now_s = self._runtime.monotonic()
        self._settle_role()
        self.proposer.tick()
        self._allocator.step(now_s)
        if now_s >= self._distrust_at_s:
            self._distrust_at_s = now_s + DISTRUST_PERIOD_S
            self._log.distrust()
        self.store.queues.hand_out_some()
        self._saver.save_if_due()
        self._dropper.step()
        self.scrubber.step(now_s)
        self.comparer.step()
        self.level_upgrade.step()
        if self.raft.is_serving:
            self.trimmer.step(now_s, held_back=self._held_back)
            self._leave_full_disk(now_s)
            for leading in self.on_lead:
                leading(now_s)
        for listener in self.on_clock:
            listener()

    def _held_back(self) -> int:
        """Return the entry up to which all connected members have the log."""
        there = [peer.match_index for peer in self.raft.peers() if peer.connected and peer.standing != "rebuilding"]
        return min(there, default=self.raft.applied_index)

    def _leave_full_disk(self, now_s: float) -> None:
        """Hand over, if this leader's disk is full, to a member whose disk is not."""
        if self.raft.transport.own_disk_permille < DISK_FULL_PERMILLE or now_s < self._leave_at_s:
            return
        better = [peer for peer in self.raft.peers() if peer.connected and 0 < peer.disk_permille < DISK_FULL_PERMILLE]
        if better:
            self._leave_at_s = now_s + LEAVE_PERIOD_S
            self.raft.transfer(max(better, key=lambda peer: peer.match_index).name)

    def _left_behind(self) -> None:
        self.fail(self._ending.rot(self._log.end_position, "the leader's log begins behind the end of this one"))
