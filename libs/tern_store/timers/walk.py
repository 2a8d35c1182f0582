"""A walk over all pending timers in pieces, by time, while others change; for listing and
retention.

 late rows | hour 7, then its minutes | hour 8, then its minutes | ...
Law: timers that stay pending throughout are all found. Rows move from an hour to its minutes and
never back, so the hour is read first. Rows that move meanwhile appear at most twice, and so do rows
that retention moves: the caller drops duplicates by id.
"""

from collections.abc import Callable, Iterator

import numpy as np

from tern_store.timers.buckets import HOUR, LATE, MINUTE, Bucket, RowNumbers, TimerBuckets, TimerRows
from tern_wire.link.timer_rows import TIMER_ROWS

_MINUTES = HOUR // MINUTE
Pieces = Callable[[Bucket], Iterator[tuple[TimerRows, RowNumbers]]]


def walk(buckets: TimerBuckets, pieces: Pieces, begin_ms: int, end_ms: int) -> Iterator[tuple[int, TimerRows]]:
    """Pending timers, in pieces: all with *begin_ms* <= deliver_ms < *end_ms*, and others.
    *pieces* reads a bucket. Each piece comes with a time (ms): no later piece has an earlier timer.
    DerivedDamage.
    """
    for late in list(buckets.of(LATE)):
        for rows, _ in pieces(late):
            yield late.start_ms, rows
    hour: int | None = begin_ms // HOUR
    while hour is not None and (hour := _next_hour(buckets, hour)) is not None and hour * HOUR < end_ms:
        whole = buckets.find(HOUR, hour)
        for rows, _ in pieces(whole) if whole is not None else ():
            yield hour * HOUR, rows
        number = max(hour * _MINUTES, begin_ms // MINUTE)
        while (minute := buckets.next(MINUTE, number)) is not None and minute.number < (hour + 1) * _MINUTES:
            for rows, _ in pieces(minute):
                yield minute.start_ms, rows
            number = minute.number + 1
        hour += 1


def _next_hour(buckets: TimerBuckets, number: int) -> int | None:
    """The first hour from *number* on with any timers."""
    hour, minute = buckets.next(HOUR, number), buckets.next(MINUTE, number * _MINUTES)
    hours = [hour.number] if hour is not None else []
    return min([*hours, minute.number // _MINUTES] if minute is not None else hours, default=None)


class TimerPage:
    """The first *count* timers of [*begin_ms*, *end_ms*) by (deliver_ms, timer_id), behind *after*.
    *after* is (deliver_ms, timer_id); *topic_id*, if given, selects one topic. Gathered from a
    walk, in the memory of *count* rows and one piece. Owner: the caller.
    """

    def __init__(
        self, begin_ms: int, end_ms: int, count: int, *, topic_id: int = 0, after: tuple[int, int] | None = None
    ) -> None:
        self.begin_ms = begin_ms if after is None else max(begin_ms, after[0])
        self.end_ms = end_ms
        self.rows = np.empty(0, TIMER_ROWS)
        self._count, self._topic_id, self._after = count, topic_id, after

    def fill(self, pieces: Iterator[tuple[int, TimerRows]]) -> TimerRows:
        """The rows of this page, from a complete walk from `begin_ms` to `end_ms`."""
        for start_ms, rows in pieces:
            if not self.add(start_ms, rows):
                break
        return self.rows

    def add(self, start_ms: int, rows: TimerRows) -> bool:
        """Add a piece of a walk; False when no later piece can belong to the page."""
        if self._count <= 0 or (len(self.rows) == self._count and start_ms > int(self.rows["deliver_ms"][-1])):
            return False
        times = rows["deliver_ms"].astype(np.int64)
        is_wanted = (times >= self.begin_ms) & (times < self.end_ms)
        if self._topic_id:
            is_wanted &= rows["topic_id"] == self._topic_id
        if self._after is not None:
            is_wanted &= (times > self._after[0]) | (rows["timer_id"] > self._after[1])
        if is_wanted.any():
            found = np.concatenate((self.rows, rows[is_wanted]))
            _, first = np.unique(found["timer_id"], return_index=True)
            found = found[first]
            order = np.lexsort((found["timer_id"].astype(np.int64), found["deliver_ms"].astype(np.int64)))
            self.rows = found[order[: self._count]]
        return True
