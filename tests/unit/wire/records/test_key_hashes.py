"""Hashes of the keys of many records at once against Java's, one by one."""

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_wire.errors import RecordMalformed
from tern_wire.records.columns import columns_at, read_columns, record_starts
from tern_wire.records.java_hashes import Numbers, tag_hash
from tern_wire.records.key_hashes import hash_columns, hash_keys
from tern_wire.records.layout import BORN_HOST_IPV6, COMMITTED, PREPARED, ROLLED_BACK, STORE_HOST_IPV6
from tern_wire.records.properties import encode_properties, system_properties
from tern_wire.records.read import RocketRecord, decode_rocketmq_record
from tern_wire.records.write import encode_record, encode_rocketmq_record
from tests.support.files.rocketmq_golden import PARTS, golden_part
from tests.support.files.rocketmq_writing import index_hashes

# Values that meet every branch: ASCII, two and three bytes, surrogate pairs, long ones; no control characters.
TEXT = st.text(st.characters(min_codepoint=32, codec="utf-8"), max_size=12) | st.sampled_from(
    ["", "a  b", " x ", "é", "😀 k", "k" * 128, "z" * 300, "Aa BB", "polygenelubricants"]
)
ID = st.sampled_from(["0123456789ABCDEF" * 2, "7" * 32, "7" * 31, "é" * 16, "x" * 33, "a b" + "c" * 29])
NAMES = st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "KEY", "KEYSS", "UNIQ_KEYS", "colour", "T"])
PAIRS = st.lists(st.tuples(NAMES, TEXT | ID), max_size=6)
SYSFLAGS = st.sampled_from([0, 0, 0, PREPARED, COMMITTED, ROLLED_BACK, BORN_HOST_IPV6, STORE_HOST_IPV6 | COMMITTED])


def record(topic: str, properties: bytes, sysflag: int = 0, *, version: int = 1, body: bytes = b"body") -> bytes:
    """One record of any shape."""
    return encode_rocketmq_record(
        RocketRecord(
            version=version,
            body_crc=0,
            queue=1,
            flag=0,
            queue_offset=0,
            position=0,
            sysflag=sysflag,
            born_ms=1,
            born_host=bytes(20 if sysflag & BORN_HOST_IPV6 else 8),
            stored_ms=2,
            store_host=bytes(20 if sysflag & STORE_HOST_IPV6 else 8),
            attempts=0,
            prepared_position=0,
            body=body,
            topic=topic.encode(),
            properties=properties,
        )
    )


def check(topic: str, records: list[tuple[bytes, int]], version: int = 1, gap: bytes = b"") -> None:
    """The hashes of these records (properties, sysflag), with *gap* between them, are those of one after the other."""
    data, starts = bytearray(), []
    for properties, sysflag in records:
        data += gap
        starts.append(len(data))
        data += record(topic, properties, sysflag, version=version)
    decoded = [decode_rocketmq_record(data, start) for start in starts]
    for tags in (False, True):
        where = np.array(starts, np.int64)
        owners, hashes = hash_keys(bytes(data), where, topic.encode(), tags=tags)
        expected = [(number, value) for number, each in enumerate(decoded) for value in index_hashes(each, tags=tags)]
        assert list(zip(owners.tolist(), hashes.tolist(), strict=True)) == expected
        for own_topic in (None, topic.encode()):
            owners, hashes = hash_columns(columns_at(bytes(data), where), own_topic, tags=tags)
            assert list(zip(owners.tolist(), hashes.tolist(), strict=True)) == expected


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["orders", "größe", "t" * 127]),
    st.lists(st.tuples(PAIRS, SYSFLAGS, st.booleans()), min_size=1, max_size=8),
    st.sampled_from([1, 2]),
    st.sampled_from([b"", b"\x02KEYS\x01no\x02"]),
)
def test_hashes_are_java_s_for_properties_of_every_shape(
    topic: str, drawn: list[tuple[list[tuple[str, str]], int, bool]], version: int, gap: bytes
) -> None:
    """Any order, any text, names repeated or alike, no value, no last separator, both versions, IPv6, half messages."""
    if len(topic.encode()) > 127:
        version = 2
    records = []
    for pairs, sysflag, is_cut in drawn:
        properties = encode_properties(pairs)
        records.append((properties[:-1] if is_cut else properties, sysflag))
    check(topic, records, version, gap)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(ID, TEXT, st.lists(TEXT, max_size=3), st.lists(st.tuples(NAMES, TEXT), max_size=1)),
        min_size=1,
        max_size=12,
    )
)
def test_hashes_are_java_s_for_records_as_our_proxy_makes_them(
    drawn: list[tuple[str, str, list[str], list[tuple[str, str]]]],
) -> None:
    """Ids of 32 characters first, some of another length or outside ASCII between them; sometimes a name repeated behind."""
    check("orders", [(encode_properties([*system_properties(*row[:3], ""), *row[3]]), 0) for row in drawn])


