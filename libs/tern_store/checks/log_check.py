"""Offline check of a commit log: every segment, every entry, and no bytes behind the last one.

Law: nothing is changed, and `recovery.py` alone tells a crash from rot. Behind damage the check
continues at the next entry with an intact row in the entry index: the row has the checksum that the
following entry must repeat.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tern_store.checks.entry_index_check import EntryIndexCheck
from tern_store.checks.finding import FindingKind, Findings
from tern_store.errors import LogRot
from tern_store.files import Files
from tern_store.log.commit_log import INDEX_FOLDER, LOG_FOLDER
from tern_store.log.entry import BLANK_MAGIC, BLANK_SIZE_BYTES, ORIGIN, EntryHeader, LogMark
from tern_store.log.entry_index import EntryIndex
from tern_store.log.genesis import Genesis
from tern_store.log.genesis_file import read_genesis
from tern_store.log.log_start import START, LogStart, read_start
from tern_store.log.recovery import LogScan
from tern_store.log.segment import Segment, Segments, segment_bases

# Bytes of entries checked together, and of one span in memory unless one entry is larger.
SPAN_SIZE_BYTES = 4 << 20
# The default of CommitLog.open.
ENTRY_SIZE_MAX_BYTES = 5 << 20
# A position behind every log.
BEHIND_ALL = (1 << 63) - 1
_CHUNK_SIZE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Adjacent intact entries: their *headers*, and *data*, which begins at *position* of the
    log.
    """

    position: int
    data: bytes
    headers: list[EntryHeader]


class SegmentRun(Segments):
    """Adjacent segments, opened only for reading."""

    def load(self) -> None:
        """Open the segments from the first on, up to a gap."""
        bases = set(segment_bases(self.directory, self._files))
        while (base := (self._first + len(self._open)) * self.size_bytes) in bases:
            self._add(base)

    def segments(self) -> list[Segment]:
        """The segments, first to last."""
        return list(self._open)


class LogFiles:
    """The segments of one directory, gaps allowed. Owner: a check or a command."""

    def __init__(self, directory: Path, files: Files, on_rot: Callable[[LogRot], None]) -> None:
        """*files* must be read-only. *on_rot* receives damage of genesis, start or names."""
        self.folder, self._files = directory / LOG_FOLDER, files
        self.start, self.genesis = self._read_beginning(on_rot)
        bases = segment_bases(self.folder, files)
        self.segment_size_bytes = self.genesis.segment_size_bytes if self.genesis is not None else self._largest(bases)
        self.first = self.start.mark if self.start is not None else ORIGIN
        self.runs: list[SegmentRun] = []
        self.missing: set[int] = set()
        expected = self.first.position
        # Segments below the start are left by an interrupted retention.
        for base in (base for base in bases if base >= self.first.position and base % self.segment_size_bytes == 0):
            self.missing.update(range(expected, base, self.segment_size_bytes))
            if base != expected or not self.runs:
                self.runs.append(SegmentRun(self.folder, self.segment_size_bytes, files, first_position=base))
                self.runs[-1].load()
            expected = base + self.segment_size_bytes
        if not self.runs:
            self.missing.add(self.first.position)

    def scan(self, mark: LogMark) -> LogScan | None:
        """The entries behind *mark*; None where there is no segment."""
        limit = min(ENTRY_SIZE_MAX_BYTES, self.segment_size_bytes - BLANK_SIZE_BYTES)
        run = self.run_at(mark.position)
        return LogScan(run, mark, limit) if run is not None else None

    def spans(self, mark: LogMark, stop: int = BEHIND_ALL) -> Iterator[LogSpan]:
        """The entries behind *mark* that begin before *stop*, in order; LogRot where damaged."""
        scan = self.scan(mark)
        for headers in _batches(scan, stop) if scan is not None else ():
            yield self.span(headers)

    def run_at(self, position: int) -> SegmentRun | None:
        """The segments around *position*, which may be the end of one."""
        return next((run for run in self.runs if run.first_position <= position <= run.last.end), None)

    def read(self, position: int, size: int) -> bytes:
        """*size* bytes at *position*, within one segment; fewer where the files have no more."""
        run = self.run_at(position)
        return run.read(position, size) if run is not None else b""

    def span(self, headers: list[EntryHeader]) -> LogSpan:
        """The bytes of adjacent entries."""
        start, last = headers[0].position, headers[-1]
        return LogSpan(start, self.read(start, last.position + last.size - start), headers)

    def place(self, position: int) -> tuple[Path, int]:
        """The file of a log position, and the byte in it."""
        base = position // self.segment_size_bytes * self.segment_size_bytes
        return self.folder / f"{base:020d}", position - base

    def close(self) -> None:
        """Close the files."""
        for run in self.runs:
            run.close()

    def _read_beginning(self, on_rot: Callable[[LogRot], None]) -> tuple[LogStart | None, Genesis | None]:
        start = None
        try:
            start = read_start(self.folder, self._files)
            return start, read_genesis(self.folder, start, self._files)[0]
        except LogRot as rot:
            on_rot(rot)
        return start, None

    def _largest(self, bases: list[int]) -> int:
        """The segments' common size if the genesis is unreadable."""
        sizes = [1]
        for base in bases:
            fd = self._files.open(self.folder / f"{base:020d}")
            sizes.append(self._files.size(fd))
            self._files.close(fd)
        return max(sizes)


