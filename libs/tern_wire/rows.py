"""Fixed-size rows: what travels in front of records, leases and settles so that they are handled as arrays.

A send row, one per record, 48 bytes, little-endian, made by whoever encoded the records:

     0        4         8         12        16            24        28        32
     | size 4 | topic 4 | queue 4 | flags 4 | tag hash 8  | crc 4   | rsvd 4  | key hash 16 |

In a link request *topic* is the number of the name in the request's head; in the log it is the topic's id. *crc* is the
body's, *key hash* that of topic and idempotency key (zeros without FLAG_KEYED).
"""

import struct
from hashlib import blake2b

import numpy as np

FLAG_KEYED = 1

SEND_ROW = struct.Struct("<IIIIqII16s")
SEND_ROWS = np.dtype(
    [
        ("size", "<u4"),
        ("topic", "<u4"),
        ("queue", "<u4"),
        ("flags", "<u4"),
        ("tag", "<i8"),
        ("crc", "<u4"),
        ("reserved", "<u4"),
        ("key", "V16"),
    ]
)
assert SEND_ROWS.itemsize == SEND_ROW.size == 48
NO_KEY = bytes(16)

# RocketMQ's ConsumeQueue entry, 20 bytes, big-endian: position 8, size 4, tag hash 8.
QUEUE_ENTRIES = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])

# One per send row, 16 bytes: what apply decided. `queue` and `offset` are those of the first send when replayed.
SENT, REPLAYED, KEY_REUSED, NO_TOPIC, NO_QUEUE, KEYS_FULL, MALFORMED = range(7)
SEND_VERDICTS = np.dtype([("status", "<u4"), ("queue", "<u4"), ("offset", "<i8")])

# One per run of offsets that a receive leases, 48 bytes. `run` is 0 for messages never leased, else the redelivery run.
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
# One per lease row: the lease's id (0: retry, somebody else took them), its deadline, and which attempt this is (1-based).
LEASE_VERDICTS = np.dtype([("lease", "<i8"), ("deadline_ms", "<i8"), ("attempt", "<i8")])

ACK, EXTEND, RELEASE = 1, 2, 3
# One per settled message, 40 bytes.
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
# One byte per settle row.
SETTLED, LEASE_OVER, LEASE_UNKNOWN = range(3)


def key_hash(topic: bytes, key: bytes) -> bytes:
    """16 bytes that stand for an idempotency key within a topic. 2 M keys collide with a chance below 1e-26."""
    return blake2b(topic + b"\x00" + key, digest_size=16).digest()
