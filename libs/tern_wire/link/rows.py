"""Fixed-size rows that precede records, leases and settles, so that these are processed as arrays.

A send row, one per record, 64 bytes, little-endian, made by the encoder of the records:

     0        4         8         12        16           24      28
     | size 4 | topic 4 | queue 4 | flags 4 | tag hash 8 | crc 4 | p.grp 4 |
     32            48             56
     | key hash 16 | deliver_ms 8 | message group hash 8 |

In a link request *topic* is the index of the name in the request's head; in the log it is the
topic's id. *crc* is the body's. *key hash* is that of topic and idempotency key (zeros without
FLAG_KEYED). *deliver_ms* is the delivery time (ms since 1970; 0: at once). *message group hash* is
the `message_group_hash` of the ordering key (0: none).

A row with FLAG_HALF is a half message: stored, and invisible until its transaction is committed.
*p.grp* is its producer group: in a link request the index of the name in the head
(`producer_groups`), in the log the id; 0 in other rows. Its *deliver_ms* is a duration: the time
from the begin of the transaction to its first check (0: the producer group's setting); it has no
message group.

FLAG_SAME_TRANSACTION: the row belongs to the transaction of the previous row, a half row of the
same producer group. Only a transaction's first row may have a key, which then stands for the whole
transaction. FLAG_PINNED: the row has a key and belongs here whatever the topic's placement, because
its sender has chosen the queue. FLAG_SENT_ON: the topic is moving, and the previous owner has
answered MOVED. Without this flag the next owner refuses rows whose key or message group is new to
it there, because the routes of their sender are older than the move.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

FLAG_KEYED, FLAG_HALF, FLAG_SAME_TRANSACTION, FLAG_PINNED, FLAG_SENT_ON = 1, 2, 4, 8, 16
FLAGS = FLAG_KEYED | FLAG_HALF | FLAG_SAME_TRANSACTION | FLAG_PINNED | FLAG_SENT_ON
# Legal flags of a row that is not a half message.
PLAIN_FLAGS = FLAG_KEYED | FLAG_PINNED | FLAG_SENT_ON

SEND_ROW = struct.Struct("<IIIIqII16sqQ")
SEND_ROWS = np.dtype(
    [
        ("size", "<u4"),
        ("topic", "<u4"),
        ("queue", "<u4"),
        ("flags", "<u4"),
        ("tag", "<i8"),
        ("crc", "<u4"),
        ("producer_group", "<u4"),
        ("key", "V16"),
        ("deliver_ms", "<i8"),
        ("message_group", "<u8"),
    ]
)
assert SEND_ROWS.itemsize == SEND_ROW.size == 64
NO_KEY = bytes(16)

# RocketMQ's ConsumeQueue entry, 20 bytes, big-endian: position 8, size 4, tag hash 8.
QUEUE_ENTRIES = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])

# One per record that retention copies forward, 40 bytes, in front of the records as with sends.
# `number` is the offset of a message in its queue (MOVED_MESSAGE), a timer's id (MOVED_TIMER, with
# its due time), a transaction's number (MOVED_HALF, with the index of the message in it, from 0, in
# place of the time), or the number of a staged chunk (MOVED_STAGED, likewise).
MOVED_MESSAGE, MOVED_TIMER, MOVED_HALF, MOVED_STAGED = 1, 2, 3, 4
MOVE_ROWS = np.dtype(
    [
        ("kind", "<u4"),
        ("topic", "<u4"),
        ("queue", "<u4"),
        ("size", "<u4"),
        ("number", "<i8"),
        ("deliver_ms", "<i8"),
        ("tag", "<i8"),
    ]
)
assert MOVE_ROWS.itemsize == 40

# One per send row, 16 bytes: the decision of apply. `queue` and `offset` are those of the first
# send when replayed.
SENT, REPLAYED, KEY_REUSED, NO_TOPIC, NO_QUEUE, KEYS_FULL, MALFORMED = range(7)
# SENT and REPLAYED of a scheduled message: `offset` is its timer's id.
SCHEDULED, SCHEDULED_BEFORE = 7, 8
# The topic's permission forbids writing.
NOT_WRITABLE = 9
# Statuses of half messages: `offset` is the transaction's number, of PREPARED_BEFORE that of the
# first one with this key. TOO_MANY_OPEN: the producer group, or all of them, are at the limit of
# transactions. A transaction is prepared whole or not at all: all rows of a refused one have the
# status of the first refused row.
PREPARED, PREPARED_BEFORE, TOO_MANY_OPEN, NO_PRODUCER_GROUP = 10, 11, 12, 13
# Nothing was stored: the row's key or message group belongs to another broker group now
# (tern_wire/routing/placement.py).
MOVED = 14
SEND_VERDICTS = np.dtype([("status", "<u4"), ("queue", "<u4"), ("offset", "<i8")])

# One per run of offsets that a receive leases, 48 bytes. `run` is 0 for messages never leased, else
# the redelivery run. `invisible_ms` is LEASE_SKIP for messages that the receive's filter has
# dropped: they are settled at once without delivery.
LEASE_SKIP = -1
LEASE_ROWS = np.dtype(
    [
        ("group", "<u4"),
        ("topic", "<u4"),
        ("queue", "<u4"),
        ("count", "<u4"),
        ("start", "<i8"),
        ("run", "<i8"),
        ("version", "<i8"),
        ("invisible_ms", "<i8"),
    ]
)
# Head of a receive in one queue of a FIFO group, 48 bytes, followed by its rows. `token` is the
# hash of the receive's attempt id (zeros: none).
FIFO_HEAD = struct.Struct("<IIIIqq16s")
# One message, 24 bytes. `run`: the run of a returned message, 0 for one that was never leased.
# FIFO_PARK: its message group is blocked, inspect it only. FIFO_OPEN: not a message; `offset` is
# where the group begins in the queue (a first row only).
FIFO_ROWS = np.dtype([("offset", "<i8"), ("message_group", "<u8"), ("run", "<i8")])
# FIFO_SKIP: the receive's filter has dropped it, and it is not delivered.
FIFO_PARK, FIFO_OPEN, FIFO_SKIP = -1, -2, -3
assert (FIFO_HEAD.size, FIFO_ROWS.itemsize) == (48, 24)
# One per lease row, or per row of LEASE_FIFO whose `run` is not below 0: the lease's id (0: retry,
# another receive leased them), its deadline, and the number of this attempt (1-based).
LEASE_VERDICTS = np.dtype([("lease", "<i8"), ("deadline_ms", "<i8"), ("attempt", "<i8")])

ACK, EXTEND, RELEASE, NACK = 1, 2, 3, 4
# One per settled message, 40 bytes. *invisible_ms* of NACK: the retry delay, -1 for the group's.
SETTLE_ROW = struct.Struct("<IIIIqqq")
SETTLE_ROWS = np.dtype(
    [
        ("group", "<u4"),
        ("topic", "<u4"),
        ("queue", "<u4"),
        ("action", "<u4"),
        ("offset", "<i8"),
        ("lease", "<i8"),
        ("invisible_ms", "<i8"),
    ]
)
assert SETTLE_ROWS.itemsize == SETTLE_ROW.size == 40
# One per dead letter, 48 bytes: its queue, its record, its note's size, and the id of its group's
# dead-letter topic.
BURY_ROWS = np.dtype(
    [
        ("group", "<u4"),
        ("topic", "<u4"),
        ("queue", "<u4"),
        ("size", "<u4"),
        ("offset", "<i8"),
        ("position", "<i8"),
        ("tag", "<i8"),
        ("note_size", "<u4"),
        ("dead_topic", "<u4"),
    ]
)
assert BURY_ROWS.itemsize == 48
# One byte per bury row.
BURIED, NOT_DYING = range(2)
# One byte per settle row.
SETTLED, LEASE_OVER, LEASE_UNKNOWN = range(3)


def key_hash(topic: bytes, key: bytes) -> bytes:
    """Return the 16-byte hash of an idempotency key within a topic. 2 M keys collide with a chance
    below 1e-26.
    """
    return blake2b(topic + b"\x00" + key, digest_size=16).digest()


def message_group_hash(message_group: bytes) -> int:
    """Return the hash of a message group, 1 to 2**64 - 1.

    Two that collide are delivered in one order, which breaks no promise.
    """
    return int.from_bytes(blake2b(message_group, digest_size=8).digest(), "little") or 1


@dataclass(frozen=True, slots=True)
class QueueAppend:
    """ConsumeQueue entries for one queue, shape (n,), dtype QUEUE_ENTRIES, the first at
    *first_offset*.
    """

    topic_id: int
    queue: int
    first_offset: int
    entries: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class QueueAppends:
    """ConsumeQueue entries for several queues, grouped by queue; each queue occurs once.

    *codes*: topic id << 32 | queue of each, int64, shape (n,). *firsts*: the first new offset of
    each. *bounds*, shape (n + 1,): where the entries of each begin, and the end of the last.
    *entries*: all of them, dtype QUEUE_ENTRIES.
    """

    codes: npt.NDArray[np.int64]
    firsts: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]
    entries: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[QueueAppend]:
        if len(self.codes) == 1:
            code = int(self.codes[0])
            yield QueueAppend(code >> 32, code & 0xFFFFFFFF, int(self.firsts[0]), self.entries)
            return
        columns = (self.codes.tolist(), self.firsts.tolist(), self.bounds[:-1].tolist(), self.bounds[1:].tolist())
        for code, first, begin, end in zip(*columns, strict=True):
            yield QueueAppend(code >> 32, code & 0xFFFFFFFF, first, self.entries[begin:end])

    def topic_ids(self) -> set[int]:
        """Return the ids of the topics of these queues."""
        if len(self.codes) == 1:
            return {int(self.codes[0]) >> 32}
        ids = self.codes >> 32
        if len(ids) and (ids == ids[0]).all():
            return {int(ids[0])}
        return set(ids.tolist())

    @classmethod
    def of(cls, appends: Iterable[QueueAppend]) -> "QueueAppends":
        """Return the appends of single queues as one value."""
        parts = list(appends)
        entries = np.concatenate([np.empty(0, QUEUE_ENTRIES), *(part.entries for part in parts)]).astype(QUEUE_ENTRIES)
        return cls(
            np.array([part.topic_id << 32 | part.queue for part in parts], np.int64),
            np.array([part.first_offset for part in parts], np.int64),
            np.cumsum([0, *(len(part.entries) for part in parts)]),
            entries,
        )
