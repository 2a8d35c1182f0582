"""The replicated log of a broker group, which is also its commit log: append, read, cut, sync, recover.

Law: the bytes of an entry, and where it lies, are the same on every node. An entry is written where the log ends, or at the start
of the next segment if it and a filler do not fit. What is cut is zeroed durably before anything else is written, so a stale entry
never comes back; what is neither an entry nor explained by a crash is rot (`recovery.py`).
"""

from collections.abc import Sequence
from pathlib import Path

from tern_store.entry import (
    BLANK,
    BLANK_MAGIC,
    BLANK_SIZE_BYTES,
    ORIGIN,
    EntryKind,
    LogMark,
    StoredEntry,
    encode_entry,
    entry_size,
    stored,
    verify,
)
from tern_store.entry_index import EntryIndex, IndexRow
from tern_store.errors import EntryRefused, LogRot, StateCorrupt, StoreError
from tern_store.files import REAL_FILES, Buffer, Files
from tern_store.genesis import Genesis
from tern_store.genesis_file import begin_log, read_genesis
from tern_store.recent import RecentEntries
from tern_store.recovery import LogScan
from tern_store.segment import Segments, SpareJob, segment_bases
from tern_store.sync_job import SyncJob

LOG_FOLDER = "commitlog"
INDEX_FOLDER = "entryindex"
# One coalesced read; bounds the memory of a read that spans many neighbouring records.
READ_SIZE_MAX_BYTES = 8 << 20


