r"""One message as bytes, in Apache RocketMQ's message layout (version 1, IPv4), and many of them at once with numpy.

     0          4          8          12         16         20              28              36
     | size 4   | magic 4  | body crc | queue 4  | flag 4   | queue offset 8| position 8    | sysflag 4 |
     40             48              56             64              72            76
     | born ms 8    | born host 8   | store ms 8   | store host 8  | attempts 4  | prepared offset 8     |
     84             88
     | body size 4  | body ... | topic size 1 | topic ... | properties size 2 | k \x01 v \x02 ...       |

All integers are big-endian; a host is an IPv4 address (4) and a port (4). In the log, queue offset and position are zero:
they are assigned when the entry is applied, and readers get a copy with both filled in.
Reference: Apache RocketMQ 5, MessageDecoder and MessageExtEncoder.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import numpy.typing as npt

from tern_wire.errors import LinkBodyMalformed

MAGIC = 0xDAA320A7
HEAD = struct.Struct(">IIIIiqqiq8sq8siqI")
HEAD_SIZE_BYTES = HEAD.size
SIZE = struct.Struct(">I")
# Everything but body, topic and properties.
OVERHEAD_SIZE_BYTES = HEAD_SIZE_BYTES + 1 + 2
AT_QUEUE = 12
AT_QUEUE_OFFSET = 20
AT_STORE_STAMP = 56

KEYS = "KEYS"
TAGS = "TAGS"
MESSAGE_ID = "UNIQ_KEY"
CONTENT_TYPE = "MQ_CONTENT_TYPE"
MESSAGE_GROUP = "__SHARDINGKEY"
# When it is to be delivered (ms since 1970), and the delay level that said so.
DELIVER_MS = "TIMER_DELIVER_MS"
DELAY_LEVEL = "DELAY"
# Of a request: what its reply is to carry, where that is to go, and for how long (ms) somebody waits. See replies.py.
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO = "REPLY_TO_CLIENT"
REPLY_WAIT_MS = "TTL"
MESSAGE_TYPE = "MSG_TYPE"
# Of a message that a transaction has stored: "true"; its producer group; and after how many seconds, at least, it was first to be asked about.
TRANSACTIONAL = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
CHECK_AFTER_S = "CHECK_IMMUNITY_TIME_IN_SECONDS"
# Names that RocketMQ or TernMQ give a meaning; users may not set them as properties.
RESERVED_PROPERTIES = frozenset(
    {
        *(KEYS, TAGS, MESSAGE_ID, CONTENT_TYPE, DELAY_LEVEL, "WAIT", "REAL_TOPIC", "REAL_QID", TRANSACTIONAL),
        *(
            PRODUCER_GROUP,
            CHECK_AFTER_S,
            "MIN_OFFSET",
            "MAX_OFFSET",
            "BUYER_ID",
            "ORIGIN_MESSAGE_ID",
            "TRANSFER_FLAG",
            "CORRECTION_FLAG",
        ),
        *("RECONSUME_TIME", "MSG_REGION", "TRACE_ON", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK", "CLUSTER"),
        *(DELIVER_MS, "TIMER_DELAY_SEC", "TIMER_DELAY_MS", MESSAGE_GROUP, "INSTANCE_ID", CORRELATION_ID),
        *(REPLY_TO, REPLY_WAIT_MS, MESSAGE_TYPE, "ARRIVE_TIME", "PUSH_REPLY_TIME"),
        *("__CRC32#", "DLQ_ORIGIN_TOPIC", "RETRY_TOPIC"),
    }
)
NO_HOST = bytes(8)

Bytes = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decoded record. Times are ms since the epoch; *offset* and *position* are 0 in the log itself."""

    topic: str
    queue: int
    offset: int
    position: int
    size_bytes: int
    body_crc: int
    born_ms: int
    stored_ms: int
    body: bytes
    properties: dict[str, str]


def host_bytes(address: str, port: int) -> bytes:
    """`127.0.0.1`, 10911 as the 8 bytes of a host field; anything that is not IPv4 becomes zeros."""
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdecimal() and int(part) < 256 for part in parts):
        return NO_HOST
    return bytes(int(part) for part in parts) + port.to_bytes(4, "big")


