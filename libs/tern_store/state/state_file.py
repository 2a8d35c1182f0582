"""The saved state: an opaque payload and its point in the log.

Files `state/state-{20-digit index}.bin`.
 0        4          6            8       16         24     32          36         44      48
 | "TRNS" | format 2 | reserved 2 | index | position | term | mark crc  | payload  | crc 4 | payload
 |        |          |            | 8     | 8        | 8    | 4         | size 8   |       | ...
Big-endian; crc is zlib.crc32 of the header before it, then of the payload. Two generations are
kept: if the newer one cannot be read, the older one is used.

Beside them is one state for every begin of a segment, `state/segment-{20-digit position}-{newest
ms}.bin`. Derived files are made again from it once retention has dropped the log before it. *newest
ms* is the logical time of the last entry before the segment, so that retention has the ages of
segments without reading them.
"""

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tern_store.checksum import crc32
from tern_store.files import REAL_FILES, Buffer, Files, discard, read_whole, unless_worn
from tern_store.log.entry import LogMark

STATE_FOLDER = "state"
FORMAT = 1
_MAGIC = b"TRNS"
_HEADER = struct.Struct(">4sHHQQQIQ")
_CRC = struct.Struct(">I")
_BODY_AT = _HEADER.size + _CRC.size
_NAME = re.compile(r"state-(\d{20})\.bin")
_BOUNDARY_NAME = re.compile(r"segment-(\d{20})-(\d+)\.bin")


@dataclass(frozen=True, slots=True)
class SavedState:
    """A verified state: *payload* is the state after every entry up to *mark*."""

    mark: LogMark
    payload: bytes


@dataclass(frozen=True, slots=True)
class Boundary:
    """A segment that begins at *position*, and the logical time of the last entry before it."""

    position: int
    newest_ms: int

    @property
    def name(self) -> str:
        """Name of the file with the state at this point."""
        return f"segment-{self.position:020d}-{self.newest_ms}.bin"


class StateSave:
    """A save as a job: made by the owner, run on any thread, one at a time."""

    def __init__(
        self,
        directory: Path,
        applied: LogMark,
        payload: Buffer | Sequence[Buffer] | Callable[[], Sequence[Buffer]],
        files: Files = REAL_FILES,
        *,
        boundary: Boundary | None = None,
    ) -> None:
        """*payload*, or the function that `run` calls for it, must not change until `run` has
        returned.
        *applied* must be synced by then. With *boundary* the state is that of a segment's begin,
        and no other state is removed.
        """
        self._folder = directory / STATE_FOLDER
        self._boundary = boundary
        self._mark = applied
        self._payload = payload
        self._files = files

    def run(self) -> None:
        """Durable here: the next start finds the state. OSError: the earlier states remain."""
        payload = self._payload() if callable(self._payload) else self._payload
        parts = [payload] if isinstance(payload, Buffer) else list(payload)
        size = sum(memoryview(part).nbytes for part in parts)
        mark = self._mark
        header = _HEADER.pack(_MAGIC, FORMAT, 0, mark.index, mark.position, mark.term, mark.crc, size)
        crc = crc32(header)
        for part in parts:
            crc = crc32(part, crc)
        self._files.makedirs(self._folder)
        fresh = self._folder / "new"
        fd = self._files.open(fresh, create=True)
        try:
            self._files.ftruncate(fd, 0)
            self._files.pwritev(fd, [header, _CRC.pack(crc), *parts], 0)
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)
        name = f"state-{mark.index:020d}.bin" if self._boundary is None else self._boundary.name
        self._files.rename(fresh, self._folder / name)
        self._files.fsync_dir(self._folder)
        if self._boundary is None:
            self._drop_others()

    def _drop_others(self) -> None:
        """Keep this state and the newest before it. A start discards states with later indexes."""
        earlier = [index for index in _indexes(self._folder, self._files) if index < self._mark.index]
        for index in _indexes(self._folder, self._files):
            if index != self._mark.index and index not in earlier[:1]:
                self._files.unlink(self._folder / f"state-{index:020d}.bin")


def load_states(directory: Path, files: Files = REAL_FILES) -> Iterator[SavedState]:
    """The readable states, newest first, each read on demand.
    The caller checks which the log reaches.
    """
    folder = directory / STATE_FOLDER
    for index in _indexes(folder, files):
        state = _load(folder / f"state-{index:020d}.bin", files)
        if state is not None and state.mark.index == index:
            yield state


def load_state(directory: Path, end: int | None = None, files: Files = REAL_FILES) -> SavedState | None:
    """The newest readable state at or before entry *end* (None: any), or None."""
    return next((state for state in load_states(directory, files) if end is None or state.mark.index <= end), None)


def boundaries(directory: Path, files: Files = REAL_FILES) -> list[Boundary]:
    """The segments with a saved state at their begin, ascending."""
    matches = [_BOUNDARY_NAME.fullmatch(name) for name in files.listdir(directory / STATE_FOLDER)]
    return sorted(
        (Boundary(int(match[1]), int(match[2])) for match in matches if match is not None), key=lambda b: b.position
    )


def load_boundary(directory: Path, boundary: Boundary, files: Files = REAL_FILES) -> SavedState | None:
    """The state at *boundary*, or None if it cannot be read."""
    try:
        return _load(directory / STATE_FOLDER / boundary.name, files)
    except FileNotFoundError:
        return None


def drop_boundaries(directory: Path, position: int, files: Files = REAL_FILES) -> None:
    """Unlink the states of segments before *position*, which the log no longer reaches."""
    for boundary in boundaries(directory, files):
        if boundary.position < position:
            discard(directory / STATE_FOLDER / boundary.name, files)


def _indexes(folder: Path, files: Files) -> list[int]:
    """Indexes of the states on disk, highest first."""
    matches = [_NAME.fullmatch(name) for name in files.listdir(folder)]
    return sorted((int(match[1]) for match in matches if match is not None), reverse=True)


def _load(path: Path, files: Files) -> SavedState | None:
    data = memoryview(unless_worn(lambda: read_whole(path, files)) or b"")
    if len(data) < _BODY_AT:
        return None
    magic, form, _, index, position, term, mark_crc, size = _HEADER.unpack_from(data)
    if (magic, form, size) != (_MAGIC, FORMAT, len(data) - _BODY_AT):
        return None
    if crc32(data[_BODY_AT:], crc32(data[: _HEADER.size])) != _CRC.unpack_from(data, _HEADER.size)[0]:
        return None
    return SavedState(LogMark(index, position, mark_crc, term), bytes(data[_BODY_AT:]))
