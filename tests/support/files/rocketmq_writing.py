"""What RocketMQ's brokers and clients write and nothing of ours does: compressed bodies' flags, checksums in properties, queue entries of records.

Reference: Apache RocketMQ 5, MessageSysFlag, CommitLog (enabledAppendPropCRC), ConsumeQueue.
"""

from zlib import crc32

import numpy as np
import numpy.typing as npt

from tern_wire.errors import RecordMalformed
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import RecordColumns
from tern_wire.records.compression import COMPRESSED, Compression
from tern_wire.records.java_hashes import slot_hash
from tern_wire.records.key_hashes import tag_codes
from tern_wire.records.layout import PROPERTIES_SIZE_MAX_BYTES, ROLLED_BACK, SIZE, TRANSACTION, Bytes
from tern_wire.records.read import RocketRecord, decode_rocketmq_record

CRC_PROPERTY = b"__CRC32#"
# Name, separator, ten digits, separator.
CRC_PROPERTY_SIZE_BYTES = len(CRC_PROPERTY) + 12
# The number of a compression in the sysflag.
_TYPE_SHIFT, _TYPE_MASK = 8, 0x7


def compressed_sysflag(sysflag: int, compression: Compression) -> int:
    """*sysflag* with the bits for *compression*, all others kept."""
    kept = sysflag & ~(COMPRESSED | _TYPE_MASK << _TYPE_SHIFT)
    return kept | (COMPRESSED | compression << _TYPE_SHIFT if compression else 0)


def queue_entries_of(columns: RecordColumns, first_position: int) -> npt.NDArray[np.void]:
    """The entry of each record, shape (n,) of QUEUE_ENTRIES, when *columns* begin at *first_position* of the commit log.

    Records in SCHEDULE_TOPIC_* get their tag's code here as well; a broker writes the time at which they are due.
    """
    entries = np.zeros(len(columns), QUEUE_ENTRIES)
    entries["position"] = columns.starts + first_position
    entries["size"] = columns.heads["size"]
    entries["tag"] = tag_codes(columns)
    return entries


def index_hashes(record: RocketRecord, *, tags: bool = True) -> list[int]:
    """Under which hashes RocketMQ indexes *record*, in the order of IndexService.buildIndex."""
    if record.sysflag & TRANSACTION == ROLLED_BACK:
        return []
    properties, topic = record.property_map(), record.topic_name
    names = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
    names += [key for key in properties.get("KEYS", "").split(" ") if key]
    names += [f"T#{properties['TAGS']}"] if tags and "TAGS" in properties else []
    return [slot_hash(f"{topic}#{name}") for name in names]


def decode_all(data: bytes) -> list[RocketRecord]:
    """One record after the other."""
    found, at = [], 0
    while at < len(data):
        found.append(decode_rocketmq_record(data, at))
        at += found[-1].size_bytes
    return found


def append_crc_property(data: bytes) -> bytes:
    """*data*, one encoded record, with `__CRC32#` as its last property, as brokers with enabledAppendPropCRC write it.

    The checksum covers the finished record without the property itself, so queue offset and position must be filled in.
    """
    record = decode_rocketmq_record(data)
    if record.size_bytes != len(data):
        raise RecordMalformed(position=record.size_bytes, reason="more than one record")
    # A separator in front of it, should the last property lack one.
    gap = b"\x02" if record.properties and not record.properties.endswith(b"\x02") else b""
    at = len(data) - len(record.properties) - 2
    properties_size = len(record.properties) + len(gap) + CRC_PROPERTY_SIZE_BYTES
    if properties_size > PROPERTIES_SIZE_MAX_BYTES:
        raise RecordMalformed(position=at, reason=f"properties of {properties_size} bytes do not fit")
    size = SIZE.pack(len(data) + len(gap) + CRC_PROPERTY_SIZE_BYTES)
    sealed = b"".join((size, data[4:at], properties_size.to_bytes(2, "big"), record.properties, gap))
    return sealed + _crc_property(sealed)


def crc_property_holds(data: Bytes, start: int, size_bytes: int) -> bool | None:
    """Whether the record of *size_bytes* at *start* is as its `__CRC32#` says; None when it carries none at its end."""
    end = start + size_bytes
    found = bytes(data[max(start, end - CRC_PROPERTY_SIZE_BYTES) : end])
    if not found.startswith(CRC_PROPERTY + b"\x01"):
        return None
    return found == _crc_property(data[start : end - CRC_PROPERTY_SIZE_BYTES])


def _crc_property(covered: Bytes) -> bytes:
    """`__CRC32#`, the checksum of *covered* as ten decimal digits, the lowest first, and the separators."""
    digits = f"{crc32(covered) & 0x7FFFFFFF:010}"[::-1]
    return CRC_PROPERTY + b"\x01" + digits.encode() + b"\x02"
