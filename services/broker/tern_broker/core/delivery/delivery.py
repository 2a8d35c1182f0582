"""Delivery of one queue to one group: messages never leased, leased, returned, resting and dying.

A lease covers a contiguous range of offsets with a bitmap of the settled ones, so a batch of 32
costs one lease. A run holds returned messages in the same way: visible at once, or resting until a
time. A message that has failed for the last time is dying: no consumer gets it, and it counts as
settled only when the leader has buried it (dead_letters.py). `fifo.py` builds on this. Invariant:
every offset below `cursor` is settled, or unsettled in exactly one lease or one run, or dying.

     offsets   0 ........ committed ............................. cursor ........ end
               | settled  | leases, runs, rests, dying, settled   | never leased  |
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.lease import Death, Lease, Run, first_clear_bit, held_by

# Revived messages at most this far apart share a run: a receive visits the offsets between them
# too.
REVIVED_GAP_MAX = 32


# Called with the number of a lease or rest that has ended, and the lease's token.
Ended = Callable[[int, bytes], None]


def _tell_nobody(_item_id: int, _token: bytes) -> None:
    """Ignore the event: the delivery has no Leasing, as in a test or during a load."""


class Delivery:
    """One group in one queue. Owner: the state machine; the picker only reads."""

    KIND: ClassVar[str] = "shared"
    __slots__ = ("cursor", "dying", "ended", "leased", "leases", "resting", "rests", "runs", "version", "waiting")

    def __init__(self, cursor: int, version: int = 0) -> None:
        self.cursor = cursor
        # Increases with every seek, so that a lease proposed before the seek is refused.
        self.version = version
        self.leases: dict[int, Lease] = {}
        self.runs: dict[int, Run] = {}
        self.rests: dict[int, Run] = {}
        self.dying: dict[int, Death] = {}
        # Unsettled messages in leases, in rests, and in runs.
        self.leased = self.resting = self.waiting = 0
        # Called whenever an item with a deadline ends, so that data kept about it elsewhere is
        # dropped.
        self.ended: Ended = _tell_nobody

    # Leasing --------------------------------------------------------------------------------------
    def lease_fresh(self, lease_id: int, start: int, count: int, end: int, deadline_ms: int) -> Lease | None:
        """Lease *count* never leased offsets from *start*; None unless they begin at the cursor and
        exist.
        """
        if start != self.cursor or count <= 0 or start + count > end:
            return None
        self.cursor += count
        return self._hold(Lease(lease_id, start, count, 0, deadline_ms, attempt=1))

    def lease_run(self, lease_id: int, run_id: int, start: int, count: int, deadline_ms: int) -> Lease | None:
        """Lease the first *count* offsets of a run; None if the run has changed since the leader
        read it.
        """
        run = self.runs.get(run_id)
        if run is None or run.start != start or not 0 < count <= run.count:
            return None
        mask = (1 << count) - 1
        lease = Lease(lease_id, start, count, run.settled & mask, deadline_ms, run.attempts + 1)
        self.waiting -= lease.unsettled
        if count == run.count:
            del self.runs[run_id]
        else:
            # Settled offsets at the begin of the rest are dropped too: retention may drop their
            # records, and a run is read from its begin.
            count += first_clear_bit(run.settled >> count)
            run.start += count
            run.count -= count
            run.settled >>= count
            if run.count <= 0:
                del self.runs[run_id]
        return None if lease.is_done else self._hold(lease)

    def available(self, end: int) -> int:
        """Return how many messages could be leased now."""
        return end - self.cursor + self.waiting

    @property
    def unsettled(self) -> int:
        """Number of unsettled messages below the cursor: a measure of their size in the state."""
        return self.leased + self.resting + self.waiting + len(self.dying)

    # Settling -------------------------------------------------------------------------------------
    def settle(self, lease: Lease, mask: int) -> None:
        """Mark the offsets of *mask* settled for good."""
        self.leased -= (mask & ~lease.settled).bit_count()
        lease.settled |= mask
        self._drop_if_done(lease)

    def give_back(self, lease: Lease, mask: int, run_id: int, attempts: int, nacked_by: int = 0) -> None:
        """Make the unsettled offsets of *mask* visible again as run *run_id*."""
        if (run := self._leave(lease, mask, run_id, attempts, 0)) is not None:
            run.nacked_by = nacked_by
            self.runs[run_id] = run
            self.waiting += run.waiting

    def rest(self, lease: Lease, mask: int, run_id: int, attempts: int, visible_ms: int) -> None:
        """Give the unsettled offsets of *mask* back as run *run_id*, visible from *visible_ms* on:
        then the owner calls `wake`.
        """
        if (run := self._leave(lease, mask, run_id, attempts, visible_ms)) is not None:
            run.nacked_by = lease.lease_id
            self.rests[run_id] = run
            self.resting += run.waiting

    def resting_until(self) -> list[tuple[int, int]]:
        """Return (run id, visible ms) of every rest."""
        return [(run.run_id, run.visible_ms) for run in self.rests.values()]

    def wake(self, run_id: int) -> None:
        """End the rest *run_id*: its messages are visible."""
        run = self.runs[run_id] = self.rests.pop(run_id)
        self.resting -= run.waiting
        self.waiting += run.waiting
        self.ended(run_id, b"")

    def condemn(self, lease: Lease, mask: int, death: Death) -> list[int]:
        """Mark the unsettled offsets of *mask* as dying: they have failed for the last time. Return
        those offsets.
        """
        run = self._leave(lease, mask, 0, 0, 0)
        offsets = run.offsets().tolist() if run is not None else []
        self.dying.update(dict.fromkeys(offsets, death))
        return offsets

    def bury(self, offset: int) -> bool:
        """Mark *offset* settled; return False if it was not dying."""
        return self.dying.pop(offset, None) is not None

    def revive(
        self, offsets: npt.NDArray[np.int64], next_id: Callable[[], int], _message_groups: Mapping[int, int]
    ) -> int:
        """Make the settled ones of *offsets* (ascending) visible again, as if never received;
        return how many.

        Each new run gets a number from *next_id*. An offset behind the cursor or unsettled will be
        delivered anyway, and is skipped.
        """
        offsets = offsets[offsets < self.cursor]
        offsets = offsets[~np.isin(offsets, self.held_offsets())]
        for part in np.split(offsets, np.flatnonzero(np.diff(offsets) > REVIVED_GAP_MAX) + 1) if len(offsets) else ():
            start, count = int(part[0]), int(part[-1] - part[0]) + 1
            free = sum(1 << offset - start for offset in part.tolist())
            run = Run(next_id(), start, count, ~free & ((1 << count) - 1), attempts=0)
            self.runs[run.run_id] = run
        self.waiting += len(offsets)
        return len(offsets)

    def expired_mask(self, lease: Lease, now_ms: int) -> int:
        """Return the offsets of *lease* whose deadline has passed, as bits."""
        mask = ~lease.settled & ((1 << lease.count) - 1) if lease.deadline_ms <= now_ms else 0
        for offset, deadline_ms in lease.extended.items():
            bit = 1 << offset - lease.start
            mask = mask & ~bit if deadline_ms > now_ms else mask | bit
        return mask & ~lease.settled

    def due_ms(self, item_id: int) -> int | None:
        """Return when the first message of the lease or rest *item_id* becomes visible; None if
        there is no such item.
        """
        if (lease := self.leases.get(item_id)) is not None:
            return lease.first_deadline_ms
        rest = self.rests.get(item_id)
        return rest.visible_ms if rest is not None else None

    def seek(self, offset: int) -> list[Lease]:
        """Begin again at *offset*: drop everything held; handles expire. Return the dropped
        leases.
        """
        forgotten = list(self.leases.values())
        self.forget_held()
        self.cursor = offset
        self.version += 1
        return forgotten

    def forget_held(self) -> None:
        """Drop everything held, for a seek or for a delivery that is dropped."""
        for lease in self.leases.values():
            self.ended(lease.lease_id, lease.token)
        for run_id in self.rests:
            self.ended(run_id, b"")
        for held in (self.leases, self.runs, self.rests, self.dying):
            held.clear()
        self.leased = self.resting = self.waiting = 0

    # Queries --------------------------------------------------------------------------------------
    def is_settled(self, offset: int) -> bool:
        """Return whether the group will not receive *offset* again."""
        if offset >= self.cursor or offset in self.dying:
            return False
        return not any(
            item.start <= offset < item.start + item.count and not item.settled >> offset - item.start & 1
            for item in self._holders()
        )

    def was_nacked_by(self, lease_id: int, offset: int) -> bool:
        """Return whether a nack of the lease brought *offset* to where it is now.

        It is returned, resting, dying or buried, and was not leased since.
        """
        if offset in self.dying or self.is_settled(offset):
            return True
        runs = (*self.runs.values(), *self.rests.values())
        return any(
            run.nacked_by == lease_id
            and run.start <= offset < run.start + run.count
            and not run.settled >> offset - run.start & 1
            for run in runs
        )

    def unread_from(self) -> int:
        """Return the lowest offset that waits to be received for the first time."""
        return self.cursor

    def committed(self) -> int:
        """Return the offset below which everything is settled."""
        lowest = min((item.start + first_clear_bit(item.settled) for item in self._holders()), default=self.cursor)
        return min(lowest, min(self.dying, default=lowest))

    def held_offsets(self) -> npt.NDArray[np.int64]:
        """Return every unsettled offset below the cursor, ascending: retention must keep these."""
        dying = np.fromiter(self.dying, np.int64, len(self.dying))
        return np.sort(np.concatenate([held_by(self._holders()), dying]))

    # Saving ---------------------------------------------------------------------------------------
    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types."""
        return [
            *(self.cursor, self.version),
            [lease.pack() for lease in self.leases.values()],
            [run.pack() for run in self.runs.values()],
            [run.pack() for run in self.rests.values()],
            [[offset, *death.pack()] for offset, death in self.dying.items()],
        ]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Delivery":
        """Restore an instance from *packed*."""
        cursor, version, leases, runs, rests, dying = packed
        delivery = cls(cursor, version)
        for lease in map(Lease.unpack, leases):
            delivery._hold(lease)
        delivery.runs = {run.run_id: run for run in map(Run.unpack, runs)}
        delivery.rests = {run.run_id: run for run in map(Run.unpack, rests)}
        delivery.waiting = sum(run.waiting for run in delivery.runs.values())
        delivery.resting = sum(run.waiting for run in delivery.rests.values())
        delivery.dying = {offset: Death.unpack(death) for offset, *death in dying}
        return delivery

    # Helpers --------------------------------------------------------------------------------------
    def _holders(self) -> Iterator[Lease | Run]:
        yield from self.leases.values()
        yield from self.runs.values()
        yield from self.rests.values()

    def _leave(self, lease: Lease, mask: int, run_id: int, attempts: int, visible_ms: int) -> Run | None:
        """Take the unsettled offsets of *mask* out of *lease*, as a run; None if there are none."""
        mask &= ~lease.settled
        if not mask:
            return None
        first = first_clear_bit(~mask)
        count = mask.bit_length() - first
        free = mask >> first
        self.leased -= mask.bit_count()
        lease.settled |= mask
        self._drop_if_done(lease)
        return Run(run_id, lease.start + first, count, ~free & ((1 << count) - 1), attempts, visible_ms)

    def _hold(self, lease: Lease) -> Lease:
        self.leases[lease.lease_id] = lease
        self.leased += lease.unsettled
        return lease

    def _drop_if_done(self, lease: Lease) -> None:
        if lease.is_done:
            self.leases.pop(lease.lease_id, None)
            self.ended(lease.lease_id, lease.token)
