"""One entry of the log as bytes: header, body, and the chain of checksums that ties it to the entry before it.

All numbers big-endian, as in RocketMQ's store:

     0        4        8         16        24        32     33     34         36            40       44         48
     | magic  | size 4 | index 8 | term 8  | pos. 8  | kind | flags| version  | previous's  | crc 4  | reserved | body ...
     | "TRNL" |        |         |         |         | 1    | 1    | 2        | crc 4       |        | 4        |

flags: 1 marks an urgent entry, which may use the emergency segment of a full disk (nothing in it stores a message). size counts
header and body; position is where the entry starts in the log; version is the state machine's. crc is zlib.crc32 of
the header with the crc field zero, then of the body. Behind the last entry of a segment lies a filler up to the segment's end:

     0        4        8
     | "TRNB" | size 4 |     size: bytes from here to the end of the segment

As CommitLog's blank in RocketMQ (BLANK_MAGIC_CODE), which a reader skips.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from tern_store.checksum import crc32
from tern_store.errors import EntryRefused
from tern_store.files import Buffer

HEADER = struct.Struct(">4sIQQQBBHIII")
HEADER_SIZE_BYTES = HEADER.size
BLANK = struct.Struct(">4sI")
BLANK_SIZE_BYTES = BLANK.size
MAGIC = b"TRNL"
BLANK_MAGIC = b"TRNB"
URGENT = 1
_CRC_AT = 40
_ZERO_CRC = bytes(4)


class EntryKind(IntEnum):
    """What an entry carries. BLANK never has a header of its own: it is the filler at the end of a segment."""

    GENESIS = 0
    NOOP = 1
    COMMANDS = 2
    # A member that had to be rebuilt is one again: | incarnation 16 | its name, UTF-8 |
    READMIT = 3
    BLANK = 255


_KINDS: dict[int, EntryKind] = {
    kind: kind for kind in (EntryKind.GENESIS, EntryKind.NOOP, EntryKind.COMMANDS, EntryKind.READMIT)
}


@dataclass(frozen=True, slots=True)
class LogMark:
    """A point between two entries: *index*, *term* and *crc* of the entry before it, *position* where that entry ends."""

    index: int
    position: int
    crc: int
    term: int


# Before the first entry.
ORIGIN = LogMark(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """The decoded header; *size* counts header and body."""

    size: int
    index: int
    term: int
    position: int
    kind: EntryKind
    version: int
    previous_crc: int
    crc: int
    flags: int = 0

    @property
    def mark(self) -> LogMark:
        """The point behind this entry."""
        return LogMark(self.index, self.position + self.size, self.crc, self.term)


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry as it lies in the log: *raw* is header and body, byte for byte the same on every node."""

    index: int
    term: int
    position: int
    kind: EntryKind
    version: int
    crc: int
    raw: bytes

    @property
    def body(self) -> memoryview:
        """What follows the header, not copied."""
        return memoryview(self.raw)[HEADER_SIZE_BYTES:]

    @property
    def mark(self) -> LogMark:
        """The point behind this entry."""
        return LogMark(self.index, self.position + len(self.raw), self.crc, self.term)

    def __len__(self) -> int:
        return len(self.raw)


def entry_size(parts: Sequence[Buffer]) -> int:
    """Bytes of an entry whose body is *parts*."""
    return HEADER_SIZE_BYTES + sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)


def encode_entry(
    kind: EntryKind,
    index: int,
    term: int,
    parts: Sequence[Buffer],
    version: int,
    *,
    position: int,
    previous_crc: int,
    flags: int = 0,
) -> StoredEntry:
    """Build an entry; the body is read once for the checksum and copied once."""
    size = entry_size(parts)
    crc = crc32(HEADER.pack(MAGIC, size, index, term, position, kind, flags, version, previous_crc, 0, 0))
    for part in parts:
        crc = crc32(part, crc)
    header = HEADER.pack(MAGIC, size, index, term, position, kind, flags, version, previous_crc, crc, 0)
    return StoredEntry(index, term, position, kind, version, crc, b"".join((header, *parts)))


def decode_header(data: Buffer) -> EntryHeader:
    """Read the header at the start of *data*; EntryRefused if there is none. The checksum is `verify`'s business."""
    if len(data) < HEADER_SIZE_BYTES:
        raise EntryRefused(f"an entry has at least {HEADER_SIZE_BYTES} bytes, here are {len(data)}")
    magic, size, index, term, position, kind, flags, version, previous_crc, crc, _reserved = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise EntryRefused(f"an entry begins with {MAGIC!r}, here is {magic!r}")
    known = _KINDS.get(kind)
    if known is None:
        raise EntryRefused(f"entry kind {kind} is not known to this release")
    return EntryHeader(size, index, term, position, known, version, previous_crc, crc, flags)


def crc_of(raw: Buffer) -> int:
    """The checksum that the header of *raw* should carry."""
    view = memoryview(raw)
    return crc32(view[_CRC_AT + 4 :], crc32(_ZERO_CRC, crc32(view[:_CRC_AT])))


def crc_of_parts(parts: Sequence[Buffer]) -> int:
    """As `crc_of` for an entry in pieces, the first of which holds the header."""
    head = memoryview(parts[0])
    crc = crc32(head[_CRC_AT + 4 :], crc32(_ZERO_CRC, crc32(head[:_CRC_AT])))
    for part in parts[1:]:
        crc = crc32(part, crc)
    return crc


def verify(raw: Buffer) -> EntryHeader:
    """The header of *raw* if size and checksum are right, else EntryRefused."""
    header = decode_header(raw)
    if header.size != len(raw):
        raise EntryRefused(f"the header of entry {header.index} says {header.size} bytes, here are {len(raw)}")
    if (crc := crc_of(raw)) != header.crc:
        raise EntryRefused(f"entry {header.index} has checksum {crc:08x}, its header says {header.crc:08x}")
    return header


def stored(header: EntryHeader, raw: bytes) -> StoredEntry:
    """The entry whose verified header is *header*."""
    return StoredEntry(header.index, header.term, header.position, header.kind, header.version, header.crc, raw)
