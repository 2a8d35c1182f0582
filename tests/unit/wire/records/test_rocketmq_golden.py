"""RocketMQ's formats against the files of a real broker 5.5.0: records, queues, index, ids, hashes."""

import json
from base64 import b64decode
from itertools import chain as chained
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import read_columns
from tern_wire.records.hosts import host_text
from tern_wire.records.index_layout import (
    entry_start,
    look_up,
    read_index_entry,
    read_index_header,
    slots_of,
)
from tern_wire.records.java_hashes import slot_hash, tag_hash
from tern_wire.records.key_hashes import hash_columns, tag_codes
from tern_wire.records.layout import BLANK, MAGIC_BLANK, MAGICS
from tern_wire.records.properties import TAGS, encode_properties
from tern_wire.records.queue_entry import is_queued, read_queue_entries
from tern_wire.records.read import RocketRecord, decode_rocketmq_record
from tern_wire.records.write import encode_blank, encode_record, encode_rocketmq_record
from tests.support.files.rocketmq_golden import GOLDEN, NOT_ORDINARY, PARTS, GoldenPart, golden_part
from tests.support.files.rocketmq_ids import decode_offset_id, decode_unique_key, encode_unique_key
from tests.support.files.rocketmq_writing import queue_entries_of


@pytest.fixture(params=PARTS)
def part(request: pytest.FixtureRequest) -> GoldenPart:
    """The main set, the one with long topics (version 2), the one with IPv6."""
    return golden_part(request.param)


def described(record: RocketRecord) -> dict[str, Any]:
    """*record* in the words of RocketMQ's description."""
    body = record.plain_body()
    return {
        "totalSize": record.size_bytes,
        "magic": MAGICS[record.version] - (1 << 32),
        "version": record.version,
        "bodyCRC": record.body_crc,
        "topic": record.topic_name,
        "queueId": record.queue,
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
        "body": body,
        "storedBodyCRC32Masked": record.stored_body_crc,
        "properties": record.property_map(),
        "msgId": record.offset_id,
    }


def test_every_record_decodes_to_its_description_and_encodes_to_its_bytes(part: GoldenPart) -> None:
    """Field for field; compressed bodies unpacked. `sameThroughMessageStore` tells of RocketMQ's own reading, not of the record."""
    assert part.raw
    for raw, row in zip(part.raw, part.described["records"], strict=True):
        record = decode_rocketmq_record(raw)
        expected = {key: value for key, value in row.items() if key != "sameThroughMessageStore"}
        expected["body"] = b64decode(row["body"])
        assert described(record) | {"physicalOffset": row["physicalOffset"]} == expected
        assert encode_rocketmq_record(record) == raw


def test_the_parts_hold_what_they_are_there_for() -> None:
    """Every compression, both versions, both kinds of hosts: otherwise the test above would say less than it seems to."""
    records = [record for name in PARTS for record in golden_part(name).records]
    assert {record.compression.name for record in records} == {"NONE", "LZ4", "ZSTD", "ZLIB"}
    assert {record.version for record in records} == {1, 2}
    assert {len(record.born_host) for record in records} == {8, 20}
    assert sum(record.prepared_position > 0 for record in records) > 1
    assert len(records) == 164 + 38 + 15


def test_the_blank_at_the_end_of_a_file_is_written_as_rocketmq_does() -> None:
    """Its size reaches to the end of the file."""
    (blank,) = golden_part(".").described["endOfFileBlanks"]
    data = (GOLDEN / "commitlog" / ("0" * 20)).read_bytes()[blank["physicalOffset"] :]
    assert data[: BLANK.size] == encode_blank(blank["totalSize"])
    assert BLANK.unpack_from(data) == (65536 - blank["physicalOffset"], MAGIC_BLANK)


def test_consume_queues_built_from_the_commit_log_are_rocketmq_s_own(part: GoldenPart) -> None:
    """Position, size and tag code of every ordinary topic, in bytes; where the code is a time, position and size."""
    columns = read_columns(b"".join(part.raw))
    entries = queue_entries_of(columns, 0)
    # The records are end to end here; in the log a blank lies between two files.
    entries["position"] = columns.heads["position"]
    queued = is_queued(columns.heads["sysflag"])
    queues: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for number, record in enumerate(part.records):
        if queued[number]:
            queues.setdefault((record.topic_name, record.queue), []).append((record.queue_offset, number))
    assert queues.keys() == {(queue["topic"], queue["queueId"]) for queue in part.described["consumeQueues"]}
    for (topic, queue), rows in queues.items():
        folder = part.folder / "consumequeue" / topic / str(queue)
        theirs = np.frombuffer(b"".join(path.read_bytes() for path in sorted(folder.iterdir())), QUEUE_ENTRIES)
        ours = entries[[number for _, number in sorted(rows)]]
        names = ["position", "size"] if topic in NOT_ORDINARY else list(QUEUE_ENTRIES.names or ())
        assert ours[names].tolist() == theirs[names].tolist(), topic
        if topic not in NOT_ORDINARY:
            assert ours.tobytes() == theirs.tobytes()