class LogCheck:
    """One pass over a log; `spans` yields intact entries.
    Afterwards `end` is the log's end, and `gaps` are the unreadable parts.
    """

    def __init__(
        self,
        directory: Path,
        files: Files,
        findings: Findings,
        *,
        durable_index: int,
        is_clean: bool,
        on_read: Callable[[int], None],
        is_copy: bool = False,
    ) -> None:
        """*durable_index*: the last entry that was certainly synced.
        *is_clean*: the node was stopped, not killed. *is_copy*: nothing is derived from this log
        yet, not even rows.
        """
        self._findings, self._files, self._on_read = findings, files, on_read
        self._durable_index, self._is_clean = durable_index, is_clean
        self.log = LogFiles(directory, files, lambda rot: self._add(rot.file, rot.position, rot.reason))
        self._index = EntryIndex(directory / INDEX_FOLDER, files)
        rows = EntryIndexCheck(directory / INDEX_FOLDER, self._index, files, findings, is_clean=is_clean)
        self._rows = None if is_copy else rows
        self.end = self.log.first
        self.gaps: list[tuple[int, int]] = []
        self._is_torn = False
        self._rot: LogRot | None = None

    def spans(self) -> Iterator[LogSpan]:
        """Every intact entry, in order, checked in its chain and against its row in the entry
        index.
        """
        self._check_segments()
        mark: LogMark | None = self.log.first
        while mark is not None:
            yield from self._scan(mark)
            mark = self._go_on()
            if mark is not None or self._rot is not None:
                self.gaps.append((self.end.position, mark.position if mark is not None else BEHIND_ALL))
        if self._rows is not None:
            self._rows.close(self.end.index)
        self._check_behind_end()

    def close(self) -> None:
        """Close the files."""
        self._index.abandon()
        self.log.close()

    # Entries --------------------------------------------------------------------------------------
    def _scan(self, mark: LogMark) -> Iterator[LogSpan]:
        """The intact entries from *mark* on; `end`, `_is_torn` and `_rot` then hold the reason of
        the end.
        """
        self.end, self._is_torn, self._rot = mark, False, None
        scan = self.log.scan(mark)
        if scan is None:
            self._rot = LogRot(self.log.place(mark.position)[0], mark.position, "the segment is missing")
            return
        try:
            position = mark.position
            for headers in _batches(scan):
                span = self.log.span(headers)
                self._check_filler(position, span.position)
                position = span.position + len(span.data)
                if self._rows is not None:
                    self._rows.check(headers)
                self._on_read(len(span.data))
                yield span
        except LogRot as rot:
            self._rot = rot
        self.end, self._is_torn = scan.end, scan.torn

    def _check_filler(self, end: int, start: int) -> None:
        """Check the filler between two entries that are not adjacent: only its header is not
        zero.
        """
        if start == end:
            return
        data = self.log.read(end + BLANK_SIZE_BYTES, start - end - BLANK_SIZE_BYTES) if start > end else b""
        self._on_read(len(data))
        if len(rest := data.lstrip(b"\0")):
            at = end + BLANK_SIZE_BYTES + len(data) - len(rest)
            self._add(*self.log.place(at), "a byte of the filler at the segment's end is not zero")

    def _go_on(self) -> LogMark | None:
        """Report why the scan ended; return where it continues, None at the log's end."""
        number = self.end.index + 1
        following = self._following()
        if self._rot is not None:
            if self._rot.position not in self.log.missing:
                reason = "" if following is not None else "; what lies behind it could not be checked"
                self._add(*self.log.place(self._rot.position), f"entry {number}: {self._rot.reason}{reason}")
            return following
        file, position = self.log.place(self._next_position())
        known = max(self._durable_index, following.index if following is not None and self._is_clean else 0)
        if known >= number:
            reason = "is damaged: zeros where its bytes should be" if self._is_torn else "and what follows it are zeros"
            self._add(file, position, f"entry {number} {reason}, but entry {known} was durable")
            return following
        if self._is_torn:
            reason = f"entry {number} was torn by a crash; it was never acknowledged, and the next start cuts it"
            if self._is_clean:
                reason = f"entry {number} is incomplete, but the node was stopped and had synced everything"
            self._add(file, position, reason, is_damage=self._is_clean)
        return None

    def _next_position(self) -> int:
        """Begin of the entry behind the end: here, or behind a filler."""
        position = self.end.position
        if self.log.read(position, len(BLANK_MAGIC)) == BLANK_MAGIC:
            return (position // self.log.segment_size_bytes + 1) * self.log.segment_size_bytes
        return position

    def _following(self) -> LogMark | None:
        """The point behind the next entry in the entry index."""
        if self._findings.is_full:
            return None
        for number in range(self.end.index + 1, self._index.count + 1):
            row = self._index.find(number)
            if row is not None and row.position >= self.end.position and self.log.run_at(row.mark.position) is not None:
                return row.mark
        return None

    # Files ----------------------------------------------------------------------------------------
    def _check_segments(self) -> None:
        if START in self._files.listdir(self.log.folder) and self.log.start is None:
            return  # its damage is reported; the expected segments are unknown
        for base in sorted(self.log.missing):
            self._add(self.log.place(base)[0], 0, "the segment is missing")
        segments = [segment for run in self.log.runs for segment in run.segments()]
        for segment in segments:
            room = segment.end - segment.base
            if segment.length == room:
                continue
            # A crash may have interrupted the last one while it grew to its size.
            is_damage = segment is not segments[-1] or segment.length > room or self._is_clean
            reason = f"it has {segment.length} bytes, a segment has {room}"
            self._add(segment.path, min(segment.length, room), reason, is_damage=is_damage)

    def _check_behind_end(self) -> None:
        """Check that bytes behind the end are zero; after a crash the next start zeroes them."""
        for run in self.log.runs:
            for segment in run.segments():
                at = self._first_byte(segment, max(0, self.end.position - segment.base))
                if at is not None and not (self._is_torn or self._rot):
                    reason = f"bytes behind the log's end, which is entry {self.end.index}"
                    reason += "" if self._is_clean else "; a crash left them, and the next start zeroes them"
                    self._add(segment.path, at, reason, is_damage=self._is_clean)
                    return

    def _first_byte(self, segment: Segment, start: int) -> int | None:
        """The first non-zero byte of *segment* at or behind *start*."""
        if segment.end <= self.end.position:
            return None
        for begin, end in self._files.data_extents(segment.fd, start):
            for at in range(max(begin, start), end, _CHUNK_SIZE_BYTES):
                data = self._files.pread(segment.fd, min(_CHUNK_SIZE_BYTES, end - at), at)
                self._on_read(len(data))
                if len(rest := data.lstrip(b"\0")):
                    return at + len(data) - len(rest)
        return None

    def _add(self, file: Path, position: int, reason: str, *, is_damage: bool = True) -> None:
        self._findings.add(FindingKind.LOG, file, position, reason, is_damage=is_damage)


def _batches(entries: Iterable[EntryHeader], stop: int = BEHIND_ALL) -> Iterator[list[EntryHeader]]:
    """Adjacent entries before *stop*, about SPAN_SIZE_BYTES each; LogRot after the intact ones."""
    batch, size = list[EntryHeader](), 0
    try:
        for header in entries:
            if header.position >= stop:
                break
            if batch and (header.position != batch[0].position + size or size >= SPAN_SIZE_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(header)
            size += header.size
    except LogRot:
        if batch:
            yield batch
        raise
    if batch:
        yield batch
