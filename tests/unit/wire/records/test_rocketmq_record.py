"""Records of any shape there and back, whole buffers against one at a time, and what damage and bombs may do: nothing."""

import random
import sys
import tracemalloc
import zlib

import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tern_wire.errors import CompressionNotInstalled, RecordMalformed
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import read_columns
from tern_wire.records.compression import Compression, compress, compression_of, decompress
from tern_wire.records.hosts import encode_offset_id, host_text
from tern_wire.records.index_layout import INDEX_ENTRY, INDEX_HEADER, look_up, read_index_header, slots_of
from tern_wire.records.java_hashes import slot_hash, tag_hash
from tern_wire.records.key_hashes import hash_columns, tag_codes
from tern_wire.records.layout import MAGICS, PROPERTIES_SIZE_MAX_BYTES
from tern_wire.records.properties import read_properties
from tern_wire.records.queue_entry import PRE_BLANK, read_queue_entries
from tern_wire.records.read import RocketRecord, decode_rocketmq_record
from tern_wire.records.write import encode_blank, encode_record, encode_rocketmq_record
from tests.support.files.rocketmq_golden import PARTS, golden_part
from tests.support.files.rocketmq_ids import (
    OffsetId,
    UniqueKey,
    decode_offset_id,
    decode_unique_key,
    encode_unique_key,
    host_field,
)
from tests.support.files.rocketmq_writing import (
    CRC_PROPERTY_SIZE_BYTES,
    append_crc_property,
    compressed_sysflag,
    crc_property_holds,
    decode_all,
    index_hashes,
)