def test_consume_queue_files_read_as_described(part: GoldenPart) -> None:
    """Every entry of every queue, with its offset across files."""
    for queue in part.described["consumeQueues"]:
        folder = part.folder / "consumequeue" / queue["topic"] / str(queue["queueId"])
        files = sorted(folder.iterdir())
        entries = chained.from_iterable(
            read_queue_entries(path.read_bytes(), int(path.name) // QUEUE_ENTRIES.itemsize)[0] for path in files
        )
        assert [
            {
                "queueOffset": entry.offset,
                "physicalOffset": entry.position,
                "size": entry.size_bytes,
                "tagsCode": entry.tag_code,
            }
            for entry in entries
        ] == queue["entries"]


def test_index_lookups_give_the_offsets_that_rocketmq_s_gave(part: GoldenPart) -> None:
    """Across files, newest first, colliding hashes included; a time range that holds nothing gives nothing."""
    files = part.index_files()
    assert len(part.described["index"]["queries"]) > 20
    for query in part.described["index"]["queries"]:
        topic, key = query["topic"], query["key"]
        assert slot_hash(f"{topic}#{key}") == query["slotHash"]
        assert look_up(files, topic, key) == query["phyOffsets"]
        assert look_up(files, topic, key, count=1) == query["phyOffsets"][:1]
        assert look_up(files, topic, key, end_ms=1) == []


def test_index_entries_are_the_key_hashes_of_the_records_in_order(part: GoldenPart) -> None:
    """Every entry of every index file follows from the commit log; headers are as described."""
    theirs = []
    for data, header in zip(reversed(part.index_files()), part.described["index"]["files"], strict=True):
        found = read_index_header(data)
        assert (found.begin_ms, found.end_ms) == (header["beginTimestamp"], header["endTimestamp"])
        assert (found.begin_position, found.end_position) == (header["beginPhyOffset"], header["endPhyOffset"])
        assert (found.used_slots, found.next_entry) == (header["hashSlotCount"], header["indexCount"])
        for number in range(1, found.next_entry):
            entry = read_index_entry(data, entry_start(slots_of(len(data)), number), number)
            theirs.append((entry.position, entry.key_hash))
    columns = read_columns(b"".join(part.raw))
    owners, hashes = hash_columns(columns)
    assert list(zip(columns.heads["position"][owners].tolist(), hashes.tolist(), strict=True)) == theirs


def test_ids_say_where_a_record_lies_and_what_its_producer_called_it(part: GoldenPart) -> None:
    """Offset ids, and UNIQ_KEYs of remoting clients (IPv4, IPv6) and gRPC clients, there and back."""
    for record in part.records:
        found = decode_offset_id(record.offset_id)
        assert (found.host, found.position) == (record.store_host, record.position)
        key = record.property_map().get("UNIQ_KEY", "")
        if key and len(key) in {32, 34, 56}:
            assert encode_unique_key(decode_unique_key(key)) == key


def test_hash_codes_and_checksums_are_java_s() -> None:
    """400 listed ones: surrogates, collisions, the smallest int; texts that a tag may be are hashed at once, too."""
    listed = json.loads((GOLDEN / "crc_hash.json").read_text("utf-8"))
    assert (len(listed["strings"]), len(listed["bodies"])) == (200, 200)
    tags = {
        row["s"]: row["hashCode"] for row in listed["strings"] if "s" in row and not {"\x01", "\x02"} & set(row["s"])
    }
    assert len(tags) > 100
    data = b"".join(encode_record(b"t", 0, b"", encode_properties([(TAGS, tag)]), born_ms=1) for tag in tags)
    assert tag_codes(read_columns(data)).tolist() == list(tags.values())
    for row in listed["strings"]:
        if "s" in row:
            assert tag_hash(row["s"]) == row["hashCode"]
    for row in listed["bodies"]:
        assert crc32(b64decode(row["body"])) & 0x7FFFFFFF == row["bodyCRC"]


def test_tag_codes_of_a_whole_buffer_are_those_of_each_record(part: GoldenPart) -> None:
    """Long tags, tags outside ASCII, none."""
    codes = tag_codes(read_columns(b"".join(part.raw)))
    assert codes.tolist() == [tag_hash(record.property_map().get("TAGS", "")) for record in part.records]
