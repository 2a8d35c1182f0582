"""Entries of RocketMQ's consume queues, which map offsets of a queue to records of the commit log.

    0              8        12           20
    | position 8   | size 4 | tag code 8 |    big-endian; offset n is at byte 20 * n of the queue

A tag code is Java's hash of the tag, or, in SCHEDULE_TOPIC_*, the time when the message is due
(ms). If a queue begins in the middle of a file, pre-blanks (0, 0x7FFFFFFF, 0) fill the places
before it; zeros follow the last entry. Files hold a whole number of entries and are named by their
first byte.

Reference: Apache RocketMQ 5, ConsumeQueue (CQ_STORE_UNIT_SIZE, fillPreBlank).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tern_wire.errors import RecordMalformed
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.java_hashes import Numbers
from tern_wire.records.layout import COMMITTED, TRANSACTION, Bytes

QUEUE_ENTRY_SIZE_BYTES = QUEUE_ENTRIES.itemsize
PRE_BLANK_SIZE = 0x7FFFFFFF
PRE_BLANK = (0).to_bytes(8, "big") + PRE_BLANK_SIZE.to_bytes(4, "big") + (0).to_bytes(8, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """One entry: offset in the queue, position in the commit log (bytes), size and tag code."""

    offset: int
    position: int
    size_bytes: int
    tag_code: int


def read_queue_entries(data: Bytes, first_offset: int = 0) -> tuple[list[QueueEntry], int]:
    """Return the entries in *data* without pre-blanks, and the number of written bytes of *data*.

    The first entry has *first_offset*. An entry of zeros ends the written bytes. RecordMalformed,
    with the position in *data*, for an entry that no broker writes and for a cut one.
    """
    whole = len(data) - len(data) % QUEUE_ENTRY_SIZE_BYTES
    table = np.frombuffer(data, QUEUE_ENTRIES, count=whole // QUEUE_ENTRY_SIZE_BYTES)
    ends = np.flatnonzero((table["size"] == 0) & (table["position"] == 0) & (table["tag"] == 0))
    count = int(ends[0]) if len(ends) else len(table)
    written = table[:count]
    bad = np.flatnonzero((written["size"] <= 0) | (written["position"] < 0))
    if len(bad):
        position, size, _ = written[bad[0]].item()
        reason = f"an entry says {size} bytes at position {position} of the commit log"
        raise RecordMalformed(position=int(bad[0]) * QUEUE_ENTRY_SIZE_BYTES, reason=reason)
    if not len(ends) and whole != len(data):
        raise RecordMalformed(position=whole, reason=f"an entry of {len(data) - whole} bytes; they have 20")
    return list(_entries(written, first_offset)), count * QUEUE_ENTRY_SIZE_BYTES


def _entries(written: npt.NDArray[np.void], first_offset: int) -> Iterator[QueueEntry]:
    for number, (position, size, tag_code) in enumerate(written.tolist()):
        if size != PRE_BLANK_SIZE:
            yield QueueEntry(offset=first_offset + number, position=position, size_bytes=size, tag_code=tag_code)


def is_queued(sysflags: Numbers) -> npt.NDArray[np.bool_]:
    """A mask of the records that get an entry: all but prepared or rolled-back half messages."""
    return np.isin(sysflags & TRANSACTION, (0, COMMITTED))
