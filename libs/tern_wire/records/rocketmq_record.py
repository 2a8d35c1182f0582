r"""RocketMQ's message record whole and exact: both versions, IPv4 and IPv6 hosts, every field, bytes that round-trip.

     0        4         8          12        16       20               28           36          40
     | size 4 | magic 4 | body crc | queue 4 | flag 4 | queue offset 8 | position 8 | sysflag 4 | born ms 8 ...
     48                    +8 or 20    +8                      +8 or 20     +4                    +8
     | born host 8 (v6 20) | store ms 8 | store host 8 (v6 20) | attempts 4 | prepared position 8 | body size 4 ...
     | body ... | topic size 1 (version 2: 2) | topic ... | properties size 2 | k \x01 v \x02 ... |

All integers are big-endian. Version 2 is written for topics of more than 127 bytes. At the end of a file stands a blank:
`| size 4 | magic 4 |`, whose size reaches to the file's end. `tern_wire.records.record` writes the form that our own log has.
Law: what decodes encodes to the same bytes; nothing but RecordMalformed is raised, and nothing larger than the input made.
Reference: Apache RocketMQ 5, MessageDecoder, MessageExtEncoder, MessageVersion, MessageSysFlag, CommitLog.
"""

import struct
from dataclasses import dataclass
from zlib import crc32

from tern_wire.errors import RecordMalformed
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.records.compression import COMPRESSED, Compression, compression_of, decompress
from tern_wire.records.hosts import IPV4_HOST_SIZE_BYTES, IPV6_HOST_SIZE_BYTES
from tern_wire.records.message_id import encode_offset_id
from tern_wire.records.record import HEAD, MAGIC, OVERHEAD_SIZE_BYTES, Bytes

MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
BLANK = struct.Struct(">II")
VERSIONS = {MAGIC: 1, MAGIC_V2: 2}
MAGICS = {version: magic for magic, version in VERSIONS.items()}
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
TRANSACTION = 0xC
PREPARED, COMMITTED, ROLLED_BACK = 0x4, 0x8, 0xC
AT_SYSFLAG = 36
# Java reads the topic's size as a signed byte or short, that of the properties as a signed short.
TOPIC_SIZE_MAX_BYTES = {1: 0x7F, 2: 0x7FFF}
PROPERTIES_SIZE_MAX_BYTES = 0x7FFF
_NUMBER = struct.Struct(">i")
# HEAD with each host as long as two bits of the sysflag say.
_BEFORE, _BETWEEN, _AFTER = HEAD.format.split(f"{IPV4_HOST_SIZE_BYTES}s")
HEADS = {
    flags: struct.Struct(
        f"{_BEFORE}{IPV6_HOST_SIZE_BYTES if flags & BORN_HOST_IPV6 else IPV4_HOST_SIZE_BYTES}s"
        f"{_BETWEEN}{IPV6_HOST_SIZE_BYTES if flags & STORE_HOST_IPV6 else IPV4_HOST_SIZE_BYTES}s{_AFTER}"
    )
    for flags in (0, BORN_HOST_IPV6, STORE_HOST_IPV6, BORN_HOST_IPV6 | STORE_HOST_IPV6)
}
_HOSTS = BORN_HOST_IPV6 | STORE_HOST_IPV6


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketRecord:
    """One record, field for field. Times are ms since the epoch, hosts are host fields (8 or 20 bytes).

    *body* is as stored (perhaps compressed), *topic* and *properties* are the bytes themselves. *attempts* is RocketMQ's
    RECONSUMETIMES, *prepared_position* where the transaction's half message lies.
    """

    version: int
    body_crc: int
    queue: int
    flag: int
    queue_offset: int
    position: int
    sysflag: int
    born_ms: int
    born_host: bytes
    stored_ms: int
    store_host: bytes
    attempts: int
    prepared_position: int
    body: bytes
    topic: bytes
    properties: bytes

    @property
    def size_bytes(self) -> int:
        """The whole record's size."""
        hosts = len(self.born_host) + len(self.store_host) - 2 * IPV4_HOST_SIZE_BYTES
        return OVERHEAD_SIZE_BYTES + hosts + self.version - 1 + len(self.body) + len(self.topic) + len(self.properties)

    @property
    def topic_name(self) -> str:
        """The topic as text."""
        return self.topic.decode("utf-8", "replace")

    @property
    def compression(self) -> Compression:
        """How the body is stored; RecordMalformed for a compression that RocketMQ does not have."""
        return compression_of(self.sysflag)

    @property
    def offset_id(self) -> str:
        """The id that says where the record lies: store host and position, 32 or 56 hex digits."""
        return encode_offset_id(self.store_host, self.position)

    @property
    def stored_body_crc(self) -> int:
        """The checksum of the body as stored; a sound record has it in *body_crc*."""
        return crc32(self.body) & 0x7FFFFFFF

    def property_map(self) -> dict[str, str]:
        """The properties as RocketMQ reads them."""
        return read_properties(self.properties)

    def plain_body(self, size_max_bytes: int = MESSAGE_BODY_SIZE_MAX_BYTES) -> bytes:
        """The body as it was sent, at most *size_max_bytes*; errors as `tern_wire.records.compression.decompress`."""
        # RocketMQ unpacks no body that is empty, whatever the sysflag says.
        return decompress(self.body, self.compression, size_max_bytes) if self.body else b""

    def plain_sysflag(self) -> int:
        """The sysflag that a client sees, whose body is unpacked: bit 0 cleared."""
        return self.sysflag & ~COMPRESSED


