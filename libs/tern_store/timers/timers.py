"""Timers of delayed messages, on disk below `timers/`.

See timers/buckets.py for the files and timers/window.py for reading.
 past        cursor             now           ahead                                         40 days
 ------------|------------------|-------------|-----------------------------------------------|
 late rows   | minute buckets                 | hour buckets
Law: the pending timers, and the order in which `peek` returns them, follow from the sequence of
`add`, `cancel` and `take` alone. Every node returns the same rows in the same order, and so does
one that restores older marks and repeats the calls. `peek` and `look_ahead` may move rows between
buckets; that changes neither. No timer is early, repeated, or lost.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage, StoreError
from tern_store.files import REAL_FILES, Files
from tern_store.log.sync_job import SyncJob
from tern_store.timers.buckets import (
    HOUR,
    LATE,
    MINUTE,
    TIME_MAX_MS,
    TIME_MIN_MS,
    Bucket,
    RowNumbers,
    TimerBuckets,
    TimerRows,
)
from tern_store.timers.walk import walk
from tern_store.timers.window import Cursor, Flags, TimerWindow
from tern_wire.link.timer_rows import FLAG_CANCELLED, TIMER_ROWS

# Minute buckets reach to the end of the next hour: a delay below an hour is written once.
_AHEAD_HOURS = 2
_START: Cursor = (TIME_MIN_MS, -1)
_NONE = np.empty(0, TIMER_ROWS)


class Timers:
    """All pending timers of one broker node.
    Owner: the core loop; only `SyncJob.run` runs elsewhere.
    """

    def __init__(self, buckets: TimerBuckets, window_rows: int) -> None:
        """Use `open`."""
        self._buckets, self._window_rows = buckets, window_rows
        self._pending = 0
        # Rows due before this go to minute buckets; so do those of an hour whose rows were all
        # spread.
        self._near_end_ms = 0
        # The last row handed out, late ones apart: (deliver_ms, row number in its bucket; -1 when
        # the bucket is gone).
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
        """Open the timers below *directory*; there are none before `restore`.
        *window_rows* are held in memory for sorting (65,536: 3 MiB, briefly three times that). A
        bucket frees its disk space in files of *rows_per_file*.
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
        """Number of timers that were neither handed out nor cancelled."""
        return self._pending

    # Adding and cancelling ------------------------------------------------------------------------
    def add(self, rows: TimerRows) -> None:
        """Add TIMER_ROWS.
        A row due before the last one handed out is late and comes first in `peek`. StoreError for
        other rows and for FLAG_CANCELLED. A full disk keeps rows in memory.
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

    def find(self, deliver_ms: int, timer_id: int) -> TimerRows:
        """The pending timer, shape (1,), or nothing, shape (0,). Reads its bucket.
        DerivedDamage.
        """
        found = self._locate(deliver_ms, timer_id)
        return self._buckets.piece(*found, 1)[0] if found is not None else _NONE

    def cancel(self, deliver_ms: int, timer_id: int) -> bool:
        """Cancel a timer; True if it was pending. Reads its bucket.
        DerivedDamage: nothing changed.
        """
        found = self._locate(deliver_ms, timer_id)
        if found is None:
            return False
        bucket, row = found
        self._cancel(bucket, self._buckets.piece(bucket, row, 1)[0], np.array([row]))
        return True

    def cancel_all(self, rows: TimerRows) -> Flags:
        """Cancel many timers and return which were pending. Reads each bucket involved once."""
        times, wanted = rows["deliver_ms"].astype(np.int64), rows["timer_id"].astype(np.int64)
        was_pending = np.zeros(len(rows), bool)
        buckets: dict[Bucket, None] = {}
        for time_ms in np.unique(times // MINUTE * MINUTE).tolist():
            buckets.update(dict.fromkeys(self._holding(time_ms, time_ms + MINUTE)))
        for bucket in buckets:
            found = []
            for pending, numbers in self._pieces(bucket):
                is_wanted = np.isin(pending["timer_id"].astype(np.int64), wanted)
                if is_wanted.any():
                    found.append((pending[is_wanted], numbers[is_wanted]))
            for pending, numbers in found:
                self._cancel(bucket, pending, numbers)
                was_pending |= np.isin(wanted, pending["timer_id"].astype(np.int64))
        return was_pending

    # Handing out ----------------------------------------------------------------------------------
    def peek(self, now_ms: int, count_max: int) -> TimerRows:
        """The next timers with deliver_ms <= *now_ms*, late ones first. DerivedDamage.
        Ordered by (deliver_ms, order of adding): at most *count_max*, possibly fewer than are due,
        none only if none is due. They stay pending until `take`. *now_ms* should never fall; if it
        does, no timer is early, but late ones may wait until it has caught up.
        """
        while count_max > 0 and (window := self._due_window(now_ms)) is not None:
            rows = window.peek(now_ms, count_max)
            if len(rows):
                return rows
            if window.next_ms() is not None or (window is self._open and window.bucket.stop_ms > now_ms):
                break
            self._drop(window)
        self.look_ahead(now_ms)
        return _NONE

    def take(self, rows: TimerRows, now_ms: int) -> int:
        """Hand out *rows*; return how many were not pending, 0 for rows that `peek` has returned.
        DerivedDamage: some of them may have been taken.
        """
        done = 0
        while done < len(rows):
            found = self.peek(now_ms, len(rows) - done)
            if not len(found) or found.tobytes() != rows[done : done + len(found)].tobytes():
                # Made again from a log that begins later: some rows are missing here, or have
                # another order.
                return int((~self.cancel_all(rows[done:])).sum())
            window = self._due_window(now_ms)
            assert window is not None, "it has just been looked into"
            window.take(len(found))
            self._pending -= len(found)
            if window is self._open:
                self._cursor = window.cursor
            done += len(found)
        return 0

    def look_ahead(self, now_ms: int) -> None:
        """Advance the end of the minute buckets by at most one piece; called often on every
        node.
        """
        border_ms = (now_ms // HOUR + _AHEAD_HOURS) * HOUR
        hour = self._buckets.first(HOUR)
        if hour is None or hour.start_ms >= border_ms:
            self._near_end_ms = max(self._near_end_ms, border_ms)
        elif self._window_of(hour) is None:
            self._spread(hour)

    def next_due_ms(self) -> int | None:
        """No timer is due before this; None if none is pending. DerivedDamage.
        Exact within the minute being handed out and for buckets without cancelled rows; otherwise a
        `peek` at that time leads to a later one.
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

    # Look-up --------------------------------------------------------------------------------------
    def walk(self, begin_ms: int, end_ms: int) -> Iterator[tuple[int, TimerRows]]:
        """Walk over the pending timers (timers/walk.py)."""
        return walk(self._buckets, self._pieces, begin_ms, end_ms)

    def needed_below(self, position: int) -> Iterator[TimerRows]:
        """Pending timers with records before *position* of the log, in pieces.
        No change meanwhile.
        """
        for _, rows in self.walk(TIME_MIN_MS, TIME_MAX_MS):
            found = rows[rows["position"] < position]
            if len(found):
                yield found

    # Saved states ---------------------------------------------------------------------------------
    def flush(self) -> SyncJob:
        """Write buffered rows. OSError (ENOSPC): unwritten rows stay in memory; call again.
        Durable here: every timer and cancellation so far, when the job has run.
        """
        return self._buckets.flush()

    def marks(self) -> dict[str, Any]:
        """The data for a saved state, valid right after `flush`.
        50 bytes a bucket, and the rows that `flush` left in memory.
        """
        return {
            "buckets": self._buckets.marks(),
            "pending": self._pending,
            "near": self._near_end_ms,
            "cursor": list(self._cursor),
            "open": [self._open.bucket.span, self._open.bucket.number] if self._open is not None else [],
            "late": [self._late.bucket.number, *self._late.cursor] if self._late is not None else [],
        }

    def saved(self) -> None:
        """Unlink files that neither the last flush's state, now durable, nor the one before
        needs.
        """
        self._buckets.saved()

    def restore(self, marks: dict[str, Any]) -> None:
        """Restore *marks* exactly. DerivedDamage if a needed file is missing, short or damaged."""
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
        """Remove every file; the owner derives all timers again from the log."""
        self._forget()
        self._buckets.wipe()

    def verify(self) -> Iterator[Checked | DerivedDamage]:
        """Read everything on disk once, in steps of about 1 MiB.
        Damage is yielded, never raised.
        """
        return self._buckets.verify()

    def close_files(self) -> None:
        """Close all open files. The next write or read opens its own again."""
        self._buckets.close_files()

    def close(self) -> None:
        """Close the files; the log has the rows that were not flushed."""
        self._forget()
        self._buckets.close()

    # Below: placing rows --------------------------------------------------------------------------
    def _forget(self) -> None:
        self._pending, self._near_end_ms, self._cursor = 0, 0, _START
        self._open = self._late = None

    def _place_late(self, rows: TimerRows, times: RowNumbers) -> None:
        """Append to the last late bucket, or to a new one if that is being handed out."""
        if len(rows):
            last = self._buckets.last(LATE)
            number = last.number if last is not None else 0
            if self._late is not None and self._late.bucket.number == number:
                number += 1
            self._buckets.append(LATE, number, rows, int(times.min()))

    def _spread(self, hour: Bucket) -> None:
        """Move one piece of an hour's rows to minute buckets.
        New rows join the hour until the last piece is moved, which keeps the order.
        """
        count = min(self._buckets.piece_rows, self._buckets.size_rows(hour))
        rows, _ = self._buckets.piece(hour, hour.end - self._buckets.size_rows(hour), count)
        self._buckets.place(MINUTE, rows, rows["deliver_ms"].astype(np.int64))
        self._buckets.trim(hour, count)
        if self._buckets.find(HOUR, hour.number) is None:
            self._near_end_ms = max(self._near_end_ms, hour.stop_ms)

    def _cancel(self, bucket: Bucket, rows: TimerRows, numbers: RowNumbers) -> None:
        """Cancel *rows*, whose numbers in *bucket* are *numbers*."""
        self._buckets.cancel(bucket, rows, numbers)
        window = self._window_of(bucket)
        if window is not None:
            window.forget(numbers)
        self._pending -= len(rows)

    # Below: due rows ------------------------------------------------------------------------------
    def _due_window(self, now_ms: int) -> TimerWindow | None:
        """The next source of due rows: late rows, or the earliest begun bucket; None if neither."""
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
        """The earliest begun bucket. An hour is spread first, unless it is over and small."""
        while True:
            hour, minute = self._buckets.first(HOUR), self._buckets.first(MINUTE)
            if hour is None or hour.start_ms > now_ms or (minute is not None and minute.start_ms < hour.start_ms):
                return minute if minute is not None and minute.start_ms <= now_ms else None
            is_whole = minute is None or minute.start_ms >= hour.stop_ms
            is_small = hour.stop_ms <= now_ms and self._buckets.size_rows(hour) <= self._window_rows
            if (is_whole and is_small) or self._window_of(hour) is not None:
                return hour
            self._spread(hour)

    def _drop(self, window: TimerWindow) -> None:
        """Drop a bucket whose rows were all handed out or cancelled."""
        self._buckets.drop(window.bucket)
        if window is self._late:
            self._late = None
            return
        self._open = None
        self._cursor = (self._cursor[0], -1)  # a later bucket of the same time numbers its rows anew

    # Below: pending rows --------------------------------------------------------------------------
    def _window(self, span: int, number: int, cursor: Cursor) -> TimerWindow:
        bucket = self._buckets.find(span, number)
        if bucket is None:
            raise StoreError(f"the saved state hands out timers of a bucket that it does not have: {span} ms, {number}")
        return TimerWindow(self._buckets, bucket, cursor, self._window_rows)

    def _window_of(self, bucket: Bucket) -> TimerWindow | None:
        if self._open is not None and self._open.bucket is bucket:
            return self._open
        return self._late if self._late is not None and self._late.bucket is bucket else None

    def _locate(self, deliver_ms: int, timer_id: int) -> tuple[Bucket, int] | None:
        """The bucket and row number of this pending timer."""
        for bucket in self._holding(deliver_ms, deliver_ms + 1):
            window = self._window_of(bucket)
            for row, time_ms in self._buckets.search(bucket, timer_id):
                is_ahead = window is None or bool(window.is_ahead(np.array([time_ms]), np.array([row]))[0])
                if time_ms == deliver_ms and is_ahead:
                    return bucket, row
        return None

    def _holding(self, begin_ms: int, end_ms: int) -> Iterator[Bucket]:
        """Buckets that may have pending rows of [*begin_ms*, *end_ms*), which lie in one minute."""
        if begin_ms < self._cursor[0]:
            yield from self._buckets.of(LATE)
        for span in (MINUTE, HOUR):
            bucket = self._buckets.find(span, (end_ms - 1) // span)
            if bucket is not None:
                yield bucket

    def _pieces(self, bucket: Bucket) -> Iterator[tuple[TimerRows, RowNumbers]]:
        """The pending rows of a bucket, with their numbers."""
        for rows, numbers in self._buckets.pieces(bucket):
            window = self._window_of(bucket)
            if window is None:
                yield rows, numbers
            else:
                is_ahead = window.is_ahead(rows["deliver_ms"].astype(np.int64), numbers)
                yield rows[is_ahead], numbers[is_ahead]
