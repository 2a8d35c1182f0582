"""The files of the commit log: `commitlog/{20-digit start position}`, all of one size, preallocated, zero where unwritten.

Law: a segment appears under its name complete (allocated, synced, renamed), before anything refers to it; it disappears last
first, each removal made durable before the next. So a gap, or a short segment that is not the last, is never our own crash.
"""

from dataclasses import dataclass
from pathlib import Path

from tern_store.errors import LogRot
from tern_store.files import Buffer, Files

SPARE = "spare"
_ZEROS = bytes(1 << 16)


@dataclass(slots=True, eq=False)
class Segment:
    """One open file; *base* and *end* are positions in the log, *length* the bytes that the file has."""

    base: int
    end: int
    path: Path
    fd: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareJob:
    """Allocates the file that will become the next segment. `run` may be called on any thread, once."""

    files: Files
    path: Path
    size_bytes: int

    def run(self) -> None:
        """Durable here: an allocated, zeroed file. OSError (ENOSPC) leaves nothing behind."""
        create_segment_file(self.files, self.path, self.size_bytes)


class Segments:
    """The open segments of one log, first to last. Owner: the commit log."""

    def __init__(self, directory: Path, size_bytes: int, files: Files) -> None:
        self.directory, self.size_bytes = directory, size_bytes
        self._files = files
        self._open: list[Segment] = []
        self._has_spare = False

    def load(self) -> None:
        """Open what is on disk; LogRot for a gap or a size that cannot come from a crash."""
        for name in self._files.listdir(self.directory):
            if not (len(name) == 20 and name.isdecimal()):  # a spare, or a creation that a crash interrupted
                self._files.unlink(self.directory / name)
        bases = segment_bases(self.directory, self._files)
        for number, base in enumerate(bases):
            segment = self._add(base)
            if base != number * self.size_bytes:
                raise LogRot(segment.path, number * self.size_bytes, "the segment before this one is missing")
            is_last = number == len(bases) - 1
            if segment.length > self.size_bytes or (segment.length < self.size_bytes and not is_last):
                raise LogRot(segment.path, base, f"it has {segment.length} bytes, a segment has {self.size_bytes}")

    def at(self, position: int) -> Segment | None:
        """The segment that holds *position*, or None behind the last."""
        number = position // self.size_bytes
        return self._open[number] if number < len(self._open) else None

    def write(self, data: Buffer, position: int) -> Segment:
        """Put *data* at *position*, in the page cache; the segment exists and has the room."""
        segment = self._open[position // self.size_bytes]
        self._files.pwrite(segment.fd, data, position - segment.base)
        return segment

    def read(self, position: int, size: int) -> bytes:
        """*size* bytes at *position*; fewer at the end of the file, none where there is no segment."""
        segment = self.at(position)
        return self._files.pread(segment.fd, size, position - segment.base) if segment is not None else b""

    def require(self, position: int) -> None:
        """Make sure that the segment of *position* exists: the spare, or a new one. ENOSPC before anything is written."""
        while self.at(position) is None:
            base = len(self._open) * self.size_bytes
            source = self.directory / SPARE
            if not self._has_spare:
                source = self.directory / "new"
                create_segment_file(self._files, source, self.size_bytes)
            self._has_spare = False
            self._files.rename(source, self._path(base))
            self._files.fsync_dir(self.directory)
            self._add(base)

    def spare_job(self) -> SpareJob | None:
        """The allocation to be run elsewhere, or None if a spare is there."""
        if self._has_spare:
            return None
        return SpareJob(files=self._files, path=self.directory / SPARE, size_bytes=self.size_bytes)

    def spare_made(self) -> None:
        """The job has run: the next segment is a rename away."""
        self._has_spare = True

    def erase_behind(self, position: int) -> list[int]:
        """Durable here: nothing but zeros behind *position*, and no later segment. Returns descriptors to close."""
        segment = self.at(position)
        assert segment is not None, "a log has its first segment"
        if segment.length < self.size_bytes:
            self._files.fallocate(segment.fd, self.size_bytes)
            segment.length = self.size_bytes
        self._zero_behind(segment, position - segment.base)
        # Zeros first: a filler whose next segment is missing would be rot.
        self._files.fdatasync(segment.fd)
        retired = []
        while self._open[-1] is not segment:
            last = self._open.pop()
            self._files.unlink(last.path)
            self._files.fsync_dir(self.directory)
            retired.append(last.fd)
        return retired

    def sync(self) -> None:
        """Durable here: every segment and its name."""
        for segment in self._open:
            self._files.fdatasync(segment.fd)
        self._files.fsync_dir(self.directory)

    def close(self) -> None:
        """Close every descriptor."""
        while self._open:
            self._files.close(self._open.pop().fd)

    def _zero_behind(self, segment: Segment, start: int) -> None:
        # Only what is not zero is written: a fresh segment is a gibibyte of zeros that need not be touched.
        for begin, end in self._files.data_extents(segment.fd, start):
            for at in range(max(begin, start), end, len(_ZEROS)):
                data = self._files.pread(segment.fd, min(len(_ZEROS), end - at), at)
                kept = len(data.rstrip(b"\0"))
                if kept:
                    self._files.pwrite(segment.fd, _ZEROS[:kept], at)

    def _path(self, base: int) -> Path:
        return self.directory / f"{base:020d}"

    def _add(self, base: int) -> Segment:
        path = self._path(base)
        fd = self._files.open(path)
        segment = Segment(base, base + self.size_bytes, path, fd, self._files.size(fd))
        self._open.append(segment)
        return segment


def segment_bases(directory: Path, files: Files) -> list[int]:
    """The start positions of the segments on disk, ascending."""
    return [int(name) for name in files.listdir(directory) if len(name) == 20 and name.isdecimal()]


def create_segment_file(files: Files, path: Path, size_bytes: int, content: bytes = b"") -> None:
    """Durable here: the bytes of a file of *size_bytes* that begins with *content* (its name is the caller's)."""
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
