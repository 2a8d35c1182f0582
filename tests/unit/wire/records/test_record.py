"""Records against files of a real RocketMQ broker, and whole buffers of records at once against one by one."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_wire.errors import LinkBodyMalformed
from tern_wire.records.columns import is_whole, record_starts
from tern_wire.records.hosts import host_bytes
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.layout import HEAD, HEAD_SIZE_BYTES, MAGIC, OVERHEAD_SIZE_BYTES
from tern_wire.records.properties import decode_properties, encode_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record, fill_in, stamp_stored

GOLDEN = Path(__file__).parents[3] / "golden" / "rocketmq-5"


def golden_records() -> list[bytes]:
    """The records of a segment that RocketMQ wrote, up to its blank end."""
    data = (GOLDEN / "commitlog" / ("0" * 20)).read_bytes()
    records, at = [], 0
    while int.from_bytes(data[at + 4 : at + 8], "big") == MAGIC:
        size = int.from_bytes(data[at : at + 4], "big")
        records.append(data[at : at + size])
        at += size
    return records


def test_records_of_a_real_broker_come_out_byte_for_byte_when_encoded_again() -> None:
    """79 of them: topics, tags, keys, compressed bodies, retries, transactions. What we never write is copied over."""
    records = golden_records()
    assert len(records) == 79
    for raw in records:
        record, head = decode_record(raw), HEAD.unpack_from(raw)
        properties = raw[HEAD_SIZE_BYTES + len(record.body) + 1 + len(record.topic) + 2 :]
        again = bytearray(
            encode_record(
                record.topic.encode(), record.queue, record.body, properties, born_ms=record.born_ms, born_host=head[9]
            )
        )
        stamp_stored(again, np.array([0]), record.stored_ms, head[11])
        fill_in(again, np.array([0]), np.array([record.offset]), np.array([record.position]))
        # Flag, sysflag, attempts and the transaction's position are zero in what this release writes.
        for start, end in ((16, 20), (36, 40), (72, 84)):
            again[start:end] = raw[start:end]
        assert bytes(again) == raw
        assert encode_properties(record.properties.items()) == properties


def test_tag_hashes_are_java_s() -> None:
    """As the broker wrote them into its consume queues, surrogates and collisions included."""
    known = [row for row in json.loads((GOLDEN / "crc_hash.json").read_text())["strings"] if "s" in row]
    assert len(known) > 5
    for row in known:
        expected = row["hashCode"]
        assert tag_hash(row["s"]) == expected, row


NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=12)
MESSAGES = st.lists(
    st.tuples(st.binary(max_size=300), st.integers(0, 1023), st.dictionaries(NAMES, NAMES, max_size=4)),
    min_size=1,
    max_size=20,
)


@given(MESSAGES)
def test_many_records_at_once_are_what_they_are_one_by_one(messages: list[tuple[bytes, int, dict[str, str]]]) -> None:
    """Starts, magics, stamps and filled-in fields over a buffer; every record decodes to what went in."""
    data = bytearray()
    for body, queue, properties in messages:
        data += encode_record(b"topic", queue, body, encode_properties(properties.items()), born_ms=7)
    starts = record_starts(data)
    assert is_whole(data, starts, np.diff(np.append(starts, len(data))))
    numbers = np.arange(len(messages), dtype=np.int64)
    stamp_stored(data, starts, 1234, host_bytes("127.0.0.1", 10911))
    fill_in(data, starts, numbers + 5, numbers * 3)
    for number, (body, queue, properties) in enumerate(messages):
        record = decode_record(data, int(starts[number]))
        assert (body, queue, properties) == (record.body, record.queue, record.properties)
        assert (number + 5, number * 3, 1234, 7) == (record.offset, record.position, record.stored_ms, record.born_ms)


def test_records_are_whole_only_where_their_heads_say_so() -> None:
    """Good ones; another size; another place; another magic."""
    records = [encode_record(b"topic", 0, b"body %d" % number, b"", born_ms=7) for number in range(5)]
    good = b"".join(records)
    starts = record_starts(good)
    sizes = np.array([len(record) for record in records])
    assert is_whole(good, starts, sizes)
    assert not is_whole(good, starts, sizes + 1)
    assert not is_whole(good, starts + 1, sizes)
    for start in starts.tolist():
        assert not is_whole(good[: start + 4] + b"XXXX" + good[start + 8 :], starts, sizes)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_random_bytes_are_refused_or_decoded_and_nothing_else(data: bytes, cut: int) -> None:
    """Also a good record, cut."""
    good = encode_record(b"t", 1, b"body", encode_properties([("a", "b")]), born_ms=7)
    for sample in (data, good[:cut], good + data):
        for read in (decode_record, record_starts):
            try:
                read(sample)
            except LinkBodyMalformed:
                continue


def test_the_smallest_record_has_the_documented_overhead() -> None:
    """91 bytes, as RocketMQ's."""
    assert len(encode_record(b"", 0, b"", b"", born_ms=0)) == OVERHEAD_SIZE_BYTES == 91


@pytest.mark.parametrize(
    ("address", "port", "expected"), [("127.0.0.1", 10911, b"\x7f\0\0\x01\0\0\x2a\x9f"), ("::1", 1, bytes(8))]
)
def test_hosts_are_an_address_and_a_port(address: str, port: int, expected: bytes) -> None:
    """IPv6 does not fit the short form."""
    assert host_bytes(address, port) == expected


def test_properties_without_a_separator_are_dropped() -> None:
    """As RocketMQ does."""
    assert decode_properties(b"a\x01b\x02broken\x02c\x01d") == {"a": "b", "c": "d"}
