"""Buckets of timers on disk, one sequence of rows per stretch of time.

Files `timers/{slot}/{20-digit byte position of first row}`:
 span 3,600,000   hours to come: rows in the order of adding
 span    60,000   minutes of this hour and the next: rows of a near hour are spread over them
 span         0   late: rows added behind the cursor; numbered from 0, as they share no time
Rows are those of `tern_wire.link.timer_rows`. A second sequence, in its own slot, lists the
cancelled rows of a bucket (FLAG_CANCELLED).

Law: a bucket is read when it comes due and dropped whole; nothing in it is written twice. Slots are
reused, so that folders stay few (nothing removes a folder). Each use begins with a file that no
earlier use had, because saved states may still need those.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage
from tern_store.files import Files
from tern_store.log.sync_job import SyncJob
from tern_store.queues.row_files import RowFiles
from tern_wire.link.timer_rows import FLAG_CANCELLED, TIMER_ROW_SIZE_BYTES, TIMER_ROWS

FOLDER = "timers"
LATE, MINUTE, HOUR = 0, 60_000, 3_600_000
TIME_MIN_MS, TIME_MAX_MS = -(1 << 63), (1 << 63) - 1
TimerRows = npt.NDArray[Any]
RowNumbers = npt.NDArray[np.int64]


class Bucket:
    """Rows of one stretch of time.
    A plain class with slots: there are a thousand of them, and every add looks one up.
    """

    __slots__ = ("cancelled_slot", "end", "last_id", "min_ms", "number", "slot", "sorted_end", "span")

    def __init__(self, span: int, number: int, slot: int, end: int) -> None:
        self.span, self.number, self.slot, self.end = span, number, slot, end
        self.cancelled_slot = -1
        self.min_ms = TIME_MAX_MS  # of all rows ever added: a lower bound of those that are left
        # Rows below this number have ascending ids, and this is the last id. Few follow: rows that
        # retention moved.
        self.sorted_end, self.last_id = end, TIME_MIN_MS

    @property
    def start_ms(self) -> int:
        """No row is due before this."""
        return self.number * self.span if self.span else TIME_MIN_MS

    @property
    def stop_ms(self) -> int:
        """Every row is due before this."""
        return (self.number + 1) * self.span if self.span else TIME_MAX_MS


class TimerBuckets:
    """All buckets and their files. Owner: `Timers`."""

    def __init__(self, rows: RowFiles, piece_rows: int, rows_per_file: int) -> None:
        """Use `open`."""
        self.piece_rows = piece_rows
        self._rows, self._rows_per_file = rows, rows_per_file
        self._buckets: dict[tuple[int, int], Bucket] = {}
        self._numbers: dict[int, list[int]] = {}  # of each span, sorted
        self._free: list[tuple[int, int]] = []  # unused slots, and the first row of their next use
        self._slots = 0
        self._forget()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        piece_rows: int,
        rows_per_file: int,
        buffer_max_bytes: int,
        open_files_max: int,
        files: Files,
    ) -> "TimerBuckets":
        """Open without buckets, whatever lies below *directory*.
        *piece_rows*: rows per step of a scan.
        """
        rows = RowFiles.open(
            directory / FOLDER,
            row_size_bytes=TIMER_ROW_SIZE_BYTES,
            rows_per_file=rows_per_file,
            buffer_max_bytes=buffer_max_bytes,
            open_files_max=open_files_max,
            files=files,
        )
        return cls(rows, piece_rows, rows_per_file)

    # Look-up --------------------------------------------------------------------------------------
    def find(self, span: int, number: int) -> Bucket | None:
        """The bucket, or None."""
        return self._buckets.get((span, number))

    def first(self, span: int) -> Bucket | None:
        """The earliest bucket of this span."""
        numbers = self._numbers[span]
        return self._buckets[span, numbers[0]] if numbers else None

    def last(self, span: int) -> Bucket | None:
        """The latest bucket of this span."""
        numbers = self._numbers[span]
        return self._buckets[span, numbers[-1]] if numbers else None

    def next(self, span: int, number: int) -> Bucket | None:
        """The earliest bucket of this span from *number* on."""
        numbers = self._numbers[span]
        at = bisect_left(numbers, number)
        return self._buckets[span, numbers[at]] if at < len(numbers) else None

    def of(self, span: int) -> Iterator[Bucket]:
        """Buckets of this span by time; none may be added or dropped meanwhile."""
        return (self._buckets[span, number] for number in self._numbers[span])

    def size_rows(self, bucket: Bucket) -> int:
        """Rows that were neither trimmed nor dropped; some may be cancelled."""
        return bucket.end - self._rows.first((bucket.slot,))

    # Rows -----------------------------------------------------------------------------------------
    def place(self, span: int, rows: TimerRows, times: RowNumbers) -> None:
        """Append rows, due at *times*, to the buckets of *span*, each bucket's in the order
        given.
        """
        if len(rows) == 1:
            time_ms = int(times[0])
            self.append(span, time_ms // span, rows, time_ms)
        elif len(rows):
            numbers = times // span
            order = np.argsort(numbers, kind="stable")
            numbers, rows = numbers[order], rows[order]
            starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
            earliest = np.minimum.reduceat(times[order], starts).tolist()
            borders = [*starts.tolist(), len(rows)]
            for at, number in enumerate(numbers[starts].tolist()):
                self.append(span, number, rows[borders[at] : borders[at + 1]], earliest[at])

    def append(self, span: int, number: int, rows: TimerRows, min_ms: int) -> None:
        """Add rows to a bucket, made if it is missing; the earliest is due at *min_ms*."""
        bucket = self._buckets.get((span, number))
        if bucket is None:
            bucket = Bucket(span, number, *self._take_slot())
            self._buckets[span, number] = bucket
            insort(self._numbers[span], number)
        self._rows.append((bucket.slot,), bucket.end, rows.tobytes())
        ids = rows["timer_id"].astype(np.int64)
        if bucket.sorted_end == bucket.end and int(ids[0]) > bucket.last_id and (ids[1:] > ids[:-1]).all():
            bucket.sorted_end, bucket.last_id = bucket.end + len(rows), int(ids[-1])
        bucket.end += len(rows)
        bucket.min_ms = min(bucket.min_ms, min_ms)

    def cancel(self, bucket: Bucket, rows: TimerRows, numbers: RowNumbers) -> None:
        """Cancel *rows* with these numbers: `pieces` leaves them out."""
        if bucket.cancelled_slot < 0:
            bucket.cancelled_slot, first = self._take_slot()
            self._rows.begin((bucket.cancelled_slot,), first)
        cancelled = np.zeros(len(rows), TIMER_ROWS)
        for name in ("deliver_ms", "timer_id"):
            cancelled[name] = rows[name]
        cancelled["position"], cancelled["flags"] = numbers, FLAG_CANCELLED
        key = (bucket.cancelled_slot,)
        self._rows.append(key, self._rows.end(key), cancelled.tobytes())

    def search(self, bucket: Bucket, timer_id: int) -> Iterator[tuple[int, int]]:
        """Number and time (ms) of every row with this id that was not cancelled. DerivedDamage.
        At most one of them is pending. Costs about twenty reads of a row, and the rows behind
        `sorted_end`.
        """
        low = first = self._rows.first((bucket.slot,))
        high = bucket.sorted_end
        while low < high:
            middle = (low + high) // 2
            (found,) = np.frombuffer(self._rows.read((bucket.slot,), middle, 1), TIMER_ROWS)["timer_id"].tolist()
            low, high = (middle + 1, high) if found < timer_id else (low, middle)
        places = [(low, 1)] if low < bucket.sorted_end else []
        start = max(first, bucket.sorted_end)
        places += [(row, self.piece_rows) for row in range(start, bucket.end, self.piece_rows)]
        for row, count in places:
            rows, numbers = self.piece(bucket, row, count)
            for at in np.flatnonzero(rows["timer_id"] == timer_id).tolist():
                yield int(numbers[at]), int(rows["deliver_ms"][at])

    def pieces(self, bucket: Bucket, start: int = 0) -> Iterator[tuple[TimerRows, RowNumbers]]:
        """Rows from number *start* on with their numbers, without cancelled ones. DerivedDamage.
        At most *piece_rows* at a time. Rows may be added, cancelled and trimmed between steps. Ends
        when the bucket is dropped.
        """
        row = start
        while self.find(bucket.span, bucket.number) is bucket:
            row = max(row, self._rows.first((bucket.slot,)))
            if row >= bucket.end:
                break
            rows, numbers = self.piece(bucket, row, self.piece_rows)
            if len(rows):
                yield rows, numbers
            row += self.piece_rows

    def piece(self, bucket: Bucket, row: int, count: int) -> tuple[TimerRows, RowNumbers]:
        """Uncancelled ones of the *count* rows from *row* on, and their numbers. DerivedDamage."""
        rows = np.frombuffer(self._rows.read((bucket.slot,), row, count), TIMER_ROWS)
        numbers = np.arange(row, row + len(rows))
        if bucket.cancelled_slot < 0:
            return rows, numbers
        is_alive = np.ones(len(rows), bool)
        key = (bucket.cancelled_slot,)
        for first in range(self._rows.first(key), self._rows.end(key), self.piece_rows):
            cancelled = np.frombuffer(self._rows.read(key, first, self.piece_rows), TIMER_ROWS)["position"].astype(
                np.int64
            )
            is_alive[cancelled[(cancelled >= row) & (cancelled < row + len(rows))] - row] = False
        return rows[is_alive], numbers[is_alive]

    def trim(self, bucket: Bucket, count: int) -> None:
        """Drop the bucket's first *count* rows, and the bucket if no row is left."""
        first = self._rows.first((bucket.slot,)) + count
        if first >= bucket.end:
            self.drop(bucket)
        else:
            self._rows.trim((bucket.slot,), first)

    def drop(self, bucket: Bucket) -> None:
        """Drop the bucket; its files go when no saved state needs them."""
        del self._buckets[bucket.span, bucket.number]
        numbers = self._numbers[bucket.span]
        del numbers[bisect_left(numbers, bucket.number)]
        self._give_back(bucket.slot)
        if bucket.cancelled_slot >= 0:
            self._give_back(bucket.cancelled_slot)

    # Saved states ---------------------------------------------------------------------------------
    def flush(self) -> SyncJob:
        """Forward to RowFiles.flush.
        Durable here: every added or cancelled row, when the job has run.
        """
        return self._rows.flush()

    def marks(self) -> list[Any]:
        """The data for `restore`.
        [rows' marks, [[span, number, slot, cancelled slot, min_ms, sorted end, last id], ...], free
        slots, slots].
        """
        buckets = [
            [b.span, b.number, b.slot, b.cancelled_slot, b.min_ms, b.sorted_end, b.last_id]
            for b in self._buckets.values()
        ]
        return [self._rows.marks(), buckets, [list(free) for free in self._free], self._slots]

    def saved(self) -> None:
        """Forward to RowFiles.saved."""
        self._rows.saved()

    def restore(self, marks: list[Any]) -> None:
        """Restore *marks*. DerivedDamage: there are no buckets then."""
        self._forget()
        row_marks, buckets, free, slots = marks
        self._rows.restore(row_marks)
        for span, number, slot, cancelled_slot, min_ms, sorted_end, last_id in buckets:
            bucket = self._buckets[span, number] = Bucket(span, number, slot, self._rows.end((slot,)))
            bucket.cancelled_slot, bucket.min_ms = cancelled_slot, min_ms
            bucket.sorted_end, bucket.last_id = sorted_end, last_id
            self._numbers[span].append(number)
        for numbers in self._numbers.values():
            numbers.sort()
        self._free, self._slots = [(slot, first) for slot, first in free], slots

    def wipe(self) -> None:
        """Remove every file."""
        self._forget()
        self._rows.wipe()

    def verify(self) -> Iterator[Checked | DerivedDamage]:
        """Forward to RowFiles.verify."""
        return self._rows.verify()

    def close_files(self) -> None:
        """Close all open files. The next write or read opens its own again."""
        self._rows.close_files()

    def close(self) -> None:
        """Close the files; rows that were not flushed are dropped."""
        self._forget()
        self._rows.close()

    # Below ----------------------------------------------------------------------------------------
    def _forget(self) -> None:
        self._buckets, self._free, self._slots = {}, [], 0
        self._numbers = {LATE: [], MINUTE: [], HOUR: []}

    def _take_slot(self) -> tuple[int, int]:
        """A slot and the number of its first row. Deterministic: a replay must choose the same."""
        if self._free:
            return self._free.pop()
        self._slots += 1
        return self._slots - 1, 0

    def _give_back(self, slot: int) -> None:
        """Free the slot; its next use begins one file behind the next row of this use."""
        first = (self._rows.end((slot,)) // self._rows_per_file + 1) * self._rows_per_file
        self._rows.remove((slot,))
        self._free.append((slot, first))
