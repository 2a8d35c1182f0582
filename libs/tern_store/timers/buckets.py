"""Buckets of timers on disk: one sequence of rows per stretch of time. `timers/{slot}/{20-digit byte position of first row}`.

     span 3,600,000   hours to come: rows in the order of adding
     span    60,000   minutes of this hour and the next: an hour's rows are spread over them when it comes near
     span         0   late: rows that were added behind the cursor; numbered from 0, as they have no time in common

Rows are those of `tern_wire.link.timer_rows`. A second sequence, in a slot of its own, takes rows of a bucket back (FLAG_CANCELLED).
Law: a bucket is read when it comes due and dropped whole; nothing in it is written twice. Slots are used again, so that folders stay
few (nothing removes a folder); each use begins with a file that no use before it had, because saved states may still need those.
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
    """Rows of one stretch of time. (A plain class with slots: there are a thousand of them, and every add looks one up.)"""

    __slots__ = ("cancelled_slot", "end", "last_id", "min_ms", "number", "slot", "sorted_end", "span")

    def __init__(self, span: int, number: int, slot: int, end: int) -> None:
        self.span, self.number, self.slot, self.end = span, number, slot, end
        self.cancelled_slot = -1
        self.min_ms = TIME_MAX_MS  # of all rows that were ever added: a lower bound of those that are left
        # Below this number rows have ascending ids, the last of them this one. Behind it are few: those that retention moved.
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
        self._free: list[tuple[int, int]] = []  # slots that nobody uses, and the row with which the next use begins
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
        """No bucket yet, whatever lies below *directory*. *piece_rows*: what one step of a scan reads."""
        rows = RowFiles.open(
            directory / FOLDER,
            row_size_bytes=TIMER_ROW_SIZE_BYTES,
            rows_per_file=rows_per_file,
            buffer_max_bytes=buffer_max_bytes,
            open_files_max=open_files_max,
            files=files,
        )
        return cls(rows, piece_rows, rows_per_file)

    # Which there are -------------------------------------------------------------------------------------------
    def find(self, span: int, number: int) -> Bucket | None:
        """The bucket, if there is one."""
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
        """Those of this span by time, while none is added or dropped."""
        return (self._buckets[span, number] for number in self._numbers[span])

    def size_rows(self, bucket: Bucket) -> int:
        """Rows that were neither trimmed nor dropped; some may be cancelled."""
        return bucket.end - self._rows.first((bucket.slot,))

    # Rows ------------------------------------------------------------------------------------------------------
    def place(self, span: int, rows: TimerRows, times: RowNumbers) -> None:
        """Append rows, due at *times*, to the buckets of *span*, each bucket's in the order given."""
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
        """Add rows, the earliest of which is due at *min_ms*, to a bucket, which begins with them if there is none."""
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
        """Take *rows*, which have these numbers, back: `pieces` leaves them out from now on."""
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
        """Number and time (ms) of every row with this id that was not cancelled; one of them may be pending. DerivedDamage.

        Some twenty reads of a row each, and the rows behind `sorted_end`.
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
        """Rows from number *start* on with their numbers, without cancelled ones, at most *piece_rows* at a time. DerivedDamage.

        Rows may be added, cancelled and trimmed between two steps. It ends when the bucket is dropped.
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
        """Those of the *count* rows from *row* on that are not cancelled, and their numbers. DerivedDamage."""
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
        """The bucket's first *count* rows are not needed any more; without any row left it is dropped."""
        first = self._rows.first((bucket.slot,)) + count
        if first >= bucket.end:
            self.drop(bucket)
        else:
            self._rows.trim((bucket.slot,), first)

    def drop(self, bucket: Bucket) -> None:
        """The bucket is gone; its files follow when no saved state needs them."""
        del self._buckets[bucket.span, bucket.number]
        numbers = self._numbers[bucket.span]
        del numbers[bisect_left(numbers, bucket.number)]
        self._give_back(bucket.slot)
        if bucket.cancelled_slot >= 0:
            self._give_back(bucket.cancelled_slot)

    # Saved states ----------------------------------------------------------------------------------------------
    def flush(self) -> SyncJob:
        """As RowFiles.flush. Durable here: every row that was added or cancelled, when the job has run."""
        return self._rows.flush()

    def marks(self) -> list[Any]:
        """What `restore` needs: [rows' marks, [[span, number, slot, cancelled slot, min_ms, sorted end, last id], ...], free slots, slots]."""
        buckets = [
            [b.span, b.number, b.slot, b.cancelled_slot, b.min_ms, b.sorted_end, b.last_id]
            for b in self._buckets.values()
        ]
        return [self._rows.marks(), buckets, [list(free) for free in self._free], self._slots]

    def saved(self) -> None:
        """As RowFiles.saved."""
        self._rows.saved()

    def restore(self, marks: list[Any]) -> None:
        """Be as *marks* say. DerivedDamage: there are no buckets then."""
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
        """As RowFiles.verify."""
        return self._rows.verify()

    def close(self) -> None:
        """Close the files; what was not flushed is forgotten."""
        self._forget()
        self._rows.close()

    # Below -----------------------------------------------------------------------------------------------------
    def _forget(self) -> None:
        self._buckets, self._free, self._slots = {}, [], 0
        self._numbers = {LATE: [], MINUTE: [], HOUR: []}

    def _take_slot(self) -> tuple[int, int]:
        """A slot and the number of its first row. By rule, not by chance: a replay must choose the same."""
        if self._free:
            return self._free.pop()
        self._slots += 1
        return self._slots - 1, 0

    def _give_back(self, slot: int) -> None:
        """The next use begins in the file behind the one that this use would have written to next."""
        first = (self._rows.end((slot,)) // self._rows_per_file + 1) * self._rows_per_file
        self._rows.remove((slot,))
        self._free.append((slot, first))
