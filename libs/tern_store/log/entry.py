"""One log entry as bytes: header, body, and the checksum that chains it to the entry before.

All numbers are big-endian, as in RocketMQ's store:
 0        4      8       16     24     32     33      34        36         40    44       48
 | magic  | size | index | term | pos. | kind | flags | version | previous | crc | unsynced | body
 | "TRNL" | 4    | 8     | 8    | 8    | 1    | 1     | 2       | crc 4    | 4   | 2 + 2    | ...
flags: 1 marks an urgent entry, which stores no message and may use the emergency segment of a full
disk. size counts header and body. position is the entry's start in the log. version is the state
machine's. crc is zlib.crc32 of the header with the fields crc and unsynced zero, then of the body.

unsynced differs between nodes: the number of earlier entries that this node's disk had not synced
when it wrote this entry (65535: that many or more), then the lower 16 bits of a crc32 over index,
that number and crc, with the lowest bit set; 0 and 0 for none. A later entry can thereby prove that
a damaged one was synced (`recovery.py`).

A filler lies between the last entry of a segment and the segment's end:
 0        4        8
 | "TRNB" | size 4 |     size: bytes from here to the end of the segment
Readers skip it, as they skip the blank in RocketMQ's CommitLog (BLANK_MAGIC_CODE).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from tern_store.checksum import crc32
from tern_store.errors import EntryRefused
from tern_store.files import Buffer

HEADER = struct.Struct(">4sIQQQBBHIIHH")
HEADER_SIZE_BYTES = HEADER.size
BLANK = struct.Struct(">4sI")
BLANK_SIZE_BYTES = BLANK.size
MAGIC = b"TRNL"
BLANK_MAGIC = b"TRNB"
URGENT = 1
# The largest count of unsynced entries in a header: it means this many or more, and proves nothing.
UNSYNCED_MAX = (1 << 16) - 1
_CRC_AT = 40
_UNCOVERED = bytes(8)
_UNSYNCED = struct.Struct(">HH")
_UNSYNCED_AT = 44
_UNSYNCED_CHECK = struct.Struct(">QHI")


class EntryKind(IntEnum):
    """Contents of an entry. BLANK never has a header: it is the filler at the end of a segment."""

    GENESIS = 0
    NOOP = 1
    COMMANDS = 2
    # A member that had to be rebuilt takes part again: | incarnation 16 | its name, UTF-8 |
    READMIT = 3
    # An entry that no member can apply is passed over: | stage 1 | index 8 | crc 4 |
    # (`tern_raft/pass_over.py`)
    PASS_OVER = 4
    BLANK = 255


_KINDS: dict[int, EntryKind] = {
    kind: kind
    for kind in (EntryKind.GENESIS, EntryKind.NOOP, EntryKind.COMMANDS, EntryKind.READMIT, EntryKind.PASS_OVER)
}


@dataclass(frozen=True, slots=True)
class LogMark:
    """A point between two entries.
    *index*, *term* and *crc* are those of the entry before the point, *position* is that entry's
    end.
    """

    index: int
    position: int
    crc: int
    term: int


# The point before the first entry.
ORIGIN = LogMark(0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """A decoded header; *size* counts header and body."""

    size: int
    index: int
    term: int
    position: int
    kind: EntryKind
    version: int
    previous_crc: int
    crc: int
    flags: int = 0
    # Number of earlier entries that this node's disk had not synced when it wrote this entry.
    unsynced: int = 0

    @property
    def mark(self) -> LogMark:
        """The point behind this entry."""
        return LogMark(self.index, self.position + self.size, self.crc, self.term)


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry as stored: *raw* is header and body.
    The bytes are the same on every node except for the field unsynced.
    """

    index: int
    term: int
    position: int
    kind: EntryKind
    version: int
    crc: int
    raw: bytes

    @property
    def body(self) -> memoryview:
        """The bytes behind the header, not copied."""
        return memoryview(self.raw)[HEADER_SIZE_BYTES:]

    @property
    def mark(self) -> LogMark:
        """The point behind this entry."""
        return LogMark(self.index, self.position + len(self.raw), self.crc, self.term)

    def __len__(self) -> int:
        return len(self.raw)


