"""Delivery of one queue to one group: what was never leased, what is leased, what came back.

A lease covers a contiguous run of offsets with a bitmap of what is settled, so a batch of 32 costs one lease. Invariants:
every offset below `cursor` is settled, or unsettled in exactly one lease, or unsettled in exactly one run.

     offsets   0 ........ committed ............ cursor ........ end
               | settled  | leases, runs, settled | never leased  |
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lease:
    """A run of offsets held by one receiver until *deadline_ms*; bit i of *settled* is offset start + i.

    *extended* holds later (or earlier) deadlines of single offsets.
    """

    lease_id: int
    start: int
    count: int
    settled: int
    deadline_ms: int
    attempt: int
    extended: dict[int, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to settle."""
        return self.settled == (1 << self.count) - 1


@dataclass(slots=True)
class Run:
    """Offsets that came back: unsettled ones (bit 0 in *settled*) may be leased again. *attempts* were made so far.

    The first one is unsettled: nothing below the group's committed offset is needed any more.
    """

    run_id: int
    start: int
    count: int
    settled: int
    attempts: int

    @property
    def waiting(self) -> int:
        """How many messages wait in it."""
        return self.count - self.settled.bit_count()


def first_clear_bit(bits: int) -> int:
    """The number of the lowest 0 bit."""
    return (~bits & (bits + 1)).bit_length() - 1


class Delivery:
    """One group in one queue. Owner: the state machine; the picker only reads."""

    __slots__ = ("cursor", "leased", "leases", "runs", "version")

    def __init__(self, cursor: int, version: int = 0) -> None:
        self.cursor = cursor
        # Moves with every seek, so that a lease proposed before it is refused.
        self.version = version
        self.leases: dict[int, Lease] = {}
        self.runs: dict[int, Run] = {}
        # Unsettled messages in leases.
        self.leased = 0

    def lease_fresh(self, lease_id: int, start: int, count: int, end: int, deadline_ms: int) -> Lease | None:
        """Lease *count* never leased offsets from *start*; None unless they begin at the cursor and exist."""
        if start != self.cursor or count <= 0 or start + count > end:
            return None
        self.cursor += count
        return self._hold(Lease(lease_id, start, count, 0, deadline_ms, attempt=1))

    def lease_run(self, lease_id: int, run_id: int, start: int, count: int, deadline_ms: int) -> Lease | None:
        """Lease the first *count* offsets of a run; None when the run has changed since it was looked at."""
        run = self.runs.get(run_id)
        if run is None or run.start != start or not 0 < count <= run.count:
            return None
        mask = (1 << count) - 1
        lease = Lease(lease_id, start, count, run.settled & mask, deadline_ms, run.attempts + 1)
        if count == run.count:
            del self.runs[run_id]
        else:
            # What is settled at the begin of the rest goes too: retention may drop it, and a run is read from its begin.
            count += first_clear_bit(run.settled >> count)
            run.start += count
            run.count -= count
            run.settled >>= count
        if not self.runs.get(run_id, _NOTHING).waiting:
            self.runs.pop(run_id, None)
        return None if lease.is_done else self._hold(lease)

    def settle(self, lease: Lease, mask: int) -> None:
        """Mark the offsets of *mask* settled for good."""
        self.leased -= (mask & ~lease.settled).bit_count()
        lease.settled |= mask
        self._drop_if_done(lease)

    def give_back(self, lease: Lease, mask: int, run_id: int, attempts: int) -> None:
        """Make the unsettled offsets of *mask* visible again as run *run_id*."""
        mask &= ~lease.settled
        if not mask:
            return
        first = (mask & -mask).bit_length() - 1
        count = mask.bit_length() - first
        free = mask >> first
        self.runs[run_id] = Run(run_id, lease.start + first, count, ~free & ((1 << count) - 1), attempts)
        self.leased -= mask.bit_count()
        lease.settled |= mask
        self._drop_if_done(lease)

    def expired_mask(self, lease: Lease, now_ms: int) -> int:
        """Offsets of *lease* whose deadline is over, as bits."""
        mask = ~lease.settled & ((1 << lease.count) - 1) if lease.deadline_ms <= now_ms else 0
        for offset, deadline_ms in lease.extended.items():
            bit = 1 << offset - lease.start
            mask = mask & ~bit if deadline_ms > now_ms else mask | bit
        return mask & ~lease.settled

    def seek(self, offset: int) -> list[Lease]:
        """Begin again at *offset*: leases and runs are forgotten, their handles expire. Returns the forgotten leases."""
        forgotten = list(self.leases.values())
        self.leases.clear()
        self.runs.clear()
        self.leased = 0
        self.cursor = offset
        self.version += 1
        return forgotten

    def is_settled(self, offset: int) -> bool:
        """Whether the group will not see *offset* again."""
        if offset >= self.cursor:
            return False
        holders: Iterator[Lease | Run] = iter((*self.leases.values(), *self.runs.values()))
        return not any(
            item.start <= offset < item.start + item.count and not item.settled >> offset - item.start & 1
            for item in holders
        )

    def committed(self) -> int:
        """Everything below this offset is settled."""
        holders: Iterator[Lease | Run] = iter((*self.leases.values(), *self.runs.values()))
        return min((item.start + first_clear_bit(item.settled) for item in holders), default=self.cursor)

    def available(self, end: int) -> int:
        """How many messages could be leased now."""
        return end - self.cursor + sum(run.waiting for run in self.runs.values())

    def _hold(self, lease: Lease) -> Lease:
        self.leases[lease.lease_id] = lease
        self.leased += lease.count - lease.settled.bit_count()
        return lease

    def _drop_if_done(self, lease: Lease) -> None:
        if lease.is_done:
            self.leases.pop(lease.lease_id, None)


_NOTHING = Run(0, 0, 0, 0, 0)
