"""Retention on the leader: looks at ages and at the disk, copies forward what is still needed, then proposes the trim.

Each step looks at the applied state anew and proposes at most one thing: a COPY of up to 1 MiB, at a bounded rate, or, when nothing is
left to copy, the TRIM. So a new leader goes on where the last one stopped. Owner: the core loop.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.machine import StateMachine
from tern_broker.core.picking import Pick
from tern_broker.proposer import Proposal, Proposer
from tern_store import Store
from tern_store.needed import Needed, find_needed
from tern_store.retention import (
    COPY_RATE_BYTES_PER_S,
    NEEDED_SHARE_MAX,
    DiskUse,
    Pressure,
    RetentionRules,
    SegmentAge,
    TrimPlan,
    plan_trim,
    pressure,
)
from tern_wire.codec import encode_msgpack
from tern_wire.commands import SEND_HEAD, CommandKind
from tern_wire.errors import TernError
from tern_wire.limits import GROUP_COMMIT_SIZE_MAX_BYTES
from tern_wire.requests import Parts

log = logging.getLogger(__name__)
# As RocketMQ's cleanResourceInterval.
CHECK_PERIOD_S = 10.0
# Begins the log where it begins.
NO_TRIM: dict[str, Any] = {"index": 0, "position": 0, "term": 0, "crc": 0, "mins": []}


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
        # Where the log cannot begin, because the state that was kept there is damaged.
        self._unreadable: set[int] = set()
        # The one that was read last: the states at segments' starts are large, and each step of a long copy needs the same.
        self._known: tuple[int, tuple[Any, list[tuple[int, list[int]]]]] | None = None
        self.trims = 0

    @property
    def pressure(self) -> Pressure:
        """What the disk asks for."""
        return pressure(self._rules, self._disk)

    def disk_used(self, disk: DiskUse) -> None:
        """Told by who measures it."""
        self._disk = disk

    def trim_now(self) -> None:
        """Somebody asks: what is older than the retention goes at once, whatever the hour."""
        self._asked, self._next_s = True, 0.0

    def step(self, now_s: float, *, held_back: Callable[[], int]) -> None:
        """Called every few ms on the leader. *held_back* tells the lowest entry that some member still lacks; it stays."""
        if self._waiting or now_s < self._next_s:
            return
        self._next_s = now_s + CHECK_PERIOD_S
        plan = self._plan(held_back())
        if plan is None:
            self._asked = False
            return
        found = self._boundary(plan.position)
        if found is None:
            return
        mark, ends = found
        needed = self._needed(plan, ends)
        if (kept := self._mostly_needed(plan, needed)) is not None:
            # A prefix goes or nothing: what lies before the segment that is kept whole.
            plan = TrimPlan(kept, plan.forced, plan.reason)
            found = self._boundary(plan.position)
            if found is None:
                self._asked = False
                return
            mark, ends = found
            needed = self._needed(plan, ends)
        if len(needed.positions):
            # What is needed is asked again when the entry is made: nothing may settle or come due in between.
            chosen = plan
            self._propose(CommandKind.COPY, GROUP_COMMIT_SIZE_MAX_BYTES, lambda: self._copies(chosen, ends))
            self._next_s = now_s + GROUP_COMMIT_SIZE_MAX_BYTES / COPY_RATE_BYTES_PER_S
            return
        log.info("retention", extra={"before_position": plan.position, "forced": plan.forced, "reason": plan.reason})
        mins = [[topic_id, offsets] for topic_id, offsets in ends]
        request = {"index": mark.index, "position": mark.position, "term": mark.term, "crc": mark.crc, "mins": mins}
        packed, chosen = encode_msgpack(request), plan
        self._propose(CommandKind.TRIM, len(packed), lambda: self._trim(chosen, ends, packed))
        self.trims += 1

    # Below -----------------------------------------------------------------------------------------------------
    def _plan(self, held_back: int) -> TrimPlan | None:
        applied, stored = self._store.applied, self._store.log
        if applied is None or held_back < stored.first_index:
            return None
        # Behind a saved state, and known to every member: none of them can be built anew from nothing in this release.
        reach = min(applied.position, stored.mark(min(held_back, stored.end_index)).position)
        segments, begin = [], stored.start.position
        for boundary in self._store.boundaries():
            if boundary.position > reach:
                break
            if boundary.position in self._unreadable:
                continue  # its segment goes together with the next
            segments.append(SegmentAge(begin, boundary.position, boundary.newest_ms))
            begin = boundary.position
        return plan_trim(
            self._rules,
            segments,
            self._disk,
            end=stored.end_position,
            now_ms=self._proposer.now_ms(),
            hour=self._hour(),
            asked=self._asked,
        )

    def _boundary(self, position: int) -> tuple[Any, list[tuple[int, list[int]]]] | None:
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

    def _needed(self, plan: TrimPlan, ends: list[tuple[int, list[int]]]) -> Needed:
        by_queue = {(topic_id, queue): end for topic_id, row in ends for queue, end in enumerate(row)}
        halves = self._state().transactions.table.records_below(plan.position)
        return find_needed(self._store, plan.position, ends=by_queue, held=self._held(), halves=halves)

    def _held(self) -> Iterator[tuple[int, int, npt.NDArray[np.int64]]]:
        """Offsets that leases, retries and dying messages hold."""
        for (_, topic_id), row in self._state().leasing.deliveries.items():
            for queue, delivery in enumerate(row):
                if delivery is not None and len(offsets := delivery.held_offsets()):
                    yield topic_id, queue, offsets

    def _mostly_needed(self, plan: TrimPlan, needed: Needed) -> int | None:
        """Where the first segment begins that must be kept whole; None if all may go."""
        size = self._store.log.segment_size_bytes
        for base in range(self._store.log.start.position, plan.position, size):
            if needed.share(base, base + size) > NEEDED_SHARE_MAX:
                return base
        return None

    def _copies(self, plan: TrimPlan, ends: list[tuple[int, list[int]]]) -> Parts:
        """A COPY of as much as fits into an entry; of nothing if nothing is needed any more."""
        needed = self._needed(plan, ends)
        total = np.cumsum(needed.rows["size"].astype(np.int64))
        # An entry lies within one segment.
        size_max = min(GROUP_COMMIT_SIZE_MAX_BYTES, self._store.log.segment_size_bytes // 4)
        count = min(len(total), max(1, int(np.searchsorted(total, size_max, side="right"))))
        rows, positions = needed.rows[:count], needed.positions[:count]
        records = self._store.log.read_records(positions, rows["size"].astype(np.int64))
        return [SEND_HEAD.pack(count, 0), rows.tobytes(), records]

    def _trim(self, plan: TrimPlan, ends: list[tuple[int, list[int]]], packed: bytes) -> Parts:
        """A TRIM, or one of nothing if something is needed by now: what waited before it may have leased what it would drop."""
        return [packed if not len(self._needed(plan, ends).positions) else encode_msgpack(NO_TRIM)]

    def _propose(self, kind: CommandKind, size_bytes: int, build: Callable[[], Parts]) -> None:
        self._waiting = True

        def done(verdict: Any, _picks: list[Pick]) -> None:
            self._waiting = False
            if isinstance(verdict, TernError):
                log.warning("retention was refused", extra={"command": kind.name, "reason": verdict.code})

        self._proposer.submit(Proposal(kind, size_bytes, done, build=lambda _now: build(), is_upkeep=True))
