"""Retention on the leader: checks ages and the disk, copies forward what is still needed, then
proposes the trim.

Each step reads the applied state anew and proposes at most one command: a COPY of up to 1 MiB, at a
bounded rate, or, when nothing is left to copy, the TRIM. So a new leader continues where the last
one stopped. Owner: the core loop.

A trim for lack of space spares unread messages (`core/unread.py`): they are copied like everything
else that is needed, and their queue keeps its begin. If they are most of the oldest segment,
nothing is dropped, sends are refused, and `holder` names the topic and group.

A trim spares what read leases hold (`leased_segments.py`): it ends before the first segment with a
leased message. Only on a disk that is full by *force_ratio* the oldest segment goes all the same,
and apply breaks the leases.
"""

import logging
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.picking import Pick
from tern_broker.core.feature_level import READ_LEASES_LEVEL
from tern_broker.core.machine import StateMachine
from tern_broker.core.trimming import NO_TRIM
from tern_broker.core.unread import Holder, Spared, holder_of, spare_unread
from tern_broker.proposal import Proposal
from tern_broker.proposer import Proposer
from tern_broker.upkeep.leased_segments import LeasedSegments
from tern_store import Store
from tern_store.needed_records import Needed, find_needed
from tern_store.retention import (
    COPY_RATE_BYTES_PER_S,
    NEEDED_SHARE_MAX,
    NEEDED_SHARE_OF_ROOM_MAX,
    DiskUse,
    Pressure,
    RetentionRules,
    SegmentAge,
    TrimPlan,
    plan_trim,
    pressure,
)
from tern_store.unread import UnreadScan
from tern_store.visibility_times import offset_at
from tern_wire.errors import TernError
from tern_wire.limits import GROUP_COMMIT_SIZE_MAX_BYTES
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.requests import Parts

log = logging.getLogger(__name__)
# Same as RocketMQ's cleanResourceInterval.
CHECK_PERIOD_S = 10.0
# While sends are refused: the longest delay between consumers' progress and the end of the refusal.
REFUSING_PERIOD_S = 1.0
# The unread share of a segment is measured in this many steps at a time, with pauses, so that no
# request is delayed.
MEASURE_STEPS, MEASURE_PAUSE_S = 8, 0.02
# For every topic: its id, and an offset for each queue.
Offsets = list[tuple[int, list[int]]]


