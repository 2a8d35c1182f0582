"""One entry of the log as bytes: header, body, and the chain of checksums that ties it to the entry before it.

All numbers big-endian, as in RocketMQ's store:

     0        4        8         16        24        32     33     34         36            40       44         48
     | magic  | size 4 | index 8 | term 8  | pos. 8  | kind | flags| version  | previous's  | crc 4  | unsynced | body ...
     | "TRNL" |        |         |         |         | 1    | 1    | 2        | crc 4       |        | 2 + 2    |

flags: 1 marks an urgent entry, which may use the emergency segment of a full disk (nothing in it stores a message). size counts
header and body; position is where the entry starts in the log; version is the state machine's. crc is zlib.crc32 of
the header with the fields crc and unsynced zero, then of the body. unsynced is this node's own: how many entries before this one
its disk had not synced when it wrote this one (65535: that many or more), then the lower 16 bits of a crc32 over index, that number and crc,
the lowest bit set; 0 and 0 for none. So a later entry proves that a damaged one was synced (`recovery.py`). Behind the last entry of a segment lies a filler up to the segment's end:

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

HEADER = struct.Struct(">4sIQQQBBHIIHH")
HEADER_SIZE_BYTES = HEADER.size
BLANK = struct.Struct(">4sI")
BLANK_SIZE_BYTES = BLANK.size
MAGIC = b"TRNL"
BLANK_MAGIC = b"TRNB"
URGENT = 1
# As many unsynced entries before one as a header can say, or more: it proves nothing.
UNSYNCED_MAX = (1 << 16) - 1
_CRC_AT = 40
_UNCOVERED = bytes(8)
_UNSYNCED = struct.Struct(">HH")
_UNSYNCED_AT = 44
_UNSYNCED_CHECK = struct.Struct(">QHI")


class EntryKind(IntEnum):
    """What an entry carries. BLANK never has a header of its own: it is the filler at the end of a segment."""

    GENESIS = 0
    NOOP = 1
    COMMANDS = 2
    # A member that had to be rebuilt is one again: | incarnation 16 | its name, UTF-8 |
    READMIT = 3
    # An entry that no member can apply is passed over: | stage 1 | index 8 | crc 4 | (`tern_raft/pass_over.py`)
    PASS_OVER = 4
    BLANK = 255


_KINDS: dict[int, EntryKind] = {
    kind: kind
    for kind in (EntryKind.GENESIS, EntryKind.NOOP, EntryKind.COMMANDS, EntryKind.READMIT, EntryKind.PASS_OVER)
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
    # Entries before this one that the disk that it lies on had not synced when it was written.
    unsynced: int = 0

    @property
    def mark(self) -> LogMark:
        """The point behind this entry."""
        return LogMark(self.index, self.position + self.size, self.crc, self.term)


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry as it lies in the log: *raw* is header and body, byte for byte the same on every node but for what was unsynced there."""

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
    unsynced: int = 0,
) -> StoredEntry:
    """Build an entry; the body is read once for the checksum and copied once. *unsynced*: as in the header."""
    size = entry_size(parts)
    crc = crc32(HEADER.pack(MAGIC, size, index, term, position, kind, flags, version, previous_crc, 0, 0, 0))
    for part in parts:
        crc = crc32(part, crc)
    own = _own(index, min(unsynced, UNSYNCED_MAX), crc)
    header = HEADER.pack(MAGIC, size, index, term, position, kind, flags, version, previous_crc, crc, *own)
    return StoredEntry(index, term, position, kind, version, crc, b"".join((header, *parts)))


def decode_header(data: Buffer) -> EntryHeader:
    """Read the header at the start of *data*; EntryRefused if there is none. The checksum is `verify`'s business."""
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
    """The header's bytes of *raw* as a node writes them on whose disk *unsynced* entries before it are not synced yet."""
    head = bytearray(memoryview(raw)[:HEADER_SIZE_BYTES])
    _UNSYNCED.pack_into(head, _UNSYNCED_AT, *_own(header.index, min(unsynced, UNSYNCED_MAX), header.crc))
    return bytes(head)


def crc_of(raw: Buffer) -> int:
    """The checksum that the header of *raw* should carry."""
    view = memoryview(raw)
    return crc32(view[HEADER_SIZE_BYTES:], crc32(_UNCOVERED, crc32(view[:_CRC_AT])))


def crc_of_parts(parts: Sequence[Buffer]) -> int:
    """As `crc_of` for an entry in pieces, the first of which holds the header."""
    head = memoryview(parts[0])
    crc = crc32(head[HEADER_SIZE_BYTES:], crc32(_UNCOVERED, crc32(head[:_CRC_AT])))
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


def _own(index: int, unsynced: int, crc: int) -> tuple[int, int]:
    """What no checksum of the entry covers, since every node writes its own, and its check."""
    return (unsynced, crc32(_UNSYNCED_CHECK.pack(index, unsynced, crc)) & 0xFFFF | 1) if unsynced else (0, 0)
