"""Readers of one record: in the form of our own log as texts, or in any form of RocketMQ's.

Law: the result of `decode_rocketmq_record` encodes to the same bytes. A reader raises only its own
error, and allocates nothing larger than the input. The layout is drawn in `layout.py`.
"""

from dataclasses import dataclass
from zlib import crc32

from tern_wire.errors import LinkBodyMalformed, RecordMalformed
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.records.compression import COMPRESSED, Compression, compression_of, decompress, encoding_of
from tern_wire.records.hosts import IPV4_HOST_SIZE_BYTES, encode_offset_id
from tern_wire.records.layout import (
    AT_SYSFLAG,
    BLANK,
    HEAD,
    HEAD_SIZE_BYTES,
    HEADS,
    HOSTS_IPV6,
    MAGIC,
    OVERHEAD_SIZE_BYTES,
    PROPERTIES_SIZE_MAX_BYTES,
    SIZE,
    TOPIC_SIZE_MAX_BYTES,
    VERSIONS,
    Bytes,
)
from tern_wire.records.properties import decode_properties, read_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One decoded record.

    Times are ms since the epoch; *offset* and *position* are 0 in the log itself.
    """

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
    # The name of the body's compression; "": none.
    content_encoding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketRecord:
    """One record, field for field.

    Times are ms since the epoch, hosts are host fields (8 or 20 bytes). *body* is in its stored
    form (perhaps compressed), *topic* and *properties* are bytes. *attempts* is RocketMQ's
    RECONSUMETIMES, *prepared_position* the position of the transaction's half message.
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
        """The size of the whole record."""
        hosts = len(self.born_host) + len(self.store_host) - 2 * IPV4_HOST_SIZE_BYTES
        return OVERHEAD_SIZE_BYTES + hosts + self.version - 1 + len(self.body) + len(self.topic) + len(self.properties)

    @property
    def topic_name(self) -> str:
        """The topic as text."""
        return self.topic.decode("utf-8", "replace")

    @property
    def compression(self) -> Compression:
        """The compression of the body; RecordMalformed for one that RocketMQ does not have."""
        return compression_of(self.sysflag)

    @property
    def offset_id(self) -> str:
        """The id of the record's place: store host and position, 32 or 56 hex digits."""
        return encode_offset_id(self.store_host, self.position)

    @property
    def stored_body_crc(self) -> int:
        """The checksum of the stored body; a sound record has it in *body_crc*."""
        return crc32(self.body) & 0x7FFFFFFF

    def property_map(self) -> dict[str, str]:
        """Return the properties as RocketMQ reads them."""
        return read_properties(self.properties)

    def plain_body(self, size_max_bytes: int = MESSAGE_BODY_SIZE_MAX_BYTES) -> bytes:
        """Return the decompressed body, at most *size_max_bytes* long.

        Raises the errors of `tern_wire.records.compression.decompress`.
        """
        # RocketMQ decompresses no empty body, whatever the sysflag.
        return decompress(self.body, self.compression, size_max_bytes) if self.body else b""

    def plain_sysflag(self) -> int:
        """Return the sysflag for a client, which gets the body decompressed: bit 0 cleared."""
        return self.sysflag & ~COMPRESSED


def decode_record(data: Bytes, start: int = 0) -> Record:
    """Return the record at *start*.

    LinkBodyMalformed when it does not lie wholly inside *data* or has another magic.
    """
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
        content_encoding=encoding_of(head[7]),
    )


def decode_rocketmq_record(data: Bytes, start: int = 0) -> RocketRecord:
    """Return the record at *start*.

    RecordMalformed when it does not lie wholly inside *data* or its sizes do not add up.
    """
    room = len(data) - start
    if start < 0 or room < OVERHEAD_SIZE_BYTES:
        raise RecordMalformed(
            position=start, reason=f"a record has {OVERHEAD_SIZE_BYTES} bytes at least, here are {room}"
        )
    size, magic = BLANK.unpack_from(data, start)
    version = VERSIONS.get(magic)
    if version is None:
        raise RecordMalformed(position=start, reason=f"no record begins here (magic {magic:#010x})")
    head = HEADS[SIZE.unpack_from(data, start + AT_SYSFLAG)[0] & HOSTS_IPV6]
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
