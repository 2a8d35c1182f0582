"""Delivery of one queue to one group: what was never leased, what is leased, what came back, what rests, what is dying.

A lease covers a contiguous run of offsets with a bitmap of what is settled, so a batch of 32 costs one lease. A run holds what came
back in the same way: visible at once, or resting until its time. What has failed for the last time is dying: nobody sees it, and
it counts as settled only when the leader has buried it (dead_letters.py). `fifo.py` builds on this. Invariant: every offset below `cursor` is settled,
or unsettled in exactly one lease, or in exactly one run, or dying.

     offsets   0 ........ committed ............................. cursor ........ end
               | settled  | leases, runs, rests, dying, settled   | never leased  |
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.lease import Death, Lease, Run, first_clear_bit, held_by

# Revived messages so close to each other share a run: a receive looks at what lies between them as well.
REVIVED_GAP_MAX = 32


# Told the number of a lease or a rest that is over, and the lease's token.
Ended = Callable[[int, bytes], None]


def _tell_nobody(_item_id: int, _token: bytes) -> None:
    """A delivery that no Leasing attends: of a test, or one that is being loaded."""


class Delivery:
    """One group in one queue. Owner: the state machine; the picker only reads.."""

    KIND: ClassVar[str] = "shared"
    __slots__ = ("cursor", "dying", "ended", "leased", "leases", "resting", "rests", "runs", "version", "waiting")

    def __init__(self, cursor: int, version: int = 0) -> None:
        self.cursor = cursor
        # Moves with every seek, so that a lease proposed before it is refused.
        self.version = version
        self.leases: dict[int, Lease] = {}
        self.runs: dict[int, Run] = {}
        self.rests: dict[int, Run] = {}
        self.dying: dict[int, Death] = {}
        # Unsettled messages in leases, in rests, and in runs.
        self.leased = self.resting = self.waiting = 0
        # Called whenever something ends that has a deadline: what is kept of it elsewhere goes, too.
        self.ended: Ended = _tell_nobody

    # Leasing ---------------------------------------------------------------------------------------------------
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
        self.waiting -= lease.unsettled
        if count == run.count:
            del self.runs[run_id]
        else:
            # What is settled at the begin of the rest goes too: retention may drop it, and a run is read from its begin.
            count += first_clear_bit(run.settled >> count)
            run.start += count
            run.count -= count
            run.settled >>= count
            if run.count <= 0:
                del self.runs[run_id]
        return None if lease.is_done else self._hold(lease)

    def available(self, end: int) -> int:
        """How many messages could be leased now."""
        return end - self.cursor + self.waiting

    @property
    def unsettled(self) -> int:
        """Messages below the cursor that are not settled: what this costs of the state."""
        return self.leased + self.resting + self.waiting + len(self.dying)

    # Settling --------------------------------------------------------------------------------------------------
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
        """As `give_back`, but not visible before *visible_ms*: then the owner calls `wake`."""
        if (run := self._leave(lease, mask, run_id, attempts, visible_ms)) is not None:
            run.nacked_by = lease.lease_id
            self.rests[run_id] = run
            self.resting += run.waiting

    def resting_until(self) -> list[tuple[int, int]]:
        """(run id, visible ms) of every rest."""
        return [(run.run_id, run.visible_ms) for run in self.rests.values()]

    def wake(self, run_id: int) -> None:
        """The rest *run_id* is over: it is visible."""
        run = self.runs[run_id] = self.rests.pop(run_id)
        self.resting -= run.waiting
        self.waiting += run.waiting
        self.ended(run_id, b"")

    def condemn(self, lease: Lease, mask: int, death: Death) -> list[int]:
        """The unsettled offsets of *mask* have failed for the last time; which they are."""
        run = self._leave(lease, mask, 0, 0, 0)
        offsets = run.offsets().tolist() if run is not None else []
        self.dying.update(dict.fromkeys(offsets, death))
        return offsets

    def bury(self, offset: int) -> bool:
        """*offset* is settled now; False if it was not dying."""
        return self.dying.pop(offset, None) is not None

    def revive(
        self, offsets: npt.NDArray[np.int64], next_id: Callable[[], int], _message_groups: Mapping[int, int]
    ) -> int:
        """Those of the settled *offsets* (ascending) are visible again, as if never received: how many. A number for each new run
        comes from *next_id*. What is behind the cursor or not settled will be delivered anyway.
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
        """Offsets of *lease* whose deadline is over, as bits."""
        mask = ~lease.settled & ((1 << lease.count) - 1) if lease.deadline_ms <= now_ms else 0
        for offset, deadline_ms in lease.extended.items():
            bit = 1 << offset - lease.start
            mask = mask & ~bit if deadline_ms > now_ms else mask | bit
        return mask & ~lease.settled

    def due_ms(self, item_id: int) -> int | None:
        """When the first message of the lease or rest *item_id* becomes visible; None if there is none of that id."""
        if (lease := self.leases.get(item_id)) is not None:
            return lease.first_deadline_ms
        rest = self.rests.get(item_id)
        return rest.visible_ms if rest is not None else None

    def seek(self, offset: int) -> list[Lease]:
        """Begin again at *offset*: what is held is forgotten, handles expire. Returns the forgotten leases."""
        forgotten = list(self.leases.values())
        self.forget_held()
        self.cursor = offset
        self.version += 1
        return forgotten

    def forget_held(self) -> None:
        """Nothing is held any more: of a seek, or of a delivery that is dropped."""
        for lease in self.leases.values():
            self.ended(lease.lease_id, lease.token)
        for run_id in self.rests:
            self.ended(run_id, b"")
        for held in (self.leases, self.runs, self.rests, self.dying):
            held.clear()
        self.leased = self.resting = self.waiting = 0

    # Looking ---------------------------------------------------------------------------------------------------
    def is_settled(self, offset: int) -> bool:
        """Whether the group will not see *offset* again."""
        if offset >= self.cursor or offset in self.dying:
            return False
        return not any(
            item.start <= offset < item.start + item.count and not item.settled >> offset - item.start & 1
            for item in self._holders()
        )

    def was_nacked_by(self, lease_id: int, offset: int) -> bool:
        """Whether *offset* is where a nack of the lease has brought it: back, resting, dying or buried, and with nobody since."""
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
        """Nothing below this offset waits to be received for the first time."""
        return self.cursor

    def committed(self) -> int:
        """Everything below this offset is settled."""
        lowest = min((item.start + first_clear_bit(item.settled) for item in self._holders()), default=self.cursor)
        return min(lowest, min(self.dying, default=lowest))

    def held_offsets(self) -> npt.NDArray[np.int64]:
        """Every unsettled offset below the cursor, ascending: what retention must keep."""
        dying = np.fromiter(self.dying, np.int64, len(self.dying))
        return np.sort(np.concatenate([held_by(self._holders()), dying]))

    # Saving ----------------------------------------------------------------------------------------------------
    def pack(self) -> list[Any]:
        """A frozen copy of MessagePack's types."""
        return [
            *(self.cursor, self.version),
            [lease.pack() for lease in self.leases.values()],
            [run.pack() for run in self.runs.values()],
            [run.pack() for run in self.rests.values()],
            [[offset, *death.pack()] for offset, death in self.dying.items()],
        ]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Delivery":
        """What was packed."""
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

    # Below -----------------------------------------------------------------------------------------------------
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