class CommitLog:
    """One log, from its genesis to its end. Owner: one thread; only `SyncJob.run` and `SpareJob.run` may run elsewhere."""

    def __init__(self, segments: Segments, index: EntryIndex, files: Files, limits: tuple[int, int]) -> None:
        """Use `open`. *limits*: largest entry, memory for recent entries; bytes."""
        entry_size_max_bytes, recent_max_bytes = limits
        self._segments, self._index, self._files = segments, index, files
        self._entry_size_max_bytes = min(entry_size_max_bytes, segments.size_bytes - BLANK_SIZE_BYTES)
        self._recent = RecentEntries(recent_max_bytes)
        self._end = ORIGIN
        self._synced_index = 0
        self._cuts = 0
        # Descriptor -> number of its last write; a job makes clean only what was not written again since.
        self._dirty: dict[int, int] = {}
        self._write_count = 0
        self._jobs: set[SyncJob] = set()
        self._retired: list[int] = []
        self._is_broken = False
        self.was_created = False
        self.was_torn = False

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        group: Genesis,
        segment_size_bytes: int | None = None,
        entry_size_max_bytes: int = 5 << 20,
        recent_max_bytes: int = 32 << 20,
        start: LogMark | None = None,
        files: Files = REAL_FILES,
    ) -> "CommitLog":
        """Recover the log in *directory*, or begin it with *group*.

        Scans the entries behind *start* (None: all). Everything kept is durable when this returns; nothing is synced before.
        A new log's segments have *segment_size_bytes* (which must agree with *group*); an old one keeps its own.
        Afterwards `was_created` says that there was no log, `was_torn` that a torn tail was cut.
        Raises WrongGroup, LogRot, or StateCorrupt if *start* is not a point of this log; what the log holds is then unchanged.
        """
        if segment_size_bytes not in (None, group.segment_size_bytes):
            raise ValueError(f"segments of {segment_size_bytes} bytes, but the group has {group.segment_size_bytes}")
        folder = directory / LOG_FOLDER
        was_created = not segment_bases(folder, files)
        if was_created:
            if start is not None:
                raise StateCorrupt(f"{directory} has a saved state at entry {start.index}, but no log")
            begin_log(folder, group, files)
        segments = Segments(folder, read_genesis(folder, group, files).segment_size_bytes, files)
        index = EntryIndex(directory / INDEX_FOLDER, files)
        log = cls(segments, index, files, (entry_size_max_bytes, recent_max_bytes))
        log.was_created = was_created
        try:
            segments.load()
            log._recover(start)
        except BaseException:
            index.abandon()
            segments.close()
            raise
        return log

    # Where it ends ---------------------------------------------------------------------------------------------
    @property
    def first_index(self) -> int:
        """The genesis entry."""
        return 1

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
        """Where the last entry ends; the next begins here or in the next segment."""
        return self._end.position

    @property
    def end_crc(self) -> int:
        """The last entry's checksum, which the next entry repeats."""
        return self._end.crc

    @property
    def synced_index(self) -> int:
        """Everything up to this entry is durable on this node."""
        return self._synced_index

    @property
    def segment_size_bytes(self) -> int:
        """As the genesis says, whatever the settings say."""
        return self._segments.size_bytes

    # Append ----------------------------------------------------------------------------------------------------
    def append(self, kind: EntryKind, index: int, term: int, parts: Sequence[Buffer], version: int) -> StoredEntry:
        """Build the next entry and write it to the page cache. EntryRefused, or OSError (ENOSPC): nothing has changed."""
        size = entry_size(parts)
        self._require_next(index, term, size)
        position = self._position_of(size)
        entry = encode_entry(kind, index, term, parts, version, position=position, previous_crc=self._end.crc)
        self._write(entry)
        return entry

    def append_stored(self, raw: bytes) -> StoredEntry:
        """Write an entry that the leader built, verbatim. EntryRefused unless it is exactly what continues this log."""
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
        entry = stored(header, raw)
        self._write(entry)
        return entry

    # Read ------------------------------------------------------------------------------------------------------
    def term_at(self, index: int) -> int:
        """The term of entry *index*; IndexError outside the log."""
        recent = self._recent.find(index)
        return recent.term if recent is not None else self._row(index).term

    def mark(self, index: int) -> LogMark:
        """The point behind entry *index*; IndexError outside the log."""
        recent = self._recent.find(index)
        return recent.mark if recent is not None else self._row(index).mark

    def entry(self, index: int) -> StoredEntry:
        """Entry *index*, from memory or verified from the file; IndexError outside the log, LogRot if it went bad."""
        recent = self._recent.find(index)
        if recent is not None:
            return recent
        row = self._row(index)
        raw = self._segments.read(row.position, row.size)
        try:
            header = verify(raw)
        except EntryRefused as refused:
            raise self._rot(row.position, refused.reason) from refused
        if header.mark != row.mark or header.position != row.position:
            raise self._rot(row.position, f"entry {index} was expected, entry {header.index} is there")
        return stored(header, raw)

    def read(self, position: int, size: int) -> bytes:
        """*size* bytes at *position*, which lie within one entry; not verified."""
        if position < 0 or position + size > self._end.position:
            raise StoreError(
                f"bytes {position} to {position + size} are not in the log, which ends at {self._end.position}"
            )
        return self._segments.read(position, size)

    def read_many(self, spans: list[tuple[int, int]]) -> list[bytes]:
        """As `read` for each (position, size); neighbours in the list that are neighbours in the log cost one read."""
        found: list[bytes] = []
        first = 0
        while first < len(spans):
            start, size = spans[first]
            stop, last = start + size, first + 1
            segment_end = (start // self._segments.size_bytes + 1) * self._segments.size_bytes
            while last < len(spans) and spans[last][0] == stop and stop < segment_end:
                if stop + spans[last][1] - start > READ_SIZE_MAX_BYTES:
                    break
                stop += spans[last][1]
                last += 1
            data = self.read(start, stop - start)
            if last == first + 1:
                found.append(data)
            else:
                found += [data[at - start : at - start + size] for at, size in spans[first:last]]
            first = last
        return found

    # Cut and sync ----------------------------------------------------------------------------------------------
    def truncate_from(self, index: int) -> None:
        """Durable here: entry *index* and all behind it are gone, and everything before it is synced."""
        if index > self._end.index:
            return
        if index <= self.first_index:
            raise StoreError("the genesis entry cannot be cut: a log belongs to one group for ever")
        end = self.mark(index - 1)
        self._require_sound()
        self._is_broken = True  # until the disk says otherwise
        self._end = end
        self._recent.cut(index)
        self._erase()
        self._index.cut(end.index)
        for fd in self._dirty:
            self._files.fdatasync(fd)
        self._dirty.clear()
        self._cuts += 1
        self._synced_index = end.index
        self._is_broken = False

    def take_sync(self) -> SyncJob | None:
        """What must be synced to make everything up to `end_index` durable, or None if it is already."""
        if self._synced_index == self._end.index:
            return None
        job = SyncJob(
            files=self._files,
            fds=tuple(self._dirty),
            end_index=self._end.index,
            cuts=self._cuts,
            writes=tuple(self._dirty.items()),
        )
        self._jobs.add(job)
        return job

    def mark_synced(self, job: SyncJob) -> None:
        """Durable here: *job* has run without an error."""
        self._jobs.discard(job)
        for fd, write in job.writes:
            if self._dirty.get(fd) == write:
                del self._dirty[fd]
        if job.cuts == self._cuts:  # a job from before a cut promises entries that may be others by now
            self._synced_index = max(self._synced_index, job.end_index)
        self._close_retired()

    def preallocate_next(self) -> SpareJob | None:
        """The allocation of the next segment, to be run on another thread and then noted; None if it is there."""
        return self._segments.spare_job()

    def mark_preallocated(self, _job: SpareJob) -> None:
        """The job has run: the next roll is a rename."""
        self._segments.spare_made()

    def close(self) -> None:
        """Close the files. Syncs nothing: what was not synced may be lost with the machine, not with the process."""
        self._index.close()
        self._jobs.clear()
        self._close_retired()
        self._segments.close()

    # Below -----------------------------------------------------------------------------------------------------
    def _require_next(self, index: int, term: int, size: int) -> None:
        self._require_sound()
        if index != self._end.index + 1:
            raise EntryRefused(f"entry {index} does not follow entry {self._end.index}")
        if term < self._end.term:
            raise EntryRefused(f"entry {index} is of term {term}, the one before it of term {self._end.term}")
        if size > self._entry_size_max_bytes:
            raise EntryRefused(f"entry {index} has {size} bytes, at most {self._entry_size_max_bytes} are allowed")

    def _require_sound(self) -> None:
        if self._is_broken:
            raise StoreError("an earlier write to the log failed and could not be undone; restart this node")

    def _segment_end(self) -> int:
        # An entry never ends with its segment: there is always room for a filler behind it.
        return (self._end.position // self._segments.size_bytes + 1) * self._segments.size_bytes

    def _position_of(self, size: int) -> int:
        segment_end = self._segment_end()
        fits = self._end.position + size + BLANK_SIZE_BYTES <= segment_end
        return self._end.position if fits else segment_end

    def _write(self, entry: StoredEntry) -> None:
        if entry.position != self._end.position:
            self._segments.require(entry.position)
        try:
            if entry.position != self._end.position:
                filler = BLANK.pack(BLANK_MAGIC, entry.position - self._end.position)
                self._put(filler, self._end.position)
            self._put(entry.raw, entry.position)
        except OSError:
            # Half an entry must not stay behind the end: a shorter one would be written before it.
            self._is_broken = True
            self._erase()
            self._is_broken = False
            raise
        self._end = entry.mark
        self._index.put(entry.index, entry.position, entry.term, len(entry.raw), entry.crc)
        self._recent.add(entry)

    def _put(self, data: Buffer, position: int) -> None:
        self._write_count += 1
        segment = self._segments.write(data, position)
        self._dirty[segment.fd] = self._write_count

    def _erase(self) -> None:
        retired = self._segments.erase_behind(self._end.position)
        for fd in retired:
            self._dirty.pop(fd, None)
        self._retired += retired
        self._close_retired()

    def _close_retired(self) -> None:
        # A job that runs on another thread may still hold a descriptor; its number must not be given away.
        if not self._jobs:
            while self._retired:
                self._files.close(self._retired.pop())

    def _row(self, index: int) -> IndexRow:
        if not self.first_index <= index <= self._end.index:
            raise IndexError(f"entry {index} is not in the log, which ends with {self._end.index}")
        row = self._index.find(index) or self._find_again(index)
        if row is None:
            raise self._rot(self._end.position, f"entry {index} cannot be reached from the entries before it")
        return row

    def _find_again(self, index: int) -> IndexRow | None:
        """Write lost rows again, from the last good one before *index*; None if the log does not reach *index*."""
        known = min(index - 1, self._index.count)
        while known and self._index.find(known) is None:
            known -= 1
        row = self._index.find(known) if known else None
        for header in LogScan(self._segments, row.mark if row is not None else ORIGIN, self._entry_size_max_bytes):
            self._index.put_header(header)
            if header.index == index:
                return self._index.find(index)
        return None

    def _recover(self, start: LogMark | None) -> None:
        if start is not None and start != ORIGIN:
            self._require_in_log(start)
        scan = LogScan(self._segments, start or ORIGIN, self._entry_size_max_bytes)
        self._index.cut(scan.end.index)
        for header in scan:
            self._index.put_header(header)
        self._end, self.was_torn = scan.end, scan.torn
        self._erase()
        self._segments.sync()
        self._synced_index = self._end.index

    def _require_in_log(self, start: LogMark) -> None:
        self._end = start
        row = self._index.find(start.index) or self._find_again(start.index)
        try:
            is_there = row is not None and row.mark == start and self.entry(start.index).mark == start
        except LogRot:  # the scan from an older point decides whether it is rot or a lost tail
            is_there = False
        if not is_there:
            raise StateCorrupt(f"the saved state at entry {start.index} is not of this log, or the log ends before it")

    def _rot(self, position: int, reason: str) -> LogRot:
        segment = self._segments.at(position)
        return LogRot(segment.path if segment is not None else self._segments.directory, position, reason)
