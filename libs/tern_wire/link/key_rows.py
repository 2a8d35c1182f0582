"""Rows of idempotency keys: the first send with a key, 32 bytes, little-endian.

     0               8                16                                 24      28
     | first half 8  | second half 8  | queue 16 bits, offset 48 bits 8  | crc 4 | rsvd 4 |

The halves are those of the key's hash (`rows.key_hash`). A first half of 0 counts as 1, so that 0
can mark an empty slot. *crc* is the body's. With SCHEDULED_QUEUE in *queue*, the message waits or
waited for its delivery time: *offset* is its timer's id (a position in the log). With
PREPARED_QUEUE but not SCHEDULED_QUEUE, it is a half message: its transaction's number has 62 bits,
the upper 14 of them below the flag in *queue*, the others in *offset*.

A receipt, which a leader that has found a key on its disk adds to a SEND command, 24 bytes,
little-endian:

     0       4         8          16      20
     | row 4 | queue 4 | offset 8 | crc 4 | rsvd 4 |

*row* is the number of the send row with the key.
"""

import struct

import numpy as np
import numpy.typing as npt

KEY_ROWS = np.dtype(
    [("first", "<u8"), ("second", "<u8"), ("receipt", "<u8"), ("crc", "<u4"), ("reserved", "<u4")],
)
KEY_ROW_SIZE_BYTES = KEY_ROWS.itemsize
assert KEY_ROW_SIZE_BYTES == 32
RECEIPT_ROWS = np.dtype(
    [("row", "<u4"), ("queue", "<u4"), ("offset", "<u8"), ("crc", "<u4"), ("reserved", "<u4")],
)
RECEIPT_ROW_SIZE_BYTES = RECEIPT_ROWS.itemsize
assert RECEIPT_ROW_SIZE_BYTES == 24
QUEUE_SHIFT, OFFSET_MASK = 48, (1 << 48) - 1
# Far above the queues of a topic (QUEUES_PER_TOPIC_MAX).
SCHEDULED_QUEUE, PREPARED_QUEUE = 1 << 15, 1 << 14

# Queue, offset and body CRC of the first send with a key.
Receipt = tuple[int, int, int]
Halves = npt.NDArray[np.uint64]
_KEY = struct.Struct("<QQ")


def split_keys(keys: bytes) -> tuple[Halves, Halves]:
    """Return the first and second halves of concatenated 16-byte hashes, each of shape (n,)."""
    halves = np.frombuffer(keys, "<u8").reshape(-1, 2)
    return np.maximum(halves[:, 0], np.uint64(1)), halves[:, 1].copy()


def split_key(key: bytes, topic_id: int) -> tuple[int, int]:
    """Return the halves of one hash as `split_keys` does, combined with its topic's id (see
    `sending.keys_of`).
    """
    first, second = _KEY.unpack(key)
    return first ^ topic_id or 1, second


def is_prepared(queue: int) -> bool:
    """Return whether a receipt's *queue* marks a half message."""
    return queue & (SCHEDULED_QUEUE | PREPARED_QUEUE) == PREPARED_QUEUE


def prepared_number(queue: int, offset: int) -> int:
    """Return the transaction's number in a half message's receipt."""
    return (queue & (PREPARED_QUEUE - 1)) << QUEUE_SHIFT | offset


def prepared_receipts(numbers: npt.NDArray[np.int64]) -> tuple[Halves, Halves]:
    """Return the queues and offsets of the receipts of transactions, each of shape (n,)."""
    whole = numbers.astype(np.uint64)
    return whole >> np.uint64(QUEUE_SHIFT) | np.uint64(PREPARED_QUEUE), whole & np.uint64(OFFSET_MASK)