def read_properties(data: bytes) -> dict[str, str]:
    """Properties as RocketMQ reads them: pairs without a separator, a name or a value do not count; of equal names the last."""
    pairs = (item.partition("\x01") for item in data.decode("utf-8", "replace").split("\x02"))
    return {name: value for name, _, value in pairs if name and value}


def decode_rocketmq_record(data: Bytes, start: int = 0) -> RocketRecord:
    """The record at *start*; RecordMalformed when it does not lie wholly inside *data* or its sizes do not add up."""
    room = len(data) - start
    if start < 0 or room < OVERHEAD_SIZE_BYTES:
        raise RecordMalformed(
            position=start, reason=f"a record has {OVERHEAD_SIZE_BYTES} bytes at least, here are {room}"
        )
    size, magic = BLANK.unpack_from(data, start)
    version = VERSIONS.get(magic)
    if version is None:
        raise RecordMalformed(position=start, reason=f"no record begins here (magic {magic:#010x})")
    head = HEADS[_NUMBER.unpack_from(data, start + AT_SYSFLAG)[0] & _HOSTS]
    if size > room or size < head.size + version + 2:
        raise RecordMalformed(position=start, reason=f"a record claims {size} bytes where {room} are left")
    (_, _, crc, queue, flag, queue_offset, position, sysflag, born_ms, born_host, *rest) = head.unpack_from(data, start)
    stored_ms, store_host, attempts, prepared, body_size = rest
    body_at, end = start + head.size, start + size
    topic_at = body_at + body_size + version
    if topic_at + 2 > end:
        raise RecordMalformed(position=start, reason=f"a body of {body_size} bytes does not fit into {size}")
    topic_end = topic_at + int.from_bytes(data[topic_at - version : topic_at], "big")
    if topic_end - topic_at > TOPIC_SIZE_MAX_BYTES[version] or topic_end + 2 > end:
        raise RecordMalformed(position=start, reason=f"a topic of {topic_end - topic_at} bytes does not fit")
    properties_size = int.from_bytes(data[topic_end : topic_end + 2], "big")
    if properties_size > PROPERTIES_SIZE_MAX_BYTES or topic_end + 2 + properties_size != end:
        raise RecordMalformed(position=start, reason=f"properties of {properties_size} bytes do not end where it ends")
    return RocketRecord(
        version=version,
        body_crc=crc,
        queue=queue,
        flag=flag,
        queue_offset=queue_offset,
        position=position,
        sysflag=sysflag,
        born_ms=born_ms,
        born_host=born_host,
        stored_ms=stored_ms,
        store_host=store_host,
        attempts=attempts,
        prepared_position=prepared,
        body=bytes(data[body_at : topic_at - version]),
        topic=bytes(data[topic_at:topic_end]),
        properties=bytes(data[topic_end + 2 : end]),
    )


def encode_rocketmq_record(record: RocketRecord) -> bytes:
    """The bytes of *record*; RecordMalformed when a field does not fit, or the hosts' sizes disagree with the sysflag."""
    if record.version not in MAGICS or len(record.topic) > TOPIC_SIZE_MAX_BYTES[record.version]:
        raise RecordMalformed(
            position=0, reason=f"a topic of {len(record.topic)} bytes does not fit version {record.version}"
        )
    if len(record.properties) > PROPERTIES_SIZE_MAX_BYTES:
        raise RecordMalformed(position=0, reason=f"properties of {len(record.properties)} bytes do not fit")
    head, size = HEADS[record.sysflag & _HOSTS], record.size_bytes
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
    """The 8 bytes that say that the last *size_bytes* (8 to 2^31 - 1) of a commit-log file hold nothing."""
    if not BLANK.size <= size_bytes <= 0x7FFFFFFF:
        raise RecordMalformed(position=0, reason=f"a blank has 8 bytes at least, not {size_bytes}")
    return BLANK.pack(size_bytes, MAGIC_BLANK)
