"""The replicated log of a broker group, also its commit log: append, read, cut, sync, recover.

Law: the bytes and the position of an entry are the same on every node. An entry is written at the
log's end, or at the start of the next segment if it and a filler do not fit. Cut entries are zeroed
durably before the next write, so a stale entry never reappears. Bytes that are no entry and that no
crash explains are rot (`recovery.py`).

Unless a log is *pipelined*, an entry is written when the disk has all entries before it: at most
one entry is unsynced, so a tear is the last thing in the log. In a pipelined log each entry records
how many entries before it were not synced. An entry in a later segment was written when the
segments before it were synced.

The file is one thing: every operation that may change the log's end or its durable part, which have
one owner.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern_store.checking import Checked
from tern_store.errors import EntryRefused, LogRot, StateCorrupt, StoreError, SyncLost
from tern_store.files import REAL_FILES, Buffer, Files, is_done
from tern_store.log.dirty_segments import DirtySegments
from tern_store.log.entry import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE_BYTES,
    HEADER_SIZE_BYTES,
    ORIGIN,
    URGENT,
    EntryKind,
    LogMark,
    StoredEntry,
    encode_entry,
    entry_size,
    head_with,
    stored,
    verify,
)
from tern_store.log.entry_index import EntryIndex, IndexRow
from tern_store.log.entry_places import EntryPlaces
from tern_store.log.genesis import Genesis
from tern_store.log.genesis_file import begin_log, read_genesis
from tern_store.log.log_reader import LogReader
from tern_store.log.log_start import LogStart, TrimJob, has_log, read_start
from tern_store.log.recent import RecentEntries
from tern_store.log.recovery import verify_log
from tern_store.log.segment import RestJob, Segments, SpareJob
from tern_store.log.sync_job import SyncJob

LOG_FOLDER = "commitlog"
INDEX_FOLDER = "entryindex"


class CommitLog:
    """One log, from start to end. Owner: one thread; only `run` of its jobs may run elsewhere."""

    def __init__(
        self, segments: Segments, index: EntryIndex, files: Files, limits: tuple[int, int], start: LogStart
    ) -> None:
        """Use `open`. *limits*: bytes of the largest entry, bytes of memory for recent entries."""
        self._start = start
        entry_size_max_bytes, recent_max_bytes = limits
        self._segments, self._files = segments, files
        self._entry_size_max_bytes = min(entry_size_max_bytes, segments.size_bytes - BLANK_SIZE_BYTES)
        self._places = EntryPlaces(index, segments, start.mark, self._entry_size_max_bytes)
        self._dirty = DirtySegments(files)
        self._recent = new = RecentEntries(recent_max_bytes)
        self._end = start.mark
        # Entries of kind PASS_OVER behind the point where `open` began to scan, in order. They
        # decide whether earlier entries are applied.
        self.pass_overs: list[StoredEntry] = []
        self._synced_index = self._cuts = 0
        self._is_pipelined = False
        # Why nothing may be written any more; empty while the log is sound.
        self._broken = ""
        # Work left by a refused write, to be done before the next write.
        self._undo: Callable[[], None] | None = None
        ends = lambda: (self.first_index, self._end.index)  # noqa: E731 (one line for one thought)
        self._reader = LogReader(segments, row=self._row, begin=index.position, bounds=ends, recent=new.find_position)
        self.was_torn = False

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        group: Genesis,
        entry_size_max_bytes: int = 5 << 20,
        recent_max_bytes: int = 32 << 20,
        start: LogMark | None = None,
        on_tear: Callable[[], None] = lambda: None,
        files: Files = REAL_FILES,
    ) -> "CommitLog":
        """Recover the log in *directory*, or begin it with *group*.
        *on_tear* is called before a torn entry is cut; `was_torn` is then True. In a group of
        several nodes an append does not wait until the disk has the entry before it. Scans the
        entries behind *start* (None: all). When this returns, every kept entry is durable; nothing
        is synced before. A new log's segments have the size in *group*; an existing log keeps its
        own.

        Raises WrongGroup, LogRot, or StateCorrupt if *start* lies before this log; the log's files
        are then unchanged.
        """
        folder = directory / LOG_FOLDER
        log_start = read_start(folder, files)
        if not has_log(folder, files):
            if start is not None:
                raise LogRot(folder, start.position, f"there is a saved state at entry {start.index}, but no log")
            begin_log(folder, group, files)
        found, genesis = read_genesis(folder, log_start, files)
        group.require_same_group(found, folder)
        log_start = log_start or LogStart(ORIGIN, genesis)
        segments = Segments(folder, found.segment_size_bytes, files, first_position=log_start.mark.position)
        index = EntryIndex(directory / INDEX_FOLDER, files)
        log = cls(segments, index, files, (entry_size_max_bytes, recent_max_bytes), log_start)
        try:
            segments.load()
            log._recover(start, on_tear)
            log._is_pipelined = len(group.members) > 1
        except BaseException:
            log._places.abandon()
            segments.close()
            raise
        return log

    # Bounds ---------------------------------------------------------------------------------------
    @property
    def first_index(self) -> int:
        """The oldest kept entry; 1, the genesis, unless retention has dropped entries."""
        return self._start.mark.index + 1

    @property
    def start(self) -> LogMark:
        """The point before the first entry; its position is the begin of the first segment."""
        return self._start.mark

    @property
    def end_index(self) -> int:
        """The last entry's index."""
        return self._end.index

    @property
    def end_term(self) -> int:
        """The last entry's term."""
        return self._end.term

    @property
    def end_position(self) -> int:
        """The end of the last entry; the next entry begins here or in the next segment."""
        return self._end.position

    @property
    def synced_index(self) -> int:
        """Entries up to this index are durable on this node."""
        return self._synced_index

    @property
    def segment_size_bytes(self) -> int:
        """Segment size from the genesis, whatever the settings are."""
        return self._segments.size_bytes

    @property
    def segment_bases(self) -> list[int]:
        """Begin positions of the segments, ascending."""
        return self._segments.bases

    @property
    def is_on_reserve(self) -> bool:
        """Whether the emergency segment of a full disk is in use: only urgent entries fit."""
        return self._segments.last.is_partial

    # Append ---------------------------------------------------------------------------------------
    def append(
        self,
        kind: EntryKind,
        index: int,
        term: int,
        parts: Sequence[Buffer],
        version: int,
        *,
        urgent: bool = False,
    ) -> StoredEntry:
        """Build the next entry and write it to the page cache.
        EntryRefused or OSError (ENOSPC): nothing has changed. *urgent* entries store no message and
        may use the emergency segment.
        """
        size = entry_size(parts)
        self._require_next(index, term, size)
        position = self._position_of(size)
        place = {"position": position, "previous_crc": self._end.crc, "flags": URGENT if urgent else 0}
        entry = encode_entry(kind, index, term, parts, version, unsynced=self._count_unsynced(), **place)
        self._write(entry, urgent=urgent)
        return entry

    def append_stored(self, raw: bytes) -> StoredEntry:
        """Write an entry built by the leader, with this node's own count of unsynced entries.
        EntryRefused unless the entry continues this log exactly.
        """
        header = verify(raw)
        self._require_next(header.index, header.term, header.size)
        if header.previous_crc != self._end.crc:
            raise EntryRefused(
                f"entry {header.index} follows an entry with checksum {header.previous_crc:08x}, ours has {self._end.crc:08x}"
            )
        if header.position != (position := self._position_of(header.size)):
            raise EntryRefused(
                f"entry {header.index} lies at {header.position} in the leader's log, at {position} in ours"
            )
        if header.unsynced != (unsynced := self._count_unsynced()):
            raw = b"".join((head_with(raw, header, unsynced), memoryview(raw)[HEADER_SIZE_BYTES:]))
        entry = stored(header, raw)
        self._write(entry, urgent=bool(header.flags & URGENT))
        return entry

    # Read -----------------------------------------------------------------------------------------
    def term_at(self, index: int) -> int:
        """The term of entry *index*, the last dropped one included; IndexError outside the log."""
        if index == self._start.mark.index and index:
            return self._start.mark.term
        recent = self._recent.find(index)
        return recent.term if recent is not None else self._row(index).term

    def mark(self, index: int) -> LogMark:
        """The point behind entry *index*; IndexError outside the log."""
        recent = self._recent.find(index)
        return recent.mark if recent is not None else self._row(index).mark

    def entry(self, index: int) -> StoredEntry:
        """Entry *index*, from memory or verified from the file.
        IndexError outside the log, LogRot if the entry is damaged.
        """
        recent = self._recent.find(index)
        if recent is not None:
            return recent
        return self._reader.entry(self._row(index))

    def read_records(self, positions: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> memoryview:
        """Concatenate the bytes at *positions*, *sizes* each, verified; shapes (n,).
        LogRot if an entry is damaged; StoreError for a range that is not within one entry of the
        log.
        """
        return self._reader.read(positions, sizes)

    def distrust(self) -> None:
        """Verify later reads again: pages dropped from the cache may come back from the disk
        damaged.
        """
        self._reader.distrust()

    def verify(self) -> Iterator[Checked | LogRot]:
        """Read the whole log again, about 1 MiB a step. A cut or a trim ends the generator early.
        The owner may continue its work between steps.
        """
        cuts, start = self._cuts, self._start
        span = (self._segments, start.mark, self._end, self._entry_size_max_bytes)
        return verify_log(*span, lambda: (self._cuts, self._start) == (cuts, start))

    def forget_pass_overs(self, index: int) -> None:
        """Drop the noted PASS_OVER entries up to entry *index*, whose effect is applied."""
        self.pass_overs = [entry for entry in self.pass_overs if entry.index > index]

    # Cut and sync ---------------------------------------------------------------------------------
    def truncate_from(self, index: int) -> None:
        """Durable here: entry *index* and all behind it are gone, and everything before it is
        synced.
        OSError other than SyncLost: readers no longer see the entries, and the next write first
        repeats the removal from the disk.
        """
        if index > self._end.index:
            return
        if index <= self.first_index:
            raise StoreError(f"entry {index} is the first of the log, and never cut: a log is one group's for ever")
        end = self.mark(index - 1)
        places = [self._row(at).position for at in range(index, self._end.index + 1)]
        self.require_sound()
        self._undo_now()
        self._end = end
        self._recent.cut(index)
        self.pass_overs = [entry for entry in self.pass_overs if entry.index < index]
        self._reader.forget()
        self._cuts += 1
        self._synced_index = min(self._synced_index, end.index)
        self._undo = lambda: self._finish_cut(places)
        self._undo_now()

    def _finish_cut(self, places: list[int]) -> None:
        self._erase_backwards(places)
        self._places.cut(self._end.index)
        self._sync_now()

    def take_sync(self) -> SyncJob | None:
        """The job that makes entries up to `end_index` durable, None if they are."""
        if self._synced_index == self._end.index:
            return None
        return self._dirty.take_job(self._end.index, self._cuts)

    def mark_synced(self, job: SyncJob) -> None:
        """Durable here: *job* has run without an error."""
        if job.cuts == self._cuts:  # a job from before a cut covers entries that may since have been replaced
            self._synced_index = max(self._synced_index, job.end_index)
        self._dirty.job_done(job)

    def fail(self, error: SyncLost) -> None:
        """Refuse all writes after a failed sync: the kernel may have dropped written data."""
        lost = "what was written since the last one may be lost although it can still be read"
        self._broken = f"a sync of the log failed ({error.strerror}): {lost}. This node must be rebuilt from a peer"

    # Retention ------------------------------------------------------------------------------------
    def trim(self, last: LogMark) -> TrimJob | None:
        """Drop segments without entries behind *last*, an entry's end; None if there are none.
        Readers lose the segments at once. Run the returned job, then call `mark_trimmed`.
        """
        self.require_sound()
        following = self._row(last.index + 1) if last.index < self._end.index else None
        if following is None or self.mark(last.index) != last:
            raise StoreError(f"the log cannot begin behind entry {last.index}, it ends with {self._end.index}")
        first = following.position // self._segments.size_bytes * self._segments.size_bytes
        if first != following.position or first <= self._start.mark.position:
            return None
        self._start = LogStart(LogMark(last.index, first, last.crc, last.term), self._start.genesis)
        dropped = self._segments.drop_before(first)
        self._dirty.forget([segment.fd for segment in dropped])
        self._reader.forget()
        return TrimJob(files=self._files, folder=self._segments.directory, start=self._start, segments=tuple(dropped))

    def mark_trimmed(self, job: TrimJob) -> None:
        """Record that the job has run."""
        self._dirty.retire([segment.fd for segment in job.segments])
        self._places.begin(self._start.mark)

    # Space ----------------------------------------------------------------------------------------
    def preallocate_next(self) -> SpareJob | None:
        """The job that allocates the next segment on another thread; None if it is allocated."""
        return self._segments.spare_job()

    def preallocate_reserve(self) -> SpareJob | RestJob | None:
        """The job that allocates the emergency segment, or its missing rest while it is in use."""
        return self._segments.rest_job() or self._segments.reserve_job()

    def give_up_reserve(self) -> bool:
        """Free the emergency segment's space, if any; it is allocated again when there is room."""
        return self._segments.give_up_reserve()

    def mark_preallocated(self, job: SpareJob | RestJob) -> None:
        """Record that the job has run: the file or the room that it made can be used."""
        self._segments.made(job)

    def close(self) -> None:
        """Close the files. Nothing is synced: a power cut may lose unsynced data."""
        self._places.close()
        self._dirty.close()
        self._segments.close()

    # Below ----------------------------------------------------------------------------------------
    def _require_next(self, index: int, term: int, size: int) -> None:
        self.require_sound()
        if index != self._end.index + 1:
            raise EntryRefused(f"entry {index} does not follow entry {self._end.index}")
        if term < self._end.term:
            raise EntryRefused(f"entry {index} is of term {term}, the one before it of term {self._end.term}")
        if size > self._entry_size_max_bytes:
            raise EntryRefused(f"entry {index} has {size} bytes, at most {self._entry_size_max_bytes} are allowed")

    def require_sound(self) -> None:
        """Raise StoreError, with the reason, if a sync failed before."""
        if self._broken:
            raise StoreError(self._broken)

    def _segment_end(self) -> int:
        # An entry never ends with its segment: a filler always fits behind it.
        return (self._end.position // self._segments.size_bytes + 1) * self._segments.size_bytes

    def _position_of(self, size: int) -> int:
        segment_end = self._segment_end()
        fits = self._end.position + size + BLANK_SIZE_BYTES <= segment_end
        return self._end.position if fits else segment_end

    def _write(self, entry: StoredEntry, *, urgent: bool) -> None:
        self._undo_now()
        self._segments.require(entry.position, urgent=urgent)
        if entry.position != self._end.position:
            self._put(BLANK.pack(BLANK_MAGIC, entry.position - self._end.position), self._end.position)
            # Every entry in the next segment then proves that this segment was complete.
            self._sync_now()
        elif not self._is_pipelined and self._synced_index < self._end.index:
            self._sync_now()
        self._put(entry.raw, entry.position)
        self._end = entry.mark
        self._places.put(entry.index, entry.position, entry.term, len(entry.raw), entry.crc)
        self._recent.add(entry)
        if entry.kind is EntryKind.PASS_OVER:
            self.pass_overs.append(entry)

    def _put(self, data: Buffer, position: int) -> None:
        try:
            self._dirty.written(self._segments.write(data, position).fd)
        except SyncLost as error:
            self.fail(error)
            raise
        except OSError:
            # Half an entry must not stay behind the end: a shorter entry would be written over its
            # begin.
            self._undo = self._erase
            is_done(self._undo_now)  # if this is refused for the same reason, it is the first step of the next write
            raise

    def _undo_now(self) -> None:
        if (undo := self._undo) is not None:
            try:
                undo()
            except SyncLost as error:
                self.fail(error)
                raise
            self._undo = None

    def _count_unsynced(self) -> int:
        """Entries before the next one that the disk will not have when the next one is written."""
        return self._end.index - self._synced_index if self._is_pipelined else 0

    def _sync_now(self) -> None:
        """Durable here: everything written so far."""
        try:
            self._dirty.sync_now()
        except SyncLost as error:
            self.fail(error)
            raise
        self._synced_index = self._end.index

    def _erase(self) -> None:
        self._dirty.retire(self._segments.erase_behind(self._end.position))

    def _erase_backwards(self, places: list[int]) -> None:
        """Durable here: the entries at *places* are gone.
        They go last to first: an entry that is gone before a later one would be rot.
        """
        for position in places[:0:-1]:
            self._segments.erase_entry(position)
        if places[0] != self._end.position:
            self._segments.erase_entry(places[0])
        self._erase()

    def _row(self, index: int) -> IndexRow:
        if not self.first_index <= index <= self._end.index:
            raise IndexError(f"entry {index} is not in the log, which ends with {self._end.index}")
        row = self._places.find(index)
        if row is None:
            raise LogRot(
                self._segments.last.path,
                self._end.position,
                f"entry {index} cannot be reached from the entries before it",
            )
        return row

    def _recover(self, start: LogMark | None, on_tear: Callable[[], None]) -> None:
        self._places.begin(self._start.mark)
        if start is not None and start.index == self._start.mark.index:
            start = None  # a state of the point where the log begins
        if start is not None and start.index < self._start.mark.index:
            raise StateCorrupt(f"the saved state at entry {start.index} is older than the log")
        if start is not None:
            self._require_in_log(start)
        scan = self._places.scan(start or self._start.mark)
        self._end, self.was_torn = scan.end, scan.torn
        if scan.torn:
            on_tear()
        self._erase()
        self._segments.rewrite((start or self._start.mark).position, self._end.position)
        self._segments.sync()
        self._synced_index = self._end.index
        self.pass_overs = [self.entry(index) for index in self._places.pass_overs]

    def _require_in_log(self, start: LogMark) -> None:
        """Raise LogRot if the log lacks the entry of a saved state.
        A state is saved after its entries are synced and covers none that may be cut.
        """
        self._end = start
        row = self._places.find(start.index)
        if row is None or row.mark != start or self.entry(start.index).mark != start:
            path = self._segments.last.path
            raise LogRot(path, start.position, f"entry {start.index}, of which a state was saved, is not there")
