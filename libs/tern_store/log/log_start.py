"""The begin of a log: `commitlog/start`, present once retention has dropped the first segments.

 0        4          6        8         16           24       32      36        40        44
 | "TRNO" | format 2 | rsvd 2 | index 8 | position 8 | term 8 | crc 4 | genesis | check 4 | genesis
 |        |          |        |         |            |        |       | size 4  |         |  ...
Big-endian. index, term and crc are those of the last dropped entry; position is the begin of the
first kept segment. The genesis entry is repeated, since the log's very first segment held it. check
is the crc32 of everything else.

Law: this file is durable before the first segment is removed. Segments below `position` are
therefore leftovers, and a first segment other than that of `position` is rot.
"""

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path

from tern_store.checksum import crc32
from tern_store.errors import LogRot
from tern_store.files import Files, read_whole, replace_whole
from tern_store.log.entry import LogMark
from tern_store.log.segment import Segment, segment_bases

START = "start"
FORMAT = 1
_MAGIC = b"TRNO"
_HEAD = struct.Struct(">4sHHQQQII")
_CHECK = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class LogStart:
    """The point behind the last dropped entry, and the bytes of the genesis entry.
    The mark's *position* is the begin of the first kept segment.
    """

    mark: LogMark
    genesis: bytes


def read_start(folder: Path, files: Files) -> LogStart | None:
    """Read the begin of the log in *folder*, None if at its genesis; LogRot if damaged."""
    path = folder / START
    try:
        data = read_whole(path, files)
    except FileNotFoundError:
        return None
    genesis_at = _HEAD.size + _CHECK.size
    if len(data) < genesis_at:
        raise LogRot(path, 0, f"it has {len(data)} bytes")
    magic, form, _, index, position, term, crc, size = _HEAD.unpack_from(data)
    check = crc32(data[genesis_at:], crc32(data[: _HEAD.size]))
    if (magic, form, size, check) != (_MAGIC, FORMAT, len(data) - genesis_at, _CHECK.unpack_from(data, _HEAD.size)[0]):
        raise LogRot(path, 0, "its checksum is wrong")
    return LogStart(LogMark(index, position, crc, term), data[genesis_at:])


def has_log(folder: Path, files: Files) -> bool:
    """Whether a log was ever begun in *folder*."""
    return bool(segment_bases(folder, files)) or START in files.listdir(folder)


def write_start(folder: Path, start: LogStart, files: Files) -> None:
    """Durable here: the log begins at *start*, even if earlier segments remain.
    OSError: the log begins as before.
    """
    mark = start.mark
    head = _HEAD.pack(_MAGIC, FORMAT, 0, mark.index, mark.position, mark.term, mark.crc, len(start.genesis))
    check = _CHECK.pack(crc32(start.genesis, crc32(head)))
    replace_whole(folder / START, head + check + start.genesis, files)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrimJob:
    """Removes the files of dropped segments. `run` on any thread, again after an OSError."""

    files: Files
    folder: Path
    start: LogStart
    segments: tuple[Segment, ...]

    def run(self) -> None:
        """Durable here: the log's begin; then segments go. OSError: the next start continues."""
        write_start(self.folder, self.start, self.files)
        for segment in self.segments:
            with contextlib.suppress(FileNotFoundError):  # an earlier run was interrupted
                self.files.unlink(segment.path)
        self.files.fsync_dir(self.folder)