def entry_size(parts: Sequence[Buffer]) -> int:
    """Size in bytes of an entry whose body is *parts*."""
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
    unsynced: int = 0,
) -> StoredEntry:
    """Build an entry; the body is read once for the checksum and copied once.
    *unsynced*: the number for the header.
    """
    size = entry_size(parts)
    crc = crc32(HEADER.pack(MAGIC, size, index, term, position, kind, flags, version, previous_crc, 0, 0, 0))
    for part in parts:
        crc = crc32(part, crc)
    own = _own(index, min(unsynced, UNSYNCED_MAX), crc)
    header = HEADER.pack(MAGIC, size, index, term, position, kind, flags, version, previous_crc, crc, *own)
    return StoredEntry(index, term, position, kind, version, crc, b"".join((header, *parts)))


def decode_header(data: Buffer) -> EntryHeader:
    """Decode the header at the start of *data*; EntryRefused if there is none.
    Checks no checksum.
    """
    if len(data) < HEADER_SIZE_BYTES:
        raise EntryRefused(f"an entry has at least {HEADER_SIZE_BYTES} bytes, here are {len(data)}")
    magic, size, index, term, position, kind, flags, version, previous_crc, crc, *own = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise EntryRefused(f"an entry begins with {MAGIC!r}, here is {magic!r}")
    known = _KINDS.get(kind)
    if known is None:
        raise EntryRefused(f"entry kind {kind} is not known to this release")
    if own != [0, 0] and tuple(own) != _own(index, own[0], crc):
        raise EntryRefused(f"entry {index} contradicts itself in what was synced before it")
    return EntryHeader(size, index, term, position, known, version, previous_crc, crc, flags, own[0])


def head_with(raw: Buffer, header: EntryHeader, unsynced: int) -> bytes:
    """The header bytes of *raw* with this node's number of *unsynced* earlier entries."""
    head = bytearray(memoryview(raw)[:HEADER_SIZE_BYTES])
    _UNSYNCED.pack_into(head, _UNSYNCED_AT, *_own(header.index, min(unsynced, UNSYNCED_MAX), header.crc))
    return bytes(head)


def crc_of(raw: Buffer) -> int:
    """Compute the checksum that belongs in the header of *raw*."""
    view = memoryview(raw)
    return crc32(view[HEADER_SIZE_BYTES:], crc32(_UNCOVERED, crc32(view[:_CRC_AT])))


def crc_of_parts(parts: Sequence[Buffer]) -> int:
    """Compute `crc_of` for an entry in pieces, the first of which holds the header."""
    head = memoryview(parts[0])
    crc = crc32(head[HEADER_SIZE_BYTES:], crc32(_UNCOVERED, crc32(head[:_CRC_AT])))
    for part in parts[1:]:
        crc = crc32(part, crc)
    return crc


def verify(raw: Buffer) -> EntryHeader:
    """Decode the header of *raw*; EntryRefused unless size and checksum are right."""
    header = decode_header(raw)
    if header.size != len(raw):
        raise EntryRefused(f"the header of entry {header.index} says {header.size} bytes, here are {len(raw)}")
    if (crc := crc_of(raw)) != header.crc:
        raise EntryRefused(f"entry {header.index} has checksum {crc:08x}, its header says {header.crc:08x}")
    return header


def stored(header: EntryHeader, raw: bytes) -> StoredEntry:
    """The entry in *raw*, whose verified header is *header*."""
    return StoredEntry(header.index, header.term, header.position, header.kind, header.version, header.crc, raw)


def _own(index: int, unsynced: int, crc: int) -> tuple[int, int]:
    """The field unsynced, which no checksum of the entry covers, and its check."""
    return (unsynced, crc32(_UNSYNCED_CHECK.pack(index, unsynced, crc)) & 0xFFFF | 1) if unsynced else (0, 0)
