"""Consume queues: the records of each queue and their visibility times.

Files below `consumequeue/{topic id}/{queue}/`:
 {20-digit byte position}         0              8        12          20
         | position 8   | size 4 | tag hash 8 |    the entry of offset n at byte 20 * n of the queue
 times/{20-digit byte position}   0                8                16
         | visible time 8 | first offset 8 |       entries are visible from that millisecond on
Big-endian; each file may have a `.crc` beside it (row_files.py). Reference: RocketMQ's ConsumeQueue
(20-byte CQ_STORE_UNIT_SIZE, 300,000 entries a file).

Law: everything here is derived from the log. Visible times ascend from row to row: entries applied
in one millisecond share one, so bisection finds an offset by time and a time by offset.
"""

import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage, StoreError
from tern_store.files import REAL_FILES, Files
from tern_store.log.gathered_appends import GATHER_QUEUES_MIN, GATHER_ROWS_MAX, HANDED_OUT_ROWS, GatheredAppends
from tern_store.log.sync_job import SyncJob
from tern_store.queues.row_files import RowFiles
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppends

ENTRY_SIZE_BYTES = 20
FOLDER, TIMES_FOLDER = "consumequeue", "times"
_TIME = struct.Struct(">qq")
VISIBLE_MS, FIRST_OFFSET = 0, 1  # columns
# Fewer rows than these are read at once: they lie in one block or two.
_BISECT_ROWS = 64
QueueKey = tuple[int, int]
QueueEntries = npt.NDArray[Any]


