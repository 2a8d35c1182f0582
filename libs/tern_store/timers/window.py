"""A due bucket, read in pieces: its earliest rows that were not handed out, sorted, in memory.

 rows of the bucket by (deliver_ms, row number):
 handed out     | in the window, sorted             | left on disk
     ^ cursor                            ^ limit (None: nothing is left)
Law: order and completeness follow from cursor and files alone; the window only saves repeated
reads. A restart with the same cursor continues at the same row, and a bucket of any size costs only
the window's memory.
"""

import numpy as np
import numpy.typing as npt

from tern_store.timers.buckets import TIME_MAX_MS, Bucket, RowNumbers, TimerBuckets, TimerRows
from tern_wire.link.timer_rows import TIMER_ROWS

_NONE = np.empty(0, np.int64)
Cursor = tuple[int, int]
Flags = npt.NDArray[np.bool_]
Part = tuple[TimerRows, RowNumbers, RowNumbers]  # rows, their times in ms, their numbers


class TimerWindow:
    """One bucket being handed out. Owner: `Timers`.
    *cursor*: (deliver_ms, row number) of the last row.
    """

    def __init__(self, buckets: TimerBuckets, bucket: Bucket, cursor: Cursor, window_rows: int) -> None:
        self.bucket, self.cursor = bucket, cursor
        self._buckets, self._window_rows = buckets, window_rows
        self._scanned = 0  # rows below this number are in the window, were handed out, or lie behind the limit
        self._limit: Cursor | None = None
        self._left = 0  # no row below this number was left behind the limit
        self._rows, self._times, self._numbers = np.empty(0, TIMER_ROWS), _NONE, _NONE

    def peek(self, now_ms: int, count_max: int) -> TimerRows:
        """Up to *count_max* of the next rows with deliver_ms <= *now_ms*.
        DerivedDamage, or OSError.
        """
        self._gather(now_ms, count_max)
        count = min(count_max, int(np.searchsorted(self._times, now_ms, "right")))
        # A copy with these exact bytes: concatenate has converted the fields to the machine's byte
        # order.
        return self._rows[:count].astype(TIMER_ROWS)

    def take(self, count: int) -> None:
        """Hand out the first *count* rows that `peek` returned."""
        if count:
            self.cursor = (int(self._times[count - 1]), int(self._numbers[count - 1]))
            self._keep(slice(count, None))

    def next_ms(self) -> int | None:
        """Due time of the next row; None if none is left. DerivedDamage."""
        self._gather(TIME_MAX_MS, 1)
        return int(self._times[0]) if len(self._times) else None

    def is_ahead(self, times: RowNumbers, numbers: RowNumbers) -> Flags:
        """Which rows of the bucket were not handed out."""
        return _is_behind(self.cursor, times, numbers)

    def forget(self, numbers: RowNumbers) -> None:
        """Drop the rows with these numbers, which were cancelled."""
        self._keep(~np.isin(self._numbers, numbers))

    # Below ----------------------------------------------------------------------------------------
    def _gather(self, now_ms: int, count: int) -> None:
        """Load *count* rows due by *now_ms*, or all there are. Changes nothing if a read fails."""
        size = max(self._window_rows, count)
        if self._scanned < self.bucket.end:  # rows added since
            self._read(self._scanned, self.cursor, self._limit, size)
        while self._limit is not None and self._limit[0] <= now_ms and len(self._rows) < count:
            self._read(self._left, self._limit, None, size)

    def _read(self, start: int, floor: Cursor, limit: Cursor | None, size: int) -> None:
        """Add the rows from number *start* on that lie behind *floor* and before *limit*.
        If the window exceeds two *size*, keep the earliest *size*.
        """
        left = self.bucket.end if limit is None else self._left
        parts = [(self._rows, self._times, self._numbers)]
        total = len(self._rows)
        for rows, numbers in self._buckets.pieces(self.bucket, start):
            times = rows["deliver_ms"].astype(np.int64)
            is_wanted = _is_behind(floor, times, numbers)
            if limit is not None:  # its number is higher than the limit's: at the same time it is behind the limit
                is_left = is_wanted & (times >= limit[0])
                left = min(left, int(numbers[is_left].min(initial=left)))
                is_wanted &= ~is_left
            parts.append((rows[is_wanted], times[is_wanted], numbers[is_wanted]))
            total += len(parts[-1][1])
            if total > 2 * size:
                kept, behind = _sort(parts, size)
                parts, total = [kept], size
                limit, left = (int(kept[1][-1]), int(kept[2][-1])), min(left, int(behind.min()))
        (self._rows, self._times, self._numbers), _ = _sort(parts, total)
        self._limit, self._left, self._scanned = limit, left, self.bucket.end

    def _keep(self, which: slice | Flags) -> None:
        self._rows, self._times, self._numbers = self._rows[which], self._times[which], self._numbers[which]


def _is_behind(cursor: Cursor, times: RowNumbers, numbers: RowNumbers) -> Flags:
    time_ms, number = cursor
    is_behind: Flags = (times > time_ms) | ((times == time_ms) & (numbers > number))
    return is_behind


def _sort(parts: list[Part], size: int) -> tuple[Part, RowNumbers]:
    """The earliest *size* rows, in order, and the numbers of the others.
    At equal times, earlier parts come first.
    """
    parts = [part for part in parts if len(part[1])] or parts[:1]
    rows, times, numbers = map(np.concatenate, zip(*parts, strict=True)) if len(parts) > 1 else parts[0]
    order = np.argsort(times, kind="stable")
    kept = order[:size]
    return (rows[kept], times[kept], numbers[kept]), numbers[order[size:]]
