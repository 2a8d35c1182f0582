"""Timers: what is to be delivered when, on disk. `timers/`, see timer_buckets.py for the files and timer_window.py for reading.

     past        cursor             now           ahead                                                       40 days
     ------------|------------------|-------------|-------------------------------------------------------------|
     late rows   | minute buckets                 | hour buckets

Law: the results of `add`, `cancel` and `due` follow from the sequence of these calls and nothing else: every node hands out the same
rows in the same order, and so does one that restores older marks and is called again. Nothing is early, twice, or lost.
"""

from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import Any

import numpy as np

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage, StoreError
from tern_store.files import REAL_FILES, Files
from tern_store.sync_job import SyncJob
from tern_store.timer_buckets import HOUR, LATE, MINUTE, TIME_MIN_MS, Bucket, RowNumbers, TimerBuckets, TimerRows
from tern_store.timer_window import Cursor, TimerWindow
from tern_wire.timer_rows import FLAG_CANCELLED, TIMER_ROWS

# Minute buckets reach to the end of the next hour: a delay below an hour is written once.
_AHEAD_HOURS = 2
_START: Cursor = (TIME_MIN_MS, -1)


class Timers:
    """All pending timers of one broker node. Owner: the core loop; only `SyncJob.run` may run elsewhere."""

    def __init__(self, buckets: TimerBuckets, window_rows: int) -> None:
        """Use `open`."""
        self._buckets, self._window_rows = buckets, window_rows
        self._pending = 0
        # Rows that are due before this go to minute buckets; so do those of an hour when all that it had were spread.
        self._near_end_ms = 0
        # The last one handed out, late ones apart: (deliver_ms, row number in its bucket; -1 when that is gone).
        self._cursor = _START
        self._open: TimerWindow | None = None
        self._late: TimerWindow | None = None

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        window_rows: int = 65_536,
        rows_per_file: int = 1 << 20,
        buffer_max_bytes: int = 8 << 20,
        open_files_max: int = 256,
        files: Files = REAL_FILES,
    ) -> "Timers":
        """The timers below *directory*, none before `restore`.

        *window_rows* are held in memory to be sorted (65,536: 3 MiB, three times that for a moment). How `due` divides its
        answers depends on it, so it is the same on all nodes. A bucket gives its disk back in files of *rows_per_file*.
        """
        buckets = TimerBuckets.open(
            directory,
            piece_rows=max(1, window_rows // 4),
            rows_per_file=rows_per_file,
            buffer_max_bytes=buffer_max_bytes,
            open_files_max=open_files_max,
            files=files,
        )
        return cls(buckets, window_rows)

    @property
    def pending(self) -> int:
        """Timers that were neither handed out nor cancelled."""
        return self._pending

    # Adding and cancelling -------------------------------------------------------------------------------------
    def add(self, rows: TimerRows) -> None:
        """Add TIMER_ROWS; one that is due before what was handed out last is late and comes with the next `due`.

        StoreError for other rows and for FLAG_CANCELLED. A full disk keeps them in memory.
        """
        if rows.dtype != TIMER_ROWS or (rows["flags"] & FLAG_CANCELLED).any():
            raise StoreError(f"cannot add {rows.dtype} with flags that belong to the store")
        times = rows["deliver_ms"].astype(np.int64)
        if not len(rows):
            return
        self._pending += len(rows)
        first_ms, last_ms = int(times.min()), int(times.max())
        if first_ms >= max(self._near_end_ms, self._cursor[0]):
            self._buckets.place(HOUR, rows, times)
        elif first_ms >= self._cursor[0] and last_ms < self._near_end_ms:
            self._buckets.place(MINUTE, rows, times)
        else:
            is_late, is_far = times < self._cursor[0], times >= self._near_end_ms
            self._place_late(rows[is_late], times[is_late])
            self._buckets.place(MINUTE, rows[~is_late & ~is_far], times[~is_late & ~is_far])
            self._buckets.place(HOUR, rows[is_far & ~is_late], times[is_far & ~is_late])

    def cancel(self, deliver_ms: int, timer_id: int) -> bool:
        """True if this timer was pending and is not any more. Reads its bucket. DerivedDamage: nothing was changed."""
        for bucket in self._holding(deliver_ms):
            for rows, numbers in self._pieces(bucket):
                found = np.flatnonzero((rows["timer_id"] == timer_id) & (rows["deliver_ms"] == deliver_ms))
                if len(found):
                    row = int(numbers[found[0]])
                    self._buckets.cancel(bucket, row, deliver_ms, timer_id)
                    window = self._window_of(bucket)
                    if window is not None:
                        window.forget(row)
                    self._pending -= 1
                    return True
        return False

    # Handing out -----------------------------------------------------------------------------------------------
    def due(self, now_ms: int, count_max: int) -> TimerRows:
        """Hand out timers with deliver_ms <= *now_ms*, by (deliver_ms, order of adding); late ones first. At most *count_max*,
        perhaps fewer than are due: call again until there are none. DerivedDamage: nothing was handed out.

        *now_ms* never falls. If it does, nothing is early, but late ones may wait until it has caught up.
        """
        while count_max > 0 and (window := self._due_window(now_ms)) is not None:
            rows = window.take(now_ms, count_max)
            if len(rows):
                self._pending -= len(rows)
                if window is self._open:
                    self._cursor = window.cursor
                return rows
            if window.next_ms() is not None or (window is self._open and window.bucket.stop_ms > now_ms):
                break
            self._drop(window)
        self._look_ahead(now_ms)
        return np.empty(0, TIMER_ROWS)

    def next_due_ms(self) -> int | None:
        """No timer is due before this; None if none is pending. Exact within the minute that is being handed out and for
        buckets without cancelled rows; otherwise `due` at that time leads to a later one. DerivedDamage.
        """
        if not self._pending:
            return None
        bounds = []
        for span in (LATE, MINUTE, HOUR):
            for bucket in self._buckets.of(span):
                window = self._window_of(bucket)
                bound = bucket.min_ms if window is None else window.next_ms()
                if bound is not None:
                    bounds.append(bound)
                    if span != LATE:
                        break  # the others of this span are later
        return min(bounds)

    # Looking ---------------------------------------------------------------------------------------------------
    def list(self, begin_ms: int, end_ms: int, count: int, after: Cursor | None = None) -> TimerRows:
        """Pending timers with *begin_ms* <= deliver_ms < *end_ms* by (deliver_ms, timer_id): the first *count*, behind *after*
        = (deliver_ms, timer_id) if given. Memory is that of *count* rows and one piece. DerivedDamage.
        """
        page = np.empty(0, TIMER_ROWS)
        if after is not None:
            begin_ms = max(begin_ms, after[0])
        for bucket in self._by_time():
            if bucket.start_ms >= end_ms or count <= 0:
                break
            if len(page) == count and bucket.start_ms > int(page["deliver_ms"][-1]):
                break
            if bucket.stop_ms <= begin_ms:
                continue
            for rows, _ in self._pieces(bucket):
                times = rows["deliver_ms"].astype(np.int64)
                is_wanted = (times >= begin_ms) & (times < end_ms)
                if after is not None:
                    is_wanted &= (times > after[0]) | (rows["timer_id"] > after[1])
                if is_wanted.any():
                    page = _first_rows(np.concatenate((page, rows[is_wanted])), count)
        return page

    def needed_below(self, position: int) -> Iterator[TimerRows]:
        """All pending timers whose record lies before *position* of the log, in pieces. They must not change meanwhile."""
        for bucket in self._by_time():
            for rows, _ in self._pieces(bucket):
                found = rows[rows["position"] < position]
                if len(found):
                    yield found

    # Saved states ----------------------------------------------------------------------------------------------
    def flush(self) -> SyncJob:
        """Write what is buffered. OSError (ENOSPC): what was not written stays in memory; call it again.

        Durable here: every timer and cancellation so far, when the job has run.
        """
        return self._buckets.flush()

    def marks(self) -> dict[str, Any]:
        """What a saved state keeps, taken right after `flush`: 50 bytes a bucket, and the rows that `flush` left in memory."""
        return {
            "buckets": self._buckets.marks(),
            "pending": self._pending,
            "near": self._near_end_ms,
            "cursor": list(self._cursor),
            "open": [self._open.bucket.span, self._open.bucket.number] if self._open is not None else [],
            "late": [self._late.bucket.number, *self._late.cursor] if self._late is not None else [],
        }

    def saved(self) -> None:
        """A saved state with the last flush's marks is durable: files that neither it nor the one before needs are unlinked."""
        self._buckets.saved()

    def restore(self, marks: dict[str, Any]) -> None:
        """Be exactly as when *marks* were taken. DerivedDamage if a needed file is missing, short or damaged."""
        self._forget()
        self._buckets.restore(marks["buckets"])
        self._pending, self._near_end_ms = marks["pending"], marks["near"]
        self._cursor = (marks["cursor"][0], marks["cursor"][1])
        if marks["open"]:
            span, number = marks["open"]
            self._open = self._window(span, number, self._cursor)
        if marks["late"]:
            number, time_ms, row = marks["late"]
            self._late = self._window(LATE, number, (time_ms, row))

    def wipe(self) -> None:
        """Remove every file: the owner derives all timers again from the log."""
        self._forget()
        self._buckets.wipe()

    def verify(self) -> Iterator[Checked | DerivedDamage]:
        """Read everything on disk once, in steps of about 1 MiB; yields damage, never raises it."""
        return self._buckets.verify()

    def close(self) -> None:
        """Close the files; what was not flushed is forgotten, the log has it."""
        self._forget()
        self._buckets.close()

    # Below: where rows go --------------------------------------------------------------------------------------
    def _forget(self) -> None:
        self._pending, self._near_end_ms, self._cursor = 0, 0, _START
        self._open = self._late = None

    def _place_late(self, rows: TimerRows, times: RowNumbers) -> None:
        """Append to the last late bucket, or to a new one if that is being handed out and has a cursor of its own."""
        if len(rows):
            last = self._buckets.last(LATE)
            number = last.number if last is not None else 0
            if self._late is not None and self._late.bucket.number == number:
                number += 1
            self._buckets.append(LATE, number, rows.tobytes(), int(times.min()))

    def _spread(self, hour: Bucket) -> None:
        """Move one piece of an hour's rows to minute buckets. Until the last is moved, new ones join the hour: order holds."""
        count = min(self._buckets.piece_rows, self._buckets.size_rows(hour))
        rows, _ = self._buckets.piece(hour, hour.end - self._buckets.size_rows(hour), count)
        self._buckets.place(MINUTE, rows, rows["deliver_ms"].astype(np.int64))
        self._buckets.trim(hour, count)
        if self._buckets.find(HOUR, hour.number) is None:
            self._near_end_ms = max(self._near_end_ms, hour.stop_ms)

    # Below: what is due ----------------------------------------------------------------------------------------
    def _due_window(self, now_ms: int) -> TimerWindow | None:
        """What `due` takes from next: late rows, or the earliest bucket that has begun; None if there is neither."""
        late = self._buckets.first(LATE)
        if late is not None:
            if self._late is None:
                self._late = TimerWindow(self._buckets, late, _START, self._window_rows)
            next_ms = self._late.next_ms()
            if next_ms is None or next_ms <= now_ms:
                return self._late
        bucket = self._due_bucket(now_ms)
        if bucket is not None and (self._open is None or self._open.bucket is not bucket):
            self._open = TimerWindow(self._buckets, bucket, self._cursor, self._window_rows)
        return self._open if bucket is not None else None

    def _due_bucket(self, now_ms: int) -> Bucket | None:
        """The earliest bucket that has begun. An hour is spread before it is handed out, unless it is over and small."""
        while True:
            hour, minute = self._buckets.first(HOUR), self._buckets.first(MINUTE)
            if hour is None or hour.start_ms > now_ms or (minute is not None and minute.start_ms < hour.start_ms):
                return minute if minute is not None and minute.start_ms <= now_ms else None
            is_whole = minute is None or minute.start_ms >= hour.stop_ms
            is_small = hour.stop_ms <= now_ms and self._buckets.size_rows(hour) <= self._window_rows
            if (is_whole and is_small) or self._window_of(hour) is not None:
                return hour
            self._spread(hour)

    def _look_ahead(self, now_ms: int) -> None:
        """Bring the border of the minute buckets nearer to where it should be, by one piece at most."""
        border_ms = (now_ms // HOUR + _AHEAD_HOURS) * HOUR
        hour = self._buckets.first(HOUR)
        if hour is None or hour.start_ms >= border_ms:
            self._near_end_ms = max(self._near_end_ms, border_ms)
        elif self._window_of(hour) is None:
            self._spread(hour)

    def _drop(self, window: TimerWindow) -> None:
        """Everything in this bucket was handed out or cancelled."""
        self._buckets.drop(window.bucket)
        if window is self._late:
            self._late = None
            return
        self._open = None
        self._cursor = (self._cursor[0], -1)  # a later bucket of the same time numbers its rows anew

    # Below: what there is --------------------------------------------------------------------------------------
    def _window(self, span: int, number: int, cursor: Cursor) -> TimerWindow:
        bucket = self._buckets.find(span, number)
        if bucket is None:
            raise StoreError(f"the saved state hands out timers of a bucket that it does not have: {span} ms, {number}")
        return TimerWindow(self._buckets, bucket, cursor, self._window_rows)

    def _window_of(self, bucket: Bucket) -> TimerWindow | None:
        if self._open is not None and self._open.bucket is bucket:
            return self._open
        return self._late if self._late is not None and self._late.bucket is bucket else None

    def _holding(self, deliver_ms: int) -> Iterator[Bucket]:
        """The buckets that may have pending rows of this time."""
        if deliver_ms < self._cursor[0]:
            yield from self._buckets.of(LATE)
        for span in (MINUTE, HOUR):
            bucket = self._buckets.find(span, deliver_ms // span)
            if bucket is not None:
                yield bucket

    def _by_time(self) -> Iterator[Bucket]:
        """All buckets, by the time before which they have no rows."""
        yield from self._buckets.of(LATE)
        yield from merge(self._buckets.of(MINUTE), self._buckets.of(HOUR), key=lambda bucket: bucket.start_ms)

    def _pieces(self, bucket: Bucket) -> Iterator[tuple[TimerRows, RowNumbers]]:
        """The pending rows of a bucket, with their numbers."""
        window = self._window_of(bucket)
        for rows, numbers in self._buckets.pieces(bucket):
            if window is None:
                yield rows, numbers
            else:
                is_ahead = window.is_ahead(rows["deliver_ms"].astype(np.int64), numbers)
                yield rows[is_ahead], numbers[is_ahead]


def _first_rows(rows: TimerRows, count: int) -> TimerRows:
    """The first *count* by (deliver_ms, timer_id)."""
    order = np.lexsort((rows["timer_id"].astype(np.int64), rows["deliver_ms"].astype(np.int64)))
    return rows[order[:count]]