class Trimmer:
    """Owner: the core loop."""

    def __init__(
        self,
        rules: RetentionRules,
        store: Store,
        proposer: Proposer,
        *,
        state: Callable[[], StateMachine],
        hour: Callable[[], int],
    ) -> None:
        """*hour*: of the day, local time, 0 to 23."""
        self._rules, self._store, self._proposer, self._state, self._hour = rules, store, proposer, state, hour
        self._disk = DiskUse(0, 1)
        self._next_s = 0.0
        self._asked = False
        self._waiting = False
        # Positions where the log cannot begin, because the state kept there is damaged.
        self._unreadable: set[int] = set()
        # The last one that was read: the states at segments' starts are large, and each step of a
        # long copy needs the same.
        self._known: tuple[int, tuple[Any, Offsets]] | None = None
        self._scan = UnreadScan(store, 0)
        self._measuring: Generator[None, None, bool] | None = None
        self._may_go = False
        # First offsets that are not older than the retention, as of a moment (the group's time):
        # later they can only be higher.
        self._young: dict[tuple[int, int], int] = {}
        self._young_ms = 0
        self._was_refused = False
        self._leased = LeasedSegments()
        # The topic and group whose unread messages keep the log although the disk is full; None:
        # there are none.
        self.holder: Holder | None = None
        self.trims = 0

    @property
    def pressure(self) -> Pressure:
        """The pressure of the disk's usage."""
        return pressure(self._rules, self._disk)

    def disk_used(self, disk: DiskUse) -> None:
        """Set the measured disk usage."""
        before, self._disk = self.pressure, disk
        if self.pressure is Pressure.REFUSE is not before:
            # Clients that are refused from now on get the reason at once.
            self._next_s = 0.0

    def trim_now(self) -> None:
        """Trim everything older than the retention at the next step, at any hour."""
        self._asked, self._next_s = True, 0.0

    def step(self, now_s: float, *, held_back: Callable[[], int]) -> None:
        """Propose the next command of retention, if due. Called every few ms on the leader.

        *held_back* returns the lowest entry that some member still lacks; it stays.
        """
        if self._waiting or now_s < self._next_s:
            return
        self._next_s = now_s + (REFUSING_PERIOD_S if self.pressure is Pressure.REFUSE else CHECK_PERIOD_S)
        if self._was_refused:
            # Tried again after the pause: a refusal for lack of room would be the same in 50 ms.
            self._was_refused = False
            return
        plan = self._plan(held_back())
        if plan is None:
            self._asked, self.holder = False, None
            return
        found = self._boundary(plan.position)
        if found is None:
            return
        mark, ends = found
        mins, spared = self._mins(plan, ends)
        if self._is_leased(plan, mins):
            # Another place is looked at.
            self._next_s = now_s + MEASURE_PAUSE_S
            return
        if plan.makes_room and (is_held := self._is_held(plan, spared)) is not False:
            if is_held is None:
                self._next_s = now_s + MEASURE_PAUSE_S
            else:
                self.holder = holder_of(spared, self._state().names)
            return
        needed = self._needed(plan, mins, spared)
        self.holder = None
        if (kept := self._mostly_needed(plan, needed)) is not None:
            if plan.makes_room:
                self.holder = holder_of(spared, self._state().names)
            # Only a prefix can be dropped: everything before the segment that is kept whole.
            plan = replace(plan, position=kept)
            found = self._boundary(plan.position)
            if found is None:
                self._asked = False
                return
            mark, ends = found
            mins, spared = self._mins(plan, ends)
            needed = self._needed(plan, mins, spared)
        chosen = plan
        if len(needed.positions):
            # The needed records are determined again when the entry is made: earlier entries may
            # settle messages or make them due.
            self._propose(CommandKind.COPY, GROUP_COMMIT_SIZE_MAX_BYTES, lambda: self._copies(chosen, ends))
            self._next_s = now_s + GROUP_COMMIT_SIZE_MAX_BYTES / COPY_RATE_BYTES_PER_S
            return
        facts = {"forced": plan.forced, "reason": plan.reason, "breaks_leases": plan.breaks_leases}
        log.info("retention", extra={"before_position": plan.position, **facts})
        request: dict[str, Any] = {"index": mark.index, "position": mark.position, "term": mark.term, "crc": mark.crc}
        if self._state().feature_level.level >= READ_LEASES_LEVEL and not plan.breaks_leases:
            request["spares_leases"] = True
        size_bytes = len(encode_msgpack({**request, "mins": mins}))
        self._propose(CommandKind.TRIM, size_bytes, lambda: self._trim(chosen, ends, request))
        self.trims += 1

    # Helpers --------------------------------------------------------------------------------------
    def _plan(self, held_back: int) -> TrimPlan | None:
        applied, stored = self._store.applied, self._store.log
        if applied is None or held_back < stored.first_index:
            return None
        # Behind a saved state, and present on every member: in this release no member can be
        # rebuilt from nothing.
        reach = min(applied.position, stored.mark(min(held_back, stored.end_index)).position)
        segments, begin = [], stored.start.position
        for boundary in self._store.boundaries():
            if boundary.position > reach:
                break
            if boundary.position in self._unreadable:
                continue  # its segment is dropped together with the next
            segments.append(SegmentAge(begin, boundary.position, boundary.newest_ms))
            begin = boundary.position
        plan = plan_trim(
            self._rules,
            segments,
            self._disk,
            end=stored.end_position,
            now_ms=self._proposer.now_ms(),
            hour=self._hour(),
            asked=self._asked,
        )
        return self._sparing(plan, [segment.end for segment in segments]) if plan is not None else None

    def _sparing(self, plan: TrimPlan, places: list[int]) -> TrimPlan | None:
        """Return *plan* up to one of *places*, before what read leases hold; None if nothing may
        go.
        """
        leases = self._state().read_leases
        if not leases.leases:
            return plan
        if place := self._leased.place(places, plan.position, leases.released):
            return replace(plan, position=place)
        if self.pressure in {Pressure.FORCE, Pressure.REFUSE}:
            return replace(plan, position=places[0], breaks_leases=True)
        return None

    def _is_leased(self, plan: TrimPlan, mins: Offsets) -> bool:
        """Return whether *plan* must spare leases and would not."""
        leases = self._state().read_leases
        if plan.breaks_leases or not leases.leases:
            return False
        is_held = leases.holds(mins)
        self._leased.looked(plan.position, is_free=not is_held)
        return is_held

    def _boundary(self, position: int) -> tuple[Any, Offsets] | None:
        found = [boundary for boundary in self._store.boundaries() if boundary.position == position]
        if not found:
            return None
        if self._known is not None and self._known[0] == position:
            return self._known[1]
        loaded = self._store.load_boundary(found[0])
        if loaded is None:
            log.error(
                "the state at a segment's start is damaged: the log cannot begin there", extra={"position": position}
            )
            self._unreadable.add(position)
            self._next_s = 0.0
            return None
        mark, section = loaded
        known = mark, [(int(topic_id), [int(end) for end in ends]) for topic_id, ends in section["ends"]]
        self._known = position, known
        return known

    def _is_held(self, plan: TrimPlan, spared: list[Spared]) -> bool | None:
        """Return whether *spared* is so much that the segments of *plan* stay; None: unknown after
        some milliseconds of measuring.
        """
        if self._scan.position != plan.position:
            self._scan, self._measuring, self._may_go = UnreadScan(self._store, plan.position), None, False
        if self._may_go:
            # It only shrinks, except for groups that seek back: their messages are found when the
            # entry is made, and it is soon measured again.
            return False
        if self._measuring is None:
            size_bytes = plan.position - self._store.log.start.position
            ranges = [each[:4] for each in spared]
            self._measuring = self._scan.measure(ranges, int(NEEDED_SHARE_OF_ROOM_MAX * size_bytes))
        for _ in range(MEASURE_STEPS):
            try:
                next(self._measuring)
            except StopIteration as end:
                self._measuring, self._may_go = None, not end.value
                return bool(end.value)
        return None

    def _mins(self, plan: TrimPlan, ends: Offsets) -> tuple[Offsets, list[Spared]]:
        """Return where queues begin after *plan*, whose log ends at *ends*, and the spared
        messages.
        """
        if not plan.makes_room:
            return ends, []
        state, store = self._state(), self._store
        now_ms = self._proposer.now_ms()
        if now_ms - self._young_ms >= CHECK_PERIOD_S * 1_000:
            self._young, self._young_ms, self._may_go = {}, now_ms, False
        kept_ms = self._young_ms - self._rules.retention_ms

        def young(topic_id: int, queue: int, least: int) -> int:
            if (topic_id, queue) not in self._young:
                end = state.names.topics_by_id[topic_id].ends[queue]
                self._young[topic_id, queue] = offset_at(store, topic_id, queue, kept_ms, least=least, end=end)
            return self._young[topic_id, queue]

        return spare_unread(ends, state.names, state.leasing.deliveries, young)

    def _needed(self, plan: TrimPlan, mins: Offsets, spared: list[Spared]) -> Needed:
        by_queue = {(topic_id, queue): least for topic_id, row in mins for queue, least in enumerate(row)}
        state = self._state()
        halves = state.transactions.table.records_below(plan.position)
        staged = state.publications.records_below(plan.position)
        unseen = np.concatenate([halves[0], staged[0]]), np.concatenate([halves[1], staged[1]])
        # As much as a COPY takes. (At another place than measured, an earlier segment is kept for
        # other reasons.)
        scan = self._scan if self._scan.position == plan.position else UnreadScan(self._store, plan.position)
        unread = scan.find([each[:4] for each in spared], GROUP_COMMIT_SIZE_MAX_BYTES)
        return find_needed(self._store, plan.position, ends=by_queue, held=self._held(), halves=unseen, unread=unread)

    def _held(self) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
        """Yield the offsets that leases, retries and dying messages hold."""
        for (_, topic_id), row in self._state().leasing.deliveries.items():
            for queue, delivery in enumerate(row):
                if delivery is not None and len(offsets := delivery.held_offsets()):
                    yield topic_id, queue, offsets

    def _mostly_needed(self, plan: TrimPlan, needed: Needed) -> int | None:
        """Return the begin of the first segment that must be kept whole; None if all may be
        dropped.
        """
        size = self._store.log.segment_size_bytes
        for base in range(self._store.log.start.position, plan.position, size):
            if needed.share(base, base + size) > _share_max(plan):
                return base
        return None

    def _copies(self, plan: TrimPlan, ends: Offsets) -> Parts:
        """Return a COPY of as much as fits into an entry; an empty one if nothing is needed any
        more.
        """
        needed = self._needed(plan, *self._mins(plan, ends))
        total = np.cumsum(needed.rows["size"].astype(np.int64))
        # An entry lies within one segment.
        size_max = min(GROUP_COMMIT_SIZE_MAX_BYTES, self._store.log.segment_size_bytes // 4)
        count = min(len(total), max(1, int(np.searchsorted(total, size_max, side="right"))))
        rows, positions = needed.rows[:count], needed.positions[:count]
        records = self._store.log.read_records(positions, rows["size"].astype(np.int64))
        return [SEND_HEAD.pack(count, 0), rows.tobytes(), records]

    def _trim(self, plan: TrimPlan, ends: Offsets, request: dict[str, Any]) -> Parts:
        """Return a TRIM, or one that drops nothing if something is needed by now.

        An entry before it may have leased messages that it would drop, or a group may have sought
        back.
        """
        mins, spared = self._mins(plan, ends)
        if len(self._needed(plan, mins, spared).positions):
            return [encode_msgpack(NO_TRIM)]
        return [encode_msgpack({**request, "mins": mins})]

    def _propose(self, kind: CommandKind, size_bytes: int, build: Callable[[], Parts]) -> None:
        self._waiting = True

        def done(verdict: Any, _picks: list[Pick]) -> None:
            self._waiting = False
            if isinstance(verdict, TernError):
                self._was_refused = True
                log.warning("retention was refused", extra={"command": kind.name, "reason": verdict.code})

        self._proposer.submit(Proposal(kind, size_bytes, done, build=lambda _now: build(), is_upkeep=True))


def _share_max(plan: TrimPlan) -> float:
    return NEEDED_SHARE_OF_ROOM_MAX if plan.makes_room else NEEDED_SHARE_MAX