def test_a_whole_entry_is_hashed_as_each_record() -> None:
    """700 records with a fixed id, keys and tags: several blocks of properties, one record that fills a block."""
    records = []
    for number in range(700):
        keys = [f"order-{number}-{key}" for key in range(number % 4)]
        pairs = system_properties(f"{number * 7919:032X}", "red" if number % 3 else "", keys, "text/plain")
        records.append((encode_properties(pairs), 0))
    check("orders", records)
    words = " ".join(f"{number:x}" for number in range(6000))
    check("orders", [*records[:5], (encode_properties([("KEYS", words)]), 0), *records[5:9]])
    check("orders", [(properties[:42], 0) for properties, _ in records])


def test_a_short_id_is_not_taken_for_a_long_one() -> None:
    """An id and another property that together end where an id of 32 characters would."""
    properties = encode_properties([("UNIQ_KEY", "A" * 20), ("KEYS", "order")])
    assert len(properties) < 42
    properties = encode_properties([("UNIQ_KEY", "A" * 20), ("KEYS", "order" + "s" * (42 - len(properties)))])
    check("orders", [(properties, 0), (encode_properties([("UNIQ_KEY", "B" * 32)]), 0)])


def test_records_without_properties_have_no_hashes() -> None:
    """None at all, empty ones, only rolled-back ones, only others."""
    check("orders", [])
    check("orders", [(b"", 0), (b"", 0)])
    check("orders", [(encode_properties([("UNIQ_KEY", "A" * 32)]), ROLLED_BACK)])
    check("orders", [(encode_properties([("colour", "red")]), 0)])


def test_the_smallest_int_has_no_absolute_value() -> None:
    """`t#` and a word whose hash is -2^31: RocketMQ keeps it under 0."""
    word = "F_IBTUb"  # found by search
    assert tag_hash(f"t#{word}") == -(1 << 31)
    check("t", [(encode_properties([("KEYS", word)]), 0)])


@pytest.mark.parametrize("name", PARTS)
def test_hashes_are_those_of_the_columns_for_a_real_broker_s_records(name: str) -> None:
    """Topic by topic, with tags; `hash_columns` is held to RocketMQ's own index files elsewhere."""
    part = golden_part(name)
    count = 0
    for topic, group in groupby(part.raw, _topic):
        data = b"".join(group)
        owners, hashes = hash_keys(data, record_starts(data), topic, tags=True)
        columns = read_columns(data)
        their_owners, their_hashes = hash_columns(columns)
        assert owners.tolist() == their_owners.tolist()
        assert hashes.tolist() == their_hashes.tolist()
        count += len(hashes)
    assert count > 40


def _topic(raw: bytes) -> bytes:
    columns = read_columns(raw)
    start, size = int(columns.topic_starts[0]), int(columns.topic_sizes[0])
    return raw[start : start + size]


def damaged() -> list[tuple[bytes, Numbers]]:
    """Records whose sizes do not add up, in every field that has one; starts outside the data."""
    good = encode_record(b"orders", 0, b"body", encode_properties([("UNIQ_KEY", "A" * 32)]), born_ms=1)
    start = np.zeros(1, np.int64)
    at_topic = good.index(b"\x06orders")
    found = []
    for at, value in (
        (0, 0xFF),
        (0, 0x7F),
        (3, 1),
        (4, 0),
        (84, 0xFF),
        (87, 99),
        (at_topic, 0xFF),
        (at_topic + 7, 0xFF),
    ):
        bad = bytearray(good)
        bad[at] = value
        found += [(bytes(bad), start), (bytes(bad) + good, start)]
    found += [(good[:-1], start), (good, start + 1), (good, start - 1), (good, start + len(good)), (b"", start)]
    bad = bytearray(good)
    bad[4:8] = (0xDAA320AB).to_bytes(4, "big")  # the other version, and its hosts
    bad[39] = 0x30
    return [*found, (bytes(bad), start)]


@pytest.mark.parametrize(("data", "starts"), damaged())
def test_a_record_that_is_not_sound_is_refused(data: bytes, starts: Numbers) -> None:
    """RecordMalformed, whatever is wrong; never an answer or another error."""
    with pytest.raises(RecordMalformed):
        hash_keys(data, starts, b"orders")