def encode_properties(properties: Iterable[tuple[str, str]]) -> bytes:
    r"""`k\x01v\x02...` as UTF-8. The caller has refused control characters in names and values."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties]).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """The properties of a record; pairs without a separator are dropped, as RocketMQ does."""
    pairs = (item.split("\x01", 1) for item in data.decode("utf-8", "replace").split("\x02") if item)
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


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
    """One record as it lies in the log. *topic* has at most 127 bytes, *properties* at most 32,767."""
    body_size = len(body)
    if body_crc < 0:
        body_crc = crc32(body) & 0x7FFFFFFF
    size = OVERHEAD_SIZE_BYTES + body_size + len(topic) + len(properties)
    head = HEAD.pack(size, MAGIC, body_crc, queue, 0, 0, 0, 0, born_ms, born_host, 0, NO_HOST, 0, 0, body_size)
    return b"".join((head, body, bytes((len(topic),)), topic, len(properties).to_bytes(2, "big"), properties))


def decode_record(data: Bytes, start: int = 0) -> Record:
    """The record at *start*; LinkBodyMalformed when it does not lie wholly inside *data* or has another magic."""
    if start < 0 or len(data) - start < OVERHEAD_SIZE_BYTES:
        raise LinkBodyMalformed(reason=f"a record at {start} runs past {len(data)} bytes")
    head = HEAD.unpack_from(data, start)
    size, body_size = head[0], head[14]
    topic_at = start + HEAD_SIZE_BYTES + body_size
    if head[1] != MAGIC or start + size > len(data) or topic_at + 3 > start + size:
        raise LinkBodyMalformed(reason=f"no record at {start}: magic {head[1]:#x}, size {size}")
    properties_at = topic_at + 1 + data[topic_at] + 2
    if properties_at > start + size:
        raise LinkBodyMalformed(reason=f"a record at {start} has a topic that runs past its end")
    return Record(
        topic=str(bytes(data[topic_at + 1 : properties_at - 2]), "utf-8", "replace"),
        queue=head[3],
        offset=head[5],
        position=head[6],
        size_bytes=size,
        body_crc=head[2],
        born_ms=head[8],
        stored_ms=head[10],
        body=bytes(data[start + HEAD_SIZE_BYTES : topic_at]),
        properties=decode_properties(bytes(data[properties_at : start + size])),
    )


def record_starts(data: Bytes) -> npt.NDArray[np.int64]:
    """Where each of the concatenated records begins, shape (n,); LinkBodyMalformed when they do not fill *data*."""
    starts: list[int] = []
    at, end = 0, len(data)
    unpack = SIZE.unpack_from
    while at < end:
        if end - at < OVERHEAD_SIZE_BYTES:
            raise LinkBodyMalformed(reason=f"a record at {at} runs past {end} bytes")
        starts.append(at)
        size = unpack(data, at)[0]
        if size < OVERHEAD_SIZE_BYTES:
            raise LinkBodyMalformed(reason=f"a record at {at} claims {size} bytes")
        at += size
    if at != end:
        raise LinkBodyMalformed(reason=f"the last record runs past {end} bytes")
    return np.array(starts, dtype=np.int64)


def stamp_stored(data: bytearray, starts: npt.NDArray[np.int64], stored_ms: int, host: bytes) -> None:
    """Write store time and store host (8 bytes) into every record of *data* that begins at *starts*."""
    stamp = np.frombuffer(stored_ms.to_bytes(8, "big") + host, np.uint8)
    view = np.frombuffer(data, np.uint8)
    view[starts[:, None] + np.arange(AT_STORE_STAMP, AT_STORE_STAMP + 16)] = stamp


def fill_in(
    data: bytearray | memoryview,
    starts: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
) -> None:
    """Write queue offset and position into every record of *data*: the copy that readers get."""
    if not len(starts):
        return
    pairs = np.empty((len(starts), 2), ">i8")
    pairs[:, 0] = offsets
    pairs[:, 1] = positions
    # Every 16 bytes of the data as one element, overlapping: a write per record instead of one per byte.
    windows = np.ndarray((len(data) - 15,), "V16", data, strides=(1,))
    windows[starts + AT_QUEUE_OFFSET] = pairs.view("V16").reshape(-1)


def fill_queues(data: bytearray, starts: npt.NDArray[np.int64], queues: npt.NDArray[np.int64]) -> None:
    """Write the number of its queue into every record of *data* that begins at *starts*."""
    np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))[starts + AT_QUEUE] = queues


def has_magic(data: Bytes, starts: npt.NDArray[np.int64]) -> bool:
    """Whether a record's magic stands at every one of *starts*."""
    view = np.frombuffer(data, np.uint8)
    found = view[starts[:, None] + np.arange(4, 8)]
    return bool((found == np.frombuffer(MAGIC.to_bytes(4, "big"), np.uint8)).all())


def is_whole(data: Bytes, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> bool:
    """Whether at every one of *starts* lies a record of just that many bytes (its head says so)."""
    if not len(starts):
        return not len(data)
    heads = np.ndarray((len(data) - 7,), "V8", data, strides=(1,))[starts].view(">u4").reshape(-1, 2)
    return bool((heads[:, 0] == sizes).all() and (heads[:, 1] == MAGIC).all())


def tag_hash(tag: str) -> int:
    """Java's `String.hashCode` of *tag* (over UTF-16 units), sign-extended; 0 for no tag. Reference: java.lang.String."""
    value = 0
    units = tag.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def system_properties(message_id: str, tag: str, keys: Iterable[str], content_type: str) -> list[tuple[str, str]]:
    """The properties that TernMQ itself writes, in RocketMQ's names; empty ones are left out."""
    joined = " ".join(keys)
    pairs = [(MESSAGE_ID, message_id)]
    if joined:
        pairs.append((KEYS, joined))
    if tag:
        pairs.append((TAGS, tag))
    if content_type:
        pairs.append((CONTENT_TYPE, content_type))
    return pairs