INTS, LONGS = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
WORDS = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=8)
PROPERTIES = st.one_of(
    st.binary(max_size=60),
    st.lists(st.tuples(st.one_of(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY"]), WORDS), WORDS), max_size=5).map(
        lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    ),
    st.lists(st.sampled_from([b"KEYS", b"TAGS", b"\x01", b"\x02", b" ", b"a", b"\xc3", b"\xa9"]), max_size=20).map(
        b"".join
    ),
)


@st.composite
def records(draw: st.DrawFn) -> RocketRecord:
    """Any record that can be written."""
    version, sysflag = draw(st.integers(1, 2)), draw(INTS)
    topics = st.one_of(st.binary(max_size=127 if version == 1 else 200), WORDS.map(str.encode))
    return RocketRecord(
        version=version,
        body_crc=draw(st.integers(0, (1 << 32) - 1)),
        queue=draw(st.integers(0, (1 << 32) - 1)),
        flag=draw(INTS),
        queue_offset=draw(LONGS),
        position=draw(LONGS),
        sysflag=sysflag,
        born_ms=draw(LONGS),
        born_host=draw(st.binary(min_size=20, max_size=20))[: 20 if sysflag & 0x10 else 8],
        stored_ms=draw(LONGS),
        store_host=draw(st.binary(min_size=20, max_size=20))[: 20 if sysflag & 0x20 else 8],
        attempts=draw(INTS),
        prepared_position=draw(LONGS),
        body=draw(st.binary(max_size=80)),
        topic=draw(topics),
        properties=draw(PROPERTIES),
    )


@given(st.lists(records(), max_size=6))
def test_a_buffer_of_records_says_what_each_record_says(made: list[RocketRecord]) -> None:
    """Both versions and all hosts mixed: bytes there and back, every column, tag codes and key hashes."""
    raw = [encode_rocketmq_record(record) for record in made]
    data = b"".join(raw)
    columns = read_columns(data)
    assert columns.heads["size"].tolist() == [len(piece) for piece in raw]
    owners, hashes = hash_columns(columns)
    expected = [(number, found) for number, record in enumerate(made) for found in index_hashes(record)]
    assert list(zip(owners.tolist(), hashes.tolist(), strict=True)) == expected
    codes = tag_codes(columns).tolist()
    for number, record in enumerate(made):
        start = int(columns.starts[number])
        assert decode_rocketmq_record(data, start) == record
        head = dict(zip(columns.heads.dtype.names or (), columns.heads[number].tolist(), strict=True))
        assert (head.pop("size"), head.pop("body_size")) == (len(raw[number]), len(record.body))
        assert MAGICS[record.version] == head.pop("magic")
        assert head == {name: getattr(record, name) for name in head}
        for text, at in ((record.body, columns.body_starts), (record.topic, columns.topic_starts)):
            assert data[at[number] : at[number] + len(text)] == text
        assert columns.topic_sizes[number] == len(record.topic)
        assert columns.property_sizes[number] == len(record.properties)
        assert data[columns.property_starts[number] :][: len(record.properties)] == record.properties
        assert codes[number] == tag_hash(record.property_map().get("TAGS", ""))


def test_many_records_are_worked_off_in_blocks() -> None:
    """More property bytes than one block holds, and one record whose properties alone fill it."""
    pieces = [f"TAGS\x01tag{number}\x02KEYS\x01k{number} k{number + 1}\x02".encode() for number in range(4_000)]
    pieces[7] = b"a\x01" + b"x" * 32_000 + b"\x02TAGS\x01Aa\x02"
    data = b"".join(encode_record(b"topic", 0, b"", piece, born_ms=1) for piece in pieces)
    columns = read_columns(data)
    assert tag_codes(columns).tolist() == [tag_hash(read_properties(piece)["TAGS"]) for piece in pieces]
    expected = [slot_hash(f"topic#{key}") for key in ("k9", "k10", "T#tag9")]
    owners, hashes = hash_columns(columns)
    assert hashes[owners == 9].tolist() == expected


def test_no_records_have_empty_columns() -> None:
    """An empty buffer is no error."""
    columns = read_columns(b"")
    assert len(columns) == 0
    assert len(tag_codes(columns)) == len(hash_columns(columns)[0]) == 0


def test_sizes_that_lie_allocate_nothing() -> None:
    """A record that claims 4 GiB of body, topic or itself: refused before anything is made."""
    raw = bytearray(golden_part(".").raw[0])
    tracemalloc.start()
    for at in (0, 84):
        damaged = raw[:at] + b"\xff\xff\xff\xff" + raw[at + 4 :]
        for read in (decode_all, read_columns):
            with pytest.raises(RecordMalformed):
                read(bytes(damaged))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 1 << 20


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("body", [b"", b"a", bytes(60_000), random.Random(5).randbytes(300_000)], ids=len)
def test_bodies_unpack_to_what_was_packed(compression: Compression, body: bytes) -> None:
    """And no cut one passes for whole."""
    packed = compress(body, compression)
    assert decompress(packed, compression) == body
    if compression:
        for cut in {1, len(packed) // 2, len(packed) - 1} - {0, len(packed)}:
            with pytest.raises(RecordMalformed):
                decompress(packed[:cut], compression)
        with pytest.raises(RecordMalformed):
            decompress(b"nothing of the kind", compression)


@pytest.mark.parametrize(
    ("compression", "packed"),
    [
        (Compression.ZLIB, zlib.compress(bytes(64 << 20), 9)),
        (Compression.LZ4, lz4.frame.compress(bytes(64 << 20))),
        (Compression.ZSTD, zstandard.ZstdCompressor(level=19).compress(bytes(64 << 20))),
    ],
    ids=["zlib", "lz4", "zstd"],
)
def test_bombs_are_refused_within_their_limit(compression: Compression, packed: bytes) -> None:
    """64 MiB of zeros in a few KiB: by size, and by ratio even where the size would be allowed."""
    tracemalloc.start()
    with pytest.raises(RecordMalformed, match="unpack to more than"):
        decompress(packed, compression, 1 << 20)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 12 << 20
    if compression is Compression.ZSTD:
        with pytest.raises(RecordMalformed, match="unpack to more than"):
            decompress(packed, compression, 1 << 30)


def test_sysflags_name_the_compression() -> None:
    """No number is zlib (RocketMQ 4), an unknown one is refused; setting one keeps all other bits."""
    assert compression_of(0x300) is Compression.NONE
    assert compression_of(0x1) is Compression.ZLIB
    with pytest.raises(RecordMalformed, match="names compression 5"):
        compression_of(0x501)
    for compression in Compression:
        sysflag = compressed_sysflag(0x731, compression)
        assert (compression_of(sysflag), sysflag & 0x30) == (compression, 0x30)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
def test_a_library_that_is_missing_is_named(compression: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's own dependencies do not include them; zlib always works."""
    for module in ("lz4", "lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(CompressionNotInstalled, match=r"ternmq\[rocketmq\]"):
        decompress(b"x", compression)
    assert decompress(zlib.compress(b"x"), Compression.ZLIB) == b"x"


def test_an_empty_body_needs_no_unpacking() -> None:
    """Whatever the sysflag says, as in RocketMQ."""
    raw = bytearray(encode_record(b"t", 0, b"", b"", born_ms=1))
    raw[39] = 1
    assert decode_rocketmq_record(raw).plain_body() == b""


def test_the_checksum_property_covers_the_whole_record() -> None:
    """Ten digits, lowest first, as brokers with enabledAppendPropCRC write them; every flipped byte before it is seen."""
    for name in PARTS:
        raw = golden_part(name).raw[0]
        assert crc_property_holds(raw, 0, len(raw)) is None
        sealed = append_crc_property(raw)
        record = decode_rocketmq_record(sealed)
        assert len(sealed) == len(raw) + CRC_PROPERTY_SIZE_BYTES
        digits = record.property_map()["__CRC32#"]
        assert int(digits[::-1]) == zlib.crc32(sealed[:-CRC_PROPERTY_SIZE_BYTES]) & 0x7FFFFFFF
        assert encode_rocketmq_record(record) == sealed
        assert crc_property_holds(sealed, 0, len(sealed))
        for at in range(len(sealed) - CRC_PROPERTY_SIZE_BYTES):
            damaged = sealed[:at] + bytes((sealed[at] ^ 1,)) + sealed[at + 1 :]
            assert crc_property_holds(damaged, 0, len(damaged)) is False
    # A last property without its separator gets one first, or the two would be read as one.
    bare = append_crc_property(encode_record(b"t", 0, b"", b"a\x01b", born_ms=1))
    assert decode_rocketmq_record(bare).property_map().keys() == {"a", "__CRC32#"}


def test_what_cannot_be_written_is_refused() -> None:
    """Topics and properties that Java could not read back, hosts that disagree with the sysflag, numbers that do not fit."""
    good = {name: getattr(golden_part(".").records[0], name) for name in RocketRecord.__dataclass_fields__}
    for change in (
        {"topic": b"x" * 128},
        {"version": 3},
        {"properties": bytes(PROPERTIES_SIZE_MAX_BYTES + 1)},
        {"born_host": bytes(20)},
        {"sysflag": 0x20},
        {"flag": 1 << 31},
    ):
        with pytest.raises(RecordMalformed):
            encode_rocketmq_record(RocketRecord(**{**good, **change}))
    assert encode_rocketmq_record(RocketRecord(**{**good, "topic": b"x" * 32_767, "version": 2}))
    with pytest.raises(RecordMalformed):
        encode_blank(7)


def test_properties_read_as_in_rocketmq() -> None:
    """No name, no value or no separator: no property. Of equal names the last; a value may hold the separator."""
    data = b"a\x01b\x02\x01x\x02empty\x01\x02alone\x02a\x01c\x01d\x02last\x01e"
    assert read_properties(data) == {"a": "c\x01d", "last": "e"}


def test_consume_queue_entries_end_where_zeros_begin() -> None:
    """Pre-blanks are left out but count; impossible and cut entries are refused with their place."""
    entry = np.array([(7, 100, -5)], QUEUE_ENTRIES).tobytes()
    entries, written = read_queue_entries(PRE_BLANK + entry + bytes(45), 10)
    assert [(found.offset, found.position, found.size_bytes, found.tag_code) for found in entries] == [(11, 7, 100, -5)]
    assert written == 40
    for bad, at in ((entry + np.array([(7, -1, 0)], QUEUE_ENTRIES).tobytes(), 20), (entry + entry[:19], 20)):
        with pytest.raises(RecordMalformed) as refused:
            read_queue_entries(bad)
        assert refused.value.fields["position"] == at


def test_a_damaged_index_gives_errors_and_no_endless_search() -> None:
    """Chains that lead forward or in circles, slots that name no entry, files cut anywhere."""
    key = slot_hash("t#k")
    whole = bytearray(INDEX_HEADER.pack(1, 2, 0, 9, 1, 3) + (2).to_bytes(4, "big") + bytes(80))
    INDEX_ENTRY.pack_into(whole, 44 + 20, key, 5, 0, 0)
    INDEX_ENTRY.pack_into(whole, 44 + 40, key, 9, 0, 1)
    assert slots_of(len(whole)) == 1
    assert look_up([bytes(whole)], "t", "k") == [9, 5]
    for previous in (2, 3, -1):
        damaged = bytearray(whole)
        INDEX_ENTRY.pack_into(damaged, 44 + 40, key, 9, 0, previous)
        with pytest.raises(RecordMalformed):
            look_up([bytes(damaged)], "t", "k")
    for cut in range(44 + 60):
        with pytest.raises(RecordMalformed):
            look_up([bytes(whole[:cut])], "t", "k", slots=1)
    for header in ((2, 1, 0, 9, 1, 3), (1, 2, 9, 0, 1, 3), (1, 2, 0, 9, 1, -1)):
        with pytest.raises(RecordMalformed):
            read_index_header(INDEX_HEADER.pack(*header))


def test_ids_and_hosts_are_read_and_written() -> None:
    """IPv4 and IPv6 as Java prints them; texts that are no ids or addresses are refused."""
    assert host_text(host_field("127.0.0.1", 10911)) == "127.0.0.1:10911"
    assert host_text(host_field("fe80::1:0", 80)) == "fe80:0:0:0:0:0:1:0:80"
    text = encode_offset_id(host_field("10.1.2.3", 10911), 1 << 40)
    assert text == "0A01020300002A9F0000010000000000"
    assert decode_offset_id(text) == OffsetId(host=host_field("10.1.2.3", 10911), position=1 << 40)
    key = UniqueKey(origin=bytes(6), process=1, loader=0, clock=2, counter=3)
    assert decode_unique_key(encode_unique_key(key)) == key == decode_unique_key("0100000000000000010000000200000003")
    for bad in ("", "xyz", "00" * 15, "zz" * 16, "02" + "00" * 16, "\u0660" * 32):
        with pytest.raises(RecordMalformed):
            decode_unique_key(bad)
    for address, port in (("host", 1), ("1.2.3", 1), ("1.2.3.4", 65_536)):
        with pytest.raises(RecordMalformed):
            host_field(address, port)
