"""Where a log begins: `commitlog/start`, there only once retention has dropped the first segments.

     0        4          6          8         16           24       32      36             40        44
     | "TRNO" | format 2 | rsvd 2   | index 8 | position 8 | term 8 | crc 4 | genesis size | check 4 | genesis entry ...
     |        |          |          |         |            |        |       | 4            |         |

Big-endian. index, term and crc are those of the last entry that is gone; position is where the first segment that is left begins.
The genesis entry is repeated, since it lies in the first segment of all. check is the crc32 of everything else.

Law: this file is durable before the first segment goes, so segments below `position` are leftovers, and a first segment other than
that of `position` is rot.
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
    """The point behind the last dropped entry (its *position* is the first kept segment's), and the genesis entry's bytes."""

    mark: LogMark
    genesis: bytes


def read_start(folder: Path, files: Files) -> LogStart | None:
    """Where the log in *folder* begins, None if at its genesis; LogRot if the file is damaged."""
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
    """Durable here: the log begins at *start*, whatever segments are still there before it. OSError: it begins as before."""
    mark = start.mark
    head = _HEAD.pack(_MAGIC, FORMAT, 0, mark.index, mark.position, mark.term, mark.crc, len(start.genesis))
    check = _CHECK.pack(crc32(start.genesis, crc32(head)))
    replace_whole(folder / START, head + check + start.genesis, files)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrimJob:
    """Removes the files of what retention has dropped. `run` may be called on any thread, again after an OSError."""

    files: Files
    folder: Path
    start: LogStart
    segments: tuple[Segment, ...]

    def run(self) -> None:
        """Durable here: where the log begins; then the segments go. OSError: those that are left go at the next start."""
        write_start(self.folder, self.start, self.files)
        for segment in self.segments:
            with contextlib.suppress(FileNotFoundError):  # a run before this one was interrupted
                self.files.unlink(segment.path)
        self.files.fsync_dir(self.folder)