class ConsumeQueues:
    """All queues of one broker node. Owner: the core loop; only `SyncJob.run` may run elsewhere."""

    def __init__(self, entries: RowFiles, times: RowFiles) -> None:
        """Use `open`."""
        self._entry_rows, self._time_rows = entries, times
        self._visible_ms: dict[QueueKey, int] = {}  # of each queue's last row of times
        self._gathered = GatheredAppends()

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        entries_per_file: int = 300_000,
        buffer_max_bytes: int = 16 << 20,
        open_files_max: int = 256,
        files: Files = REAL_FILES,
    ) -> "ConsumeQueues":
        """Open the queues below *directory*; there are none before `restore`.
        *open_files_max*, at least 2, counts all files. *buffer_max_bytes* limits unwritten rows,
        which go into a saved state with the marks if more than 64 queues have any.
        """
        # When the buffer fills, log entries have few messages for each of many queues: as many
        # times as entries.
        times_buffer_bytes, times_files = buffer_max_bytes // 2, max(1, open_files_max // 4)
        entries = RowFiles.open(
            directory / FOLDER,
            row_size_bytes=ENTRY_SIZE_BYTES,
            rows_per_file=entries_per_file,
            buffer_max_bytes=buffer_max_bytes - times_buffer_bytes,
            open_files_max=open_files_max - times_files,
            files=files,
        )
        times = RowFiles.open(
            directory / FOLDER,
            row_size_bytes=_TIME.size,
            rows_per_file=entries_per_file,
            buffer_max_bytes=times_buffer_bytes,
            open_files_max=times_files,
            leaf=TIMES_FOLDER,
            files=files,
        )
        return cls(entries, times)

    def append(self, topic_id: int, queue: int, first_offset: int, entries: QueueEntries, visible_ms: int) -> None:
        """Add *entries* (QUEUE_ENTRIES) at the queue's end *first_offset*; a new queue begins
        there.
        They become visible at *visible_ms*, which never falls within a queue; if it does, the time
        before holds. In memory; written in blocks. StoreError for a gap, a repeat, or another
        layout.
        """
        key = (topic_id, queue)
        if entries.dtype is not QUEUE_ENTRIES and entries.dtype != QUEUE_ENTRIES:
            raise StoreError(f"queue {topic_id}/{queue} cannot add {entries.dtype} at {first_offset}")
        self._entries.append(key, first_offset, entries.tobytes())
        before_ms = self._visible_ms.get(key)
        if (before_ms is None or visible_ms > before_ms) and len(entries):
            self._times.append(key, self._times.end(key), _TIME.pack(visible_ms, first_offset))
            self._visible_ms[key] = visible_ms

    def all_keys(self) -> list[QueueKey]:
        """(topic id, queue) of every queue that ever had a message and was not removed.
        A queue may have no folder.
        """
        return [(topic_id, queue) for topic_id, queue in self._entries.keys()]  # noqa: SIM118 - not a mapping

    def append_all(self, appends: QueueAppends, visible_ms: int) -> None:
        """Forward each queue of *appends* to `append`. Very many queues are gathered first.
        See gathered_appends.py.
        """
        if len(appends) >= GATHER_QUEUES_MIN or self._gathered.rows:
            self._gathered.add(appends, visible_ms)
            if self._gathered.rows > GATHER_ROWS_MAX:
                self._hand_out()
            return
        for append in appends:
            self.append(append.topic_id, append.queue, append.first_offset, append.entries, visible_ms)

    def hand_out_some(self) -> None:
        """Hand out some gathered appends to their queues, 2 ms of work; called every few ms."""
        if self._gathered.rows:
            self._hand_out(HANDED_OUT_ROWS)

    @property
    def _entries(self) -> RowFiles:
        if self._gathered.rows:
            self._hand_out()
        return self._entry_rows

    @property
    def _times(self) -> RowFiles:
        if self._gathered.rows:
            self._hand_out()
        return self._time_rows

    def _hand_out(self, rows: int | None = None) -> None:
        for share in self._gathered.take(self._gathered.rows if rows is None else rows):
            key, times = share.key, share.times
            self._entry_rows.append(key, share.first, share.entries)
            before_ms = self._visible_ms.get(key)
            while before_ms is not None and times and _TIME.unpack_from(times)[0] <= before_ms:
                times = times[_TIME.size :]
            if times:
                self._time_rows.append(key, self._time_rows.end(key), times)
                self._visible_ms[key] = share.last_ms

    def end(self, topic_id: int, queue: int) -> int:
        """The next message's offset."""
        return self._entries.end((topic_id, queue))

    def min(self, topic_id: int, queue: int) -> int:
        """The first kept offset, or the end if none is kept."""
        return self._entries.first((topic_id, queue))

    def read(self, topic_id: int, queue: int, offset: int, count: int) -> QueueEntries:
        """A copy of up to *count* entries from *offset* on, none below the queue's min.
        DerivedDamage.
        """
        return np.frombuffer(bytearray(self._entries.read((topic_id, queue), offset, count)), QUEUE_ENTRIES)

    def offset_at(self, topic_id: int, queue: int, visible_ms: int) -> int:
        """The first offset with a visible time of at least *visible_ms*.
        The min if all have one, the end if none has.
        """
        key = (topic_id, queue)
        row = self._bisect(key, VISIBLE_MS, visible_ms)
        if row == self._times.end(key):
            return self._entries.end(key)
        return max(self._entries.first(key), self._time(key, row)[1])

    def visible_at(self, topic_id: int, queue: int, offset: int) -> int:
        """The visible time, in ms, of an offset of [min, end); StoreError for any other."""
        key = (topic_id, queue)
        if not self._entries.first(key) <= offset < self._entries.end(key):
            raise StoreError(f"queue {topic_id}/{queue} has no offset {offset}")
        return self._time(key, self._bisect(key, FIRST_OFFSET, offset + 1) - 1)[0]

    def trim(self, topic_id: int, queue: int, min_offset: int) -> None:
        """Drop entries below *min_offset* and their times. StoreError behind the end."""
        key = (topic_id, queue)
        self._entries.trim(key, min_offset)
        if self._times.end(key):
            self._times.trim(key, max(self._times.first(key), self._bisect(key, FIRST_OFFSET, min_offset + 1) - 1))

    def remove(self, topic_id: int, queue: int) -> None:
        """Remove the queue; one added later begins anew."""
        key = (topic_id, queue)
        self._entries.remove(key)
        self._times.remove(key)
        self._visible_ms.pop(key, None)

    # Saved states ---------------------------------------------------------------------------------
    def flush(self) -> SyncJob:
        """Write tails if few wait. Durable here: when the job has run.
        OSError (ENOSPC): unwritten rows stay in memory.
        """
        # Before any job is taken: if the second write failed, the first job would be lost.
        self._entries.write_out()
        self._times.write_out()
        entries, times = self._entries.flush(), self._times.flush()
        return SyncJob(
            files=entries.files,
            paths=entries.paths + times.paths,
            directories=tuple(dict.fromkeys(entries.directories + times.directories)),
        )

    def marks(self) -> list[Any]:
        """The data for `restore`, valid right after `flush`.
        About 40 bytes a queue in MessagePack, and the unwritten rows.
        """
        return [self._entries.marks(), self._times.marks()]

    def saved(self) -> None:
        """Unlink files that neither the durable state of the last flush nor the one before
        needs.
        """
        self._entries.saved()
        self._times.saved()

    def restore(self, marks: list[Any]) -> None:
        """Restore *marks* and forget later rows, which the log's tail yields again.
        DerivedDamage: there are no queues then.
        """
        entries, times = marks
        self._gathered.clear()
        self._visible_ms = {}
        self._entries.restore(entries)
        try:
            self._times.restore(times)
            for topic_id, queue, *_ in times[1]:
                last = self._times.end((topic_id, queue)) - 1
                self._visible_ms[topic_id, queue] = self._time((topic_id, queue), last)[0]
        except DerivedDamage:
            self.close()
            raise

    def wipe(self) -> None:
        """Remove every file; the owner derives all queues again."""
        self._gathered.clear()
        self._visible_ms = {}
        self._entries.wipe()
        self._times.wipe()

    def verify(self) -> Iterator[Checked | DerivedDamage]:
        """Read everything on disk once, in steps. Damage is yielded, never raised."""
        return chain(self._entries.verify(), self._times.verify())

    def close_files(self) -> None:
        """Close all open files. The next write or read opens its own again."""
        self._entries.close_files()
        self._times.close_files()

    def close(self) -> None:
        """Close the files; the log has the rows that were not flushed."""
        self._gathered.clear()
        self._visible_ms = {}
        self._entries.close()
        self._times.close()

    # Times ----------------------------------------------------------------------------------------
    def _time(self, key: QueueKey, row: int) -> tuple[int, int]:
        visible_ms, offset = _TIME.unpack(self._times.read(key, row, 1))
        return visible_ms, offset

    def _bisect(self, key: QueueKey, column: int, value: int) -> int:
        """The first row of times with *column* at or above *value*; the end if there is none."""
        low, high = self._times.first(key), self._times.end(key)
        while high - low > _BISECT_ROWS:
            middle = (low + high) // 2
            if self._time(key, middle)[column] < value:
                low = middle + 1
            else:
                high = middle
        rows = np.frombuffer(self._times.read(key, low, high - low), ">i8").reshape(-1, 2)
        return low + int(np.searchsorted(rows[:, column].astype(np.int64), value))
