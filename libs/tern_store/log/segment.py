"""Files of the commit log: `commitlog/{20-digit start position}`, equal in size, preallocated.

Unwritten bytes are zero.

Law: a segment gets its name when it is complete (allocated, synced, renamed), before anything
refers to it. Removal goes last to first (a cut, each removal durable before the next) or first to
last (retention, after `start` is durable). So neither a gap nor a short segment before the last
comes from our own crash.

`reserve` is the emergency segment: space held back so that acks, offsets and trims still fit into
the log on a full disk. In use it becomes a segment that is only partly allocated (*is_partial*) and
takes urgent entries alone until the rest is allocated.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tern_store.errors import LogRot
from tern_store.files import NO_ROOM, Buffer, Files, discard, is_done, unreadable

SPARE = "spare"
RESERVE = "reserve"
# Room for some hundred thousand acks: time to react, and for a trim to make space.
RESERVE_SIZE_BYTES = 64 << 20
_ZEROS = bytes(1 << 16)
_REWRITE_SIZE_BYTES = 1 << 20
# Comparing with zeros goes a hundred times faster than looking at every byte, and a segment is
# zeros for the most part: seconds of a broker's start.
_SEARCH_SIZE_BYTES = len(_ZEROS)


@dataclass(slots=True, eq=False)
class Segment:
    """One open file: *base* and *end* are log positions, *length* is the file's bytes."""

    base: int
    end: int
    path: Path
    fd: int
    length: int
    is_partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareJob:
    """Allocates the file of the next segment, or the reserve. `run` once, on any thread."""

    files: Files
    path: Path
    size_bytes: int

    def run(self) -> None:
        """Durable here: an allocated, zeroed file. OSError (ENOSPC) leaves nothing behind."""
        create_segment_file(self.files, self.path, self.size_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestJob:
    """Allocates the rest of a segment made from the reserve. `run` may be called on any thread."""

    files: Files
    path: Path
    size_bytes: int

    def run(self) -> None:
        """Allocate the whole segment. OSError (ENOSPC): nothing has changed."""
        fd = self.files.open(self.path)
        try:
            self.files.fallocate(fd, self.size_bytes)
        finally:
            self.files.close(fd)


class Segments:
    """The open segments of one log, first to last. Owner: the commit log."""

    def __init__(self, directory: Path, size_bytes: int, files: Files, *, first_position: int = 0) -> None:
        """*first_position*: the log's begin, a multiple of *size_bytes*."""
        self.directory, self.size_bytes = directory, size_bytes
        self._files = files
        self._open: list[Segment] = []
        self._first = first_position // size_bytes
        self._has_spare = False
        self._has_reserve = False
        # Descriptors of segments removed by a cut that was then refused.
        self._retired: list[int] = []
        # A new segment (base, whether it is the reserve) that has its name but could not be opened
        # yet.
        self._named: tuple[int, bool] | None = None

    def load(self) -> None:
        """Open the segments on disk; LogRot for a gap or a size that no crash explains."""
        bases = segment_bases(self.directory, self._files)
        for base in bases:
            if base < self.first_position:  # retention was interrupted after `start` was durable
                self._files.unlink(self._path(base))
        bases = [base for base in bases if base >= self.first_position]
        if not bases:
            raise LogRot(self._path(self.first_position), self.first_position, "the first segment is missing")
        for number, base in enumerate(bases, self._first):
            segment = self._add(base)
            if base != number * self.size_bytes:
                raise LogRot(segment.path, number * self.size_bytes, "the segment before this one is missing")
            is_last = base == bases[-1]
            if segment.length > self.size_bytes or (segment.length < self.size_bytes and not is_last):
                raise LogRot(segment.path, base, f"it has {segment.length} bytes, a segment has {self.size_bytes}")
        for name in self._files.listdir(self.directory):
            if name in {SPARE, "new"}:  # of unknown content: a crash may have interrupted the creation
                self._files.unlink(self.directory / name)
        self._has_reserve = self._find_reserve()
        if self._open[-1].length == self.size_bytes:
            self.allocate_rest(self._open[-1])

    @property
    def first_position(self) -> int:
        """The begin of the first kept segment."""
        return self._first * self.size_bytes

    @property
    def last(self) -> Segment:
        """The segment that is written to."""
        return self._open[-1]

    @property
    def bases(self) -> list[int]:
        """Begin positions of the segments, ascending."""
        return [segment.base for segment in self._open]

    def at(self, position: int) -> Segment | None:
        """The segment that holds *position*, or None outside."""
        number = position // self.size_bytes - self._first
        return self._open[number] if 0 <= number < len(self._open) else None

    def write(self, data: Buffer, position: int) -> Segment:
        """Write *data* at *position* to the page cache; the segment must have the room."""
        segment = self._open[position // self.size_bytes - self._first]
        self._files.pwrite(segment.fd, data, position - segment.base)
        return segment

    def read(self, position: int, size: int) -> bytes:
        """*size* bytes at *position*; fewer at the file's end, none outside the segments."""
        segment = self.at(position)
        return self._pread(segment, size, position - segment.base) if segment is not None else b""

    def read_into(self, buffers: list[bytearray | memoryview], position: int) -> int:
        """Fill *buffers* from *position* on; return the number of bytes read."""
        segment = self.at(position)
        if segment is None:
            return 0
        try:
            return self._files.preadv(segment.fd, buffers, position - segment.base)
        except OSError as error:
            raise unreadable(error, segment.path, position) from error

    def find(self, needle: bytes, position: int) -> Iterator[int]:
        """Positions of *needle* at or behind *position*, ascending. Skips holes and zeros.
        A needle that crosses segments is not found, nor one that begins with a zero.
        """
        for segment in [segment for segment in self._open if segment.end > position]:
            for begin, end in self._files.data_extents(segment.fd, max(0, position - segment.base)):
                for start in range(begin, end, _SEARCH_SIZE_BYTES):
                    size = min(_SEARCH_SIZE_BYTES, end - start) + len(needle) - 1
                    data = self._pread(segment, size, start)
                    at = -1 if data.startswith(_ZEROS) else data.find(needle)
                    while at >= 0:
                        if segment.base + start + at >= position:
                            yield segment.base + start + at
                        at = data.find(needle, at + 1)

    # Space ----------------------------------------------------------------------------------------
    def require(self, position: int, *, urgent: bool) -> None:
        """Make the segment of *position*: from the spare, new, or from the reserve if *urgent*.
        OSError before anything is written.
        """
        while self.at(position) is None:
            base = self._open[-1].end
            if self._named is None or self._named[0] != base:
                source, is_partial = self.directory / SPARE, False
                if not self._has_spare:
                    source, is_partial = self._create_or_use_reserve(urgent=urgent)
                self._files.rename(source, self._path(base))
                self._has_spare, self._named = False, (base, is_partial)
            self._files.fsync_dir(self.directory)
            self._add(base).is_partial = self._named[1]
            self._named = None
        if self.last.is_partial and not urgent and not self.allocate_rest(self.last):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.last.path))

    def allocate_rest(self, segment: Segment) -> bool:
        """Allocate all of *segment*; True if it is fully allocated now."""
        segment.is_partial = not is_done(lambda: self._files.fallocate(segment.fd, self.size_bytes))
        return not segment.is_partial

    def spare_job(self) -> SpareJob | None:
        """The allocation of the spare, to be run elsewhere; None if there is one."""
        if self._has_spare:
            return None
        return SpareJob(files=self._files, path=self.directory / SPARE, size_bytes=self.size_bytes)

    def rest_job(self) -> RestJob | None:
        """The allocation of the last segment's rest, to be run elsewhere; None if it is whole."""
        if not self.last.is_partial:
            return None
        return RestJob(files=self._files, path=self.last.path, size_bytes=self.size_bytes)

    def made(self, job: SpareJob | RestJob) -> None:
        """Record that the job has run: the spare, the reserve or the last segment is complete."""
        if isinstance(job, RestJob):
            self.last.is_partial = self.last.is_partial and self.last.path != job.path
        elif job.path.name == RESERVE:
            self._has_reserve = True
        else:
            self._has_spare = True

    def reserve_job(self) -> SpareJob | None:
        """The allocation of the emergency segment, run elsewhere; None if it exists or is in
        use.
        """
        if self._has_reserve or self.last.is_partial:
            return None
        return SpareJob(files=self._files, path=self.directory / RESERVE, size_bytes=self._reserve_size())

    def give_up_reserve(self) -> bool:
        """Free the emergency segment's space for work that makes room; False if there is none."""
        if not self._has_reserve:
            return False
        self._has_reserve = False
        discard(self.directory / RESERVE, self._files)
        return True

    # Cuts -----------------------------------------------------------------------------------------
    def erase_behind(self, position: int) -> list[int]:
        """Durable here: only zeros behind *position*, and no later segment.
        Returns descriptors to close. OSError other than SyncLost: call it again; the descriptors
        are kept until then.
        """
        segment = self.at(position)
        assert segment is not None, "a log has its first segment"
        if segment.length < self.size_bytes:
            self._files.fallocate(segment.fd, self.size_bytes)
            segment.length = self.size_bytes
        # An entry in a later segment would turn damage of this one into rot, so later segments are
        # zeroed first. Zeros precede removals: a filler without a next segment would be rot.
        for later in reversed(self._open[self._open.index(segment) + 1 :]):
            self._zero_behind(later, 0)
            self._files.fdatasync(later.fd)
        self._zero_behind(segment, position - segment.base)
        self._files.fdatasync(segment.fd)
        while self._open[-1] is not segment:
            last = self._open[-1]
            with contextlib.suppress(FileNotFoundError):  # an earlier call was interrupted
                self._files.unlink(last.path)
            self._files.fsync_dir(self.directory)
            self._retired.append(self._open.pop().fd)
        retired, self._retired = self._retired, []
        return retired

    def erase_entry(self, position: int) -> None:
        """Durable here: only zeros from *position* on in its segment, if it exists."""
        segment = self.at(position)
        if segment is None:
            return
        self._zero_behind(segment, position - segment.base)
        self._files.fdatasync(segment.fd)

    def rewrite(self, start: int, end: int) -> None:
        """Write the bytes of [*start*, *end*) again, unchanged.
        If a sync failed and the process ended before it recorded that, the kernel treats the lost
        pages as clean: readers see them, and no later sync would write them.
        """
        while start < end:
            segment = self.at(start)
            assert segment is not None, "what was scanned is there"
            data = self.read(start, min(_REWRITE_SIZE_BYTES, end - start, segment.end - start))
            self.write(data, start)
            start += len(data)

    def drop_before(self, position: int) -> list[Segment]:
        """Drop segments that end at or before *position*; the caller unlinks and closes them."""
        dropped = []
        while len(self._open) > 1 and self._open[0].end <= position:
            dropped.append(self._open.pop(0))
            self._first += 1
        return dropped

    def sync(self) -> None:
        """Durable here: every segment and its name."""
        for segment in self._open:
            self._files.fdatasync(segment.fd)
        self._files.fsync_dir(self.directory)

    def close(self) -> None:
        """Close every descriptor."""
        while self._open:
            self._files.close(self._open.pop().fd)

    # Below ----------------------------------------------------------------------------------------
    def _create_or_use_reserve(self, *, urgent: bool) -> tuple[Path, bool]:
        source = self.directory / "new"
        try:
            create_segment_file(self._files, source, self.size_bytes)
        except OSError as error:
            if error.errno not in NO_ROOM or not urgent or not self._has_reserve:
                raise
        else:
            return source, False
        # Longer but not larger: the part behind the reserve is allocated when there is space.
        reserve = self.directory / RESERVE
        fd = self._files.open(reserve)
        try:
            self._files.ftruncate(fd, self.size_bytes)
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)
        self._has_reserve = False
        return reserve, True

    def _find_reserve(self) -> bool:
        path = self.directory / RESERVE
        try:
            fd = self._files.open(path)
        except FileNotFoundError:
            return False
        try:
            # Its bytes were synced before it was whole, so the size is enough; a longer file was
            # about to become a segment.
            if self._files.size(fd) == self._reserve_size():
                return True
        finally:
            self._files.close(fd)
        self._files.unlink(path)
        return False

    def _reserve_size(self) -> int:
        return min(RESERVE_SIZE_BYTES, self.size_bytes // 2)

    def _zero_behind(self, segment: Segment, start: int) -> None:
        # Only non-zero bytes are overwritten: a fresh segment is a gibibyte of zeros that need no
        # write.
        for begin, end in self._files.data_extents(segment.fd, start):
            for at in range(max(begin, start), end, len(_ZEROS)):
                data = self._pread(segment, min(len(_ZEROS), end - at), at)
                kept = 0 if data == _ZEROS else len(data.rstrip(b"\0"))
                if kept:
                    self._files.pwrite(segment.fd, _ZEROS[:kept], at)

    def _pread(self, segment: Segment, size: int, at: int) -> bytes:
        try:
            return self._files.pread(segment.fd, size, at)
        except OSError as error:
            raise unreadable(error, segment.path, segment.base + at) from error

    def _path(self, base: int) -> Path:
        return self.directory / f"{base:020d}"

    def _add(self, base: int) -> Segment:
        path = self._path(base)
        fd = self._files.open(path)
        # Replays, scans and slow consumers read forwards. A hint per read would cost more than it
        # saves.
        self._files.advise(fd, 0, 0, "sequential")
        segment = Segment(base, base + self.size_bytes, path, fd, self._files.size(fd))
        self._open.append(segment)
        return segment


def segment_bases(directory: Path, files: Files) -> list[int]:
    """Start positions of the segments on disk, ascending."""
    return [int(name) for name in files.listdir(directory) if len(name) == 20 and name.isdecimal()]


def create_segment_file(files: Files, path: Path, size_bytes: int, content: bytes = b"") -> None:
    """Durable here: a file of *size_bytes* that begins with *content*; its name is the caller's."""
    fd = files.open(path, create=True)
    try:
        files.ftruncate(fd, 0)  # an interrupted creation may have left something under this name
        files.fallocate(fd, size_bytes)
        if content:
            files.pwrite(fd, content, 0)
        files.fdatasync(fd)
    except OSError:
        files.unlink(path)
        raise
    finally:
        files.close(fd)
