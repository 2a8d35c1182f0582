"""RocketMQ's index files, which find the records with a key: a hash table with chains in one file.

    0            8          16                 24               32             36             40
    | begin ms 8 | end ms 8 | begin position 8 | end position 8 | used slots 4 | next entry 4 |
    | slot 0: 4 | slot 1: 4 | ...
    | hash 4 | position 8 | seconds 4 | previous entry 4 |  (an entry of 20 bytes) ...

A slot has the number of the newest entry with that hash modulo the slots; 0 means none, and so
entry 0 stays unused. Big-endian. *seconds* count from the header's begin.

A hash is |hashCode| of `topic#key` (key: UNIQ_KEY or one of KEYS) or of `topic#T#tag`. A result may
have records with other keys of the same hash: the caller compares the real key.

Reference: Apache RocketMQ 5, IndexFile, IndexHeader, IndexService.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tern_wire.errors import RecordMalformed
from tern_wire.records.java_hashes import Numbers, slot_hash
from tern_wire.records.layout import ROLLED_BACK, TRANSACTION, Bytes

INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_HEADER_SIZE_BYTES = INDEX_HEADER.size
INDEX_SLOT_SIZE_BYTES = 4
INDEX_ENTRY = struct.Struct(">iqii")
INDEX_ENTRY_SIZE_BYTES = INDEX_ENTRY.size
# INDEX_ENTRY as columns, big-endian.
INDEX_ROWS = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
# RocketMQ's own proportion: 5,000,000 slots (maxHashSlotNum) and 20,000,000 entries (maxIndexNum).
ENTRIES_PER_SLOT = 4
_SLOT = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexHeader:
    """The first 40 bytes of an index file.

    Times are ms since the epoch, positions are bytes of the commit log; *next_entry* is at least 1.
    """

    begin_ms: int
    end_ms: int
    begin_position: int
    end_position: int
    used_slots: int
    next_entry: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One entry of an index file.

    *number*: from 1. *key_hash*: of the key. *position*: of the record. *seconds*: since the
    header's begin. *previous*: number of the older entry in the chain.
    """

    number: int
    key_hash: int
    position: int
    seconds: int
    previous: int


def read_index_header(data: Bytes) -> IndexHeader:
    """Return the header.

    RecordMalformed for fewer than 40 bytes and for numbers that no broker writes.
    """
    if len(data) < INDEX_HEADER_SIZE_BYTES:
        raise RecordMalformed(position=0, reason=f"an index file has a header of 40 bytes, here are {len(data)}")
    begin_ms, end_ms, begin_position, end_position, used_slots, next_entry = INDEX_HEADER.unpack_from(data)
    if min(begin_ms, begin_position, used_slots) < 0 or end_ms < begin_ms or end_position < begin_position:
        raise RecordMalformed(position=0, reason="no header of an index file: it ends before it begins")
    # Zero is the header of a new file.
    if next_entry < 0 or used_slots > next_entry:
        raise RecordMalformed(position=32, reason=f"{used_slots} slots in use and {next_entry} as the next entry")
    return IndexHeader(
        begin_ms=begin_ms,
        end_ms=end_ms,
        begin_position=begin_position,
        end_position=end_position,
        used_slots=used_slots,
        next_entry=max(next_entry, 1),
    )


def encode_index_header(header: IndexHeader) -> bytes:
    """Return the 40 bytes that `read_index_header` reads."""
    return INDEX_HEADER.pack(
        header.begin_ms,
        header.end_ms,
        header.begin_position,
        header.end_position,
        header.used_slots,
        header.next_entry,
    )


def slots_of(size_bytes: int) -> int:
    """Return the number of slots of a whole file of *size_bytes* with RocketMQ's proportion.

    RecordMalformed if no such file has that size.
    """
    each = INDEX_SLOT_SIZE_BYTES + ENTRIES_PER_SLOT * INDEX_ENTRY_SIZE_BYTES
    slots, rest = divmod(size_bytes - INDEX_HEADER_SIZE_BYTES, each)
    if slots < 1 or rest:
        raise RecordMalformed(position=0, reason=f"{size_bytes} bytes are not a header and 1 slot for every 4 entries")
    return slots


def entry_start(slots: int, number: int) -> int:
    """Return the byte at which entry *number* of a file with *slots* begins."""
    return INDEX_HEADER_SIZE_BYTES + slots * INDEX_SLOT_SIZE_BYTES + number * INDEX_ENTRY_SIZE_BYTES


def read_index_entry(data: Bytes, start: int, number: int) -> IndexEntry:
    """Return entry *number*, which lies at *start* of *data*.

    RecordMalformed if the entry is cut, or its previous entry is not an older one.
    """
    if start < 0 or start + INDEX_ENTRY_SIZE_BYTES > len(data):
        raise RecordMalformed(position=start, reason=f"entry {number} runs past {len(data)} bytes")
    key_hash, position, seconds, previous = INDEX_ENTRY.unpack_from(data, start)
    # Chains lead to older entries only, so that each chain ends.
    if key_hash < 0 or position < 0 or not 0 <= previous < number:
        reason = f"entry {number} has hash {key_hash}, position {position} and follows entry {previous}"
        raise RecordMalformed(position=start, reason=reason)
    return IndexEntry(number=number, key_hash=key_hash, position=position, seconds=seconds, previous=previous)


def chain(data: Bytes, slots: int, key_hash: int) -> Iterator[IndexEntry]:
    """Yield the entries in the slot of *key_hash* (0 to 2^31 - 1), newest first, of any hash.

    Raises the errors of `read_index_entry`.
    """
    header = read_index_header(data)
    at = INDEX_HEADER_SIZE_BYTES + key_hash % slots * INDEX_SLOT_SIZE_BYTES
    if at + INDEX_SLOT_SIZE_BYTES > len(data):
        raise RecordMalformed(position=at, reason=f"slot {key_hash % slots} runs past {len(data)} bytes")
    number = _SLOT.unpack_from(data, at)[0]
    if not 0 <= number < header.next_entry:
        raise RecordMalformed(position=at, reason=f"a slot names entry {number} of {header.next_entry - 1}")
    while number:
        entry = read_index_entry(data, entry_start(slots, number), number)
        yield entry
        number = entry.previous


def look_up(
    files: Iterable[Bytes],
    topic: str,
    key: str,
    *,
    count: int = 64,
    begin_ms: int = 0,
    end_ms: int = (1 << 63) - 1,
    slots: int = 0,
) -> list[int]:
    """Return the positions of at most *count* records with the hash of `topic#key`, newest first.

    Only records stored in *begin_ms* to *end_ms* count, exact to the second, as in the files.
    *files* are whole index files, the newest first; *slots* is 0 if they have RocketMQ's
    proportion. Raises the errors of `read_index_entry`.
    """
    wanted = slot_hash(f"{topic}#{key}")
    found: list[int] = []
    for data in files:
        header = read_index_header(data)
        for entry in chain(data, slots or slots_of(len(data)), wanted):
            if len(found) >= count:
                return found
            if entry.key_hash == wanted and begin_ms <= header.begin_ms + 1000 * entry.seconds <= end_ms:
                found.append(entry.position)
    return found


def is_indexed(sysflags: Numbers) -> npt.NDArray[np.bool_]:
    """A mask of the records that an index holds: all but rolled-back half messages."""
    return np.isin(sysflags & TRANSACTION, ROLLED_BACK, invert=True)
