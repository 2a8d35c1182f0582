"""Writers of records: one whole record in either form, and single fields of many records.

The forms are our own and all of RocketMQ's. The layout is drawn in `layout.py`.
"""

import struct
from zlib import crc32

import numpy as np

from tern_wire.errors import RecordMalformed
from tern_wire.records.columns import windows
from tern_wire.records.hosts import NO_HOST
from tern_wire.records.java_hashes import Numbers
from tern_wire.records.layout import (
    AT_BODY_SIZE,
    AT_QUEUE,
    AT_QUEUE_OFFSET,
    AT_STORE_STAMP,
    BLANK,
    HEAD,
    HEADS,
    HOSTS_IPV6,
    MAGIC,
    MAGIC_BLANK,
    MAGICS,
    OVERHEAD_SIZE_BYTES,
    PROPERTIES_SIZE_MAX_BYTES,
    TOPIC_SIZE_MAX_BYTES,
)
from tern_wire.records.read import RocketRecord

# Two numbers of 8 bytes, or one and a host; and one number of 4 bytes.
_STAMP, _NUMBER = np.dtype("V16"), np.dtype(">u4")


def head_middle(queue: int, born_ms: int, born_host: bytes, sysflag: int = 0) -> bytes:
    """Return a new record's head from its queue to its prepared position.

    It is the same for all messages of a request in one queue.
    """
    return HEAD.pack(0, 0, 0, queue, 0, 0, 0, sysflag, born_ms, born_host, 0, NO_HOST, 0, 0, 0)[AT_QUEUE:AT_BODY_SIZE]


def encode_record(
    topic: bytes,
    queue: int,
    body: bytes,
    properties: bytes,
    *,
    born_ms: int,
    born_host: bytes = NO_HOST,
    body_crc: int = -1,
) -> bytes:
    """Return one record in the form of our own log.

    *topic* has at most 127 bytes, *properties* at most 32,767.
    """
    body_size = len(body)
    if body_crc < 0:
        body_crc = crc32(body) & 0x7FFFFFFF
    size = OVERHEAD_SIZE_BYTES + body_size + len(topic) + len(properties)
    head = HEAD.pack(size, MAGIC, body_crc, queue, 0, 0, 0, 0, born_ms, born_host, 0, NO_HOST, 0, 0, body_size)
    return b"".join((head, body, bytes((len(topic),)), topic, len(properties).to_bytes(2, "big"), properties))


def encode_rocketmq_record(record: RocketRecord) -> bytes:
    """Return the bytes of *record*.

    RecordMalformed when a field does not fit, or the hosts' sizes disagree with the sysflag.
    """
    if record.version not in MAGICS or len(record.topic) > TOPIC_SIZE_MAX_BYTES[record.version]:
        raise RecordMalformed(
            position=0, reason=f"a topic of {len(record.topic)} bytes does not fit version {record.version}"
        )
    if len(record.properties) > PROPERTIES_SIZE_MAX_BYTES:
        raise RecordMalformed(position=0, reason=f"properties of {len(record.properties)} bytes do not fit")
    head, size = HEADS[record.sysflag & HOSTS_IPV6], record.size_bytes
    if head.size + record.version + 2 + len(record.body) + len(record.topic) + len(record.properties) != size:
        raise RecordMalformed(position=0, reason=f"hosts are not as long as sysflag {record.sysflag:#x} says")
    try:
        packed = head.pack(
            *(size, MAGICS[record.version], record.body_crc, record.queue, record.flag, record.queue_offset),
            *(record.position, record.sysflag, record.born_ms, record.born_host, record.stored_ms, record.store_host),
            *(record.attempts, record.prepared_position, len(record.body)),
        )
    except struct.error as error:
        raise RecordMalformed(position=0, reason=f"a number does not fit: {error}") from error
    topic_size = len(record.topic).to_bytes(record.version, "big")
    properties_size = len(record.properties).to_bytes(2, "big")
    return b"".join((packed, record.body, topic_size, record.topic, properties_size, record.properties))


def encode_blank(size_bytes: int) -> bytes:
    """Return the 8 bytes that mark the end of a commit-log file as empty.

    *size_bytes*: 8 to 2^31 - 1, the blank included.
    """
    if not BLANK.size <= size_bytes <= 0x7FFFFFFF:
        raise RecordMalformed(position=0, reason=f"a blank has 8 bytes at least, not {size_bytes}")
    return BLANK.pack(size_bytes, MAGIC_BLANK)


def stamp_stored(data: bytearray, starts: Numbers, stored_ms: int, host: bytes) -> None:
    """Write store time and store host (8 bytes) into the records at *starts* of *data*."""
    windows(data, _STAMP)[starts + AT_STORE_STAMP] = np.void(stored_ms.to_bytes(8, "big") + host)


def fill_in(
    data: bytearray | memoryview,
    starts: Numbers,
    offsets: Numbers,
    positions: Numbers,
) -> None:
    """Write queue offset and position into every record of *data*, a copy for readers."""
    if not len(starts):
        return
    pairs = np.empty((len(starts), 2), ">i8")
    pairs[:, 0] = offsets
    pairs[:, 1] = positions
    windows(data, _STAMP)[starts + AT_QUEUE_OFFSET] = pairs.view("V16").reshape(-1)


def fill_queues(data: bytearray, starts: Numbers, queues: Numbers) -> None:
    """Write the number of its queue into each record that begins at *starts* of *data*."""
    windows(data, _NUMBER)[starts + AT_QUEUE] = queues
