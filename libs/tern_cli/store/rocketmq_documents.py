"""RocketMQ's records and entries as documents, with the names of RocketMQ's own classes. Pure."""

from base64 import b64encode
from typing import Any

from tern_wire.limits import ROCKETMQ_RECORD_SIZE_MAX_BYTES
from tern_wire.records.hosts import host_text
from tern_wire.records.index_layout import IndexEntry, IndexHeader
from tern_wire.records.layout import MAGICS
from tern_wire.records.queue_entry import QueueEntry
from tern_wire.records.read import RocketRecord


def record_document(record: RocketRecord, physical_offset: int) -> dict[str, Any]:
    """Return *record*, at byte *physical_offset* of the commit log, as a document.
    `commitLogOffset` is the record's own claim of its place, `storedBodyCRC32Masked` is computed
    from the stored body, `body` is base64 after unpacking, numbers are Java's (signed).
    RecordMalformed if the body cannot be unpacked.
    """
    body = record.plain_body(ROCKETMQ_RECORD_SIZE_MAX_BYTES)
    return {
        "physicalOffset": physical_offset,
        "totalSize": record.size_bytes,
        "magic": _signed(MAGICS[record.version]),
        "version": record.version,
        "bodyCRC": _signed(record.body_crc),
        "topic": record.topic_name,
        "queueId": _signed(record.queue),
        "flag": record.flag,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.position,
        "sysFlag": record.sysflag,
        "sysFlagAfterDecompress": record.plain_sysflag(),
        "bornTimestamp": record.born_ms,
        "bornHost": host_text(record.born_host),
        "storeTimestamp": record.stored_ms,
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.attempts,
        "preparedTransactionOffset": record.prepared_position,
        "storedBodyLength": len(record.body),
        "bodyLength": len(body),
        "compression": record.compression.name,
        "body": b64encode(body).decode(),
        "storedBodyCRC32Masked": record.stored_body_crc,
        "properties": record.property_map(),
        "msgId": record.offset_id,
    }


def entry_document(entry: QueueEntry) -> dict[str, Any]:
    """Return one entry of a consume queue."""
    return {
        "queueOffset": entry.offset,
        "physicalOffset": entry.position,
        "size": entry.size_bytes,
        "tagsCode": entry.tag_code,
    }


def header_document(header: IndexHeader, name: str, size_bytes: int) -> dict[str, Any]:
    """Return an index file's header.
    `indexCount` is the number of the next entry: the count plus one.
    """
    return {
        "file": name,
        "fileSize": size_bytes,
        "beginTimestamp": header.begin_ms,
        "endTimestamp": header.end_ms,
        "beginPhyOffset": header.begin_position,
        "endPhyOffset": header.end_position,
        "hashSlotCount": header.used_slots,
        "indexCount": header.next_entry,
    }


def index_document(entry: IndexEntry, header: IndexHeader) -> dict[str, Any]:
    """Return one entry of an index file. `storeTimestamp` is exact to the second."""
    return {
        "index": entry.number,
        "slotHash": entry.key_hash,
        "physicalOffset": entry.position,
        "storeTimestamp": header.begin_ms + 1000 * entry.seconds,
        "previousIndex": entry.previous,
    }


def _signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number
