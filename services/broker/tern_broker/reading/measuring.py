"""Stored bytes between two offsets of a queue, summed up from the queue's rows; no record is read.

Law: one step reads at most STEP_ENTRIES rows, about a millisecond. A measurement that meets its
limit of rows or cuts ends early and says where.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tern_store import Store
from tern_store.unread import STEP_ENTRIES


@dataclass(slots=True)
class Allowance:
    """What the rest of one request may read and answer."""

    rows: int
    cuts: int


@dataclass(slots=True, kw_only=True)
class Measurement:
    """The messages of [*begin*, *measured_to*) of one queue have *size_bytes*, each the size of its
    record. *cuts*: offsets at which a part of at most *step_bytes* ends.

    *budget_bytes*: a limit of *size_bytes*, -1 for none. A part has at least one message, however
    large; a budget may have none.
    """

    begin: int
    step_bytes: int = 0
    budget_bytes: int = -1
    measured_to: int = field(init=False)
    size_bytes: int = field(init=False, default=0)
    cuts: list[int] = field(init=False, default_factory=list)
    # Bytes since the last cut.
    _part_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.measured_to = self.begin

    def steps(
        self, store: Store, topic_id: int, queue: int, *, end: int, rows_max: int, allowance: Allowance
    ) -> Iterator[None]:
        """Measure up to *end*, at most *rows_max* rows. DerivedDamage."""
        last = min(end, self.begin + max(0, rows_max))
        while self.measured_to < last:
            count = min(STEP_ENTRIES, last - self.measured_to)
            entries = store.read_queue(topic_id, queue, self.measured_to, count)
            allowance.rows -= len(entries)
            # Nothing where retention has dropped the range meanwhile.
            if not len(entries) or not self._add(entries["size"].astype(np.int64), allowance):
                return
            yield

    def _add(self, sizes: npt.NDArray[np.int64], allowance: Allowance) -> bool:
        """Add the next messages; return whether all of them fitted."""
        sums = sizes.cumsum()
        count = len(sums)
        if self.budget_bytes >= 0:
            count = int(sums.searchsorted(self.budget_bytes - self.size_bytes, side="right"))
        fitted = self._cut(sums, count, allowance) if self.step_bytes else count
        self.size_bytes += int(sums[fitted - 1]) if fitted else 0
        self.measured_to += fitted
        return fitted == len(sums)

    def _cut(self, sums: npt.NDArray[np.int64], count: int, allowance: Allowance) -> int:
        """Cut the first *count* messages; return how many of them are before the last cut that the
        allowance has.
        """
        at, before_bytes = 0, -self._part_bytes
        while True:
            full = int(sums.searchsorted(before_bytes + self.step_bytes, side="right"))
            if full == at and self.measured_to + at == (self.cuts[-1] if self.cuts else self.begin):
                full += 1  # one message alone is larger than a part
            if full >= count:
                break
            if not allowance.cuts:
                return at
            allowance.cuts -= 1
            at, before_bytes = full, int(sums[full - 1]) if full else 0
            self.cuts.append(self.measured_to + at)
        self._part_bytes = (int(sums[count - 1]) if count else 0) - before_bytes
        return count
