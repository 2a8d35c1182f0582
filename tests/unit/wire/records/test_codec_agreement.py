"""The codec bar: 100,000 generated records that both codecs read alike, and cuts, flips and lies that neither believes.

What a changed record may still do: decode, if the change hit a field that carries no check of its own. Then it must encode to
exactly the changed bytes, so it differs where the change was and nowhere else; a changed body no longer has its CRC, and a
record sealed with `__CRC32#` is never found whole after any change. Everything else is a TernError, raised by both codecs.
"""

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any
from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

from tern_wire.errors import LinkBodyMalformed, RecordMalformed
from tern_wire.limits import DECOMPRESSED_SIZE_FREE_BYTES, DECOMPRESSION_RATIO_MAX
from tern_wire.records.columns import read_columns, record_starts
from tern_wire.records.compression import Compression, compress, decompress
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.key_hashes import hash_columns, tag_codes
from tern_wire.records.queue_entry import read_queue_entries
from tern_wire.records.read import RocketRecord, decode_record, decode_rocketmq_record
from tern_wire.records.write import encode_record, encode_rocketmq_record
from tests.support.campaigns import campaign, cases
from tests.support.files.rocketmq_golden import PARTS, golden_part
from tests.support.files.rocketmq_writing import (
    append_crc_property,
    compressed_sysflag,
    crc_property_holds,
    decode_all,
    index_hashes,
    queue_entries_of,
)

RECORDS = cases(100_000, 2_000)
RECORDS_PER_EXAMPLE = 500
CORRUPTIONS = cases(10_000, 500)
# Of the records that are cut and measured, so many are passed over.
STEP = cases(1, 8)
# What Python's and numpy's own objects take beside the bytes: some 30 of about 100 to 1,700 bytes each.
OBJECTS_SIZE_BYTES = 8 << 10
WORDS = (
    "", "a", "order-42", "Tag\u00e9", "\u8ba2\u5355", "\U0001f426 \U0001f427",
    "k1 k2  k3", " ", "x" * 200, "\x01", "AaBB",
)  # fmt: skip
NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "\u00fc", "", "TAGSX", "KEY", "x")
HOST_FLAGS = (0, 0x10, 0x20, 0x30)
NUMBERS = (
    *("body_crc", "queue", "flag", "queue_offset", "position", "sysflag", "born_ms"),
    *("stored_ms", "attempts", "prepared_position"),
)
TAKEN_FROM_HEAD = (*NUMBERS, "body_size")
EMPTY = decode_rocketmq_record(encode_record(b"", 0, b"", b"", born_ms=0))


@cache
def bodies(seed: int, compression: Compression) -> tuple[tuple[bytes, bytes], ...]:
    """(as stored, as sent): empty, compressible, random, Unicode."""
    chance = random.Random(seed)
    plain = (
        b"",
        b"{}",
        b"ab" * chance.randrange(1, 400),
        chance.randbytes(chance.randrange(1, 300)),
        "\U0001f426".encode() * 9,
    )
    return tuple((compress(body, compression) if body else b"", body) for body in plain)


def make_properties(chance: random.Random) -> bytes:
    """None, well-formed ones in any order and number, or bytes that no client would write."""
    kind = chance.random()
    if kind < 0.15:
        return b""
    if kind < 0.9:
        pairs = ((chance.choice(NAMES), chance.choice(WORDS)) for _ in range(chance.randrange(1, 6)))
        return "".join([f"{name}\x01{value}\x02" for name, value in pairs]).encode()[: chance.choice((9, 500))]
    return b"".join(
        chance.choices((b"KEYS", b"TAGS", b"\x01", b"\x02", b" ", b"\xc3", b"\xa9", b"\xff"), k=chance.randrange(20))
    )


def any_shape(chance: random.Random) -> tuple[int, int, Compression]:
    """Version, host bits of the sysflag, compression."""
    return chance.choice((1, 2)), chance.choice(HOST_FLAGS), chance.choice(list(Compression))


def make_record(
    chance: random.Random, sysflag_bits: int, shape: tuple[int, int, Compression]
) -> tuple[RocketRecord, bytes]:
    """Any record of *shape*, with any of *sysflag_bits* that the shape leaves open, and its body as it was sent."""
    version, hosts, compression = shape
    stored, sent = chance.choice(bodies(chance.randrange(8), compression))
    sysflag = compressed_sysflag(chance.getrandbits(32) & sysflag_bits & ~0x30 | hosts, compression)
    topic = (chance.choice(WORDS) or "").encode()[: 127 if version == 1 else 999]
    if version == 2 and chance.random() < 0.02:
        topic *= chance.randrange(1, 32_767 // max(len(topic), 1))
    bits = chance.getrandbits
    record = RocketRecord(
        version=version,
        body_crc=crc32(stored) & 0x7FFFFFFF,
        queue=bits(32),
        flag=bits(32) - (1 << 31),
        queue_offset=bits(64) - (1 << 63),
        position=bits(64) - (1 << 63),
        sysflag=sysflag - (1 << 32 if sysflag >> 31 else 0),
        born_ms=bits(64) - (1 << 63),
        born_host=chance.randbytes(20 if sysflag & 0x10 else 8),
        stored_ms=bits(64) - (1 << 63),
        store_host=chance.randbytes(20 if sysflag & 0x20 else 8),
        attempts=bits(32) - (1 << 31),
        prepared_position=bits(64) - (1 << 63),
        body=stored,
        topic=topic,
        properties=make_properties(chance),
    )
    return record, sent


def columns_say(data: bytes) -> list[tuple[Any, ...]]:
    """What the vectorised codec says of each record of *data*: every number, every text, tag code and key hashes."""
    columns = read_columns(data)
    owners, hashes = (column.tolist() for column in hash_columns(columns))
    by_owner: list[list[int]] = [[] for _ in range(len(columns))]
    for owner, found in zip(owners, hashes, strict=True):
        by_owner[owner].append(found)
    rows = zip(
        columns.heads[list(TAKEN_FROM_HEAD)].tolist(),
        *(columns.body_starts.tolist(), columns.topic_starts.tolist(), columns.topic_sizes.tolist()),
        *(columns.property_starts.tolist(), columns.property_sizes.tolist(), tag_codes(columns).tolist(), by_owner),
        strict=True,
    )
    said = []
    for head, body_at, topic_at, topic_size, properties_at, properties_size, tag, keys in rows:
        texts = (
            *(data[body_at : body_at + head[-1]], data[topic_at : topic_at + topic_size]),
            data[properties_at : properties_at + properties_size],
        )
        said.append((head[:-1], *texts, tag, keys))
    return said


def records_say(records: list[RocketRecord]) -> list[tuple[Any, ...]]:
    """The same of records that were decoded one at a time."""
    return [
        (
            tuple([getattr(record, name) for name in NUMBERS]),
            *(record.body, record.topic, record.properties),
            *(tag_hash(record.property_map().get("TAGS", "")), index_hashes(record)),
        )
        for record in records
    ]


def peak_bytes(work: Callable[[], object]) -> int:
    """How much more than before was allocated at any time while *work* ran. Tracing must be on.

    The least of three times: what is traced is the process, where another thread (of the runner, say) may allocate in just that moment.
    """

    def once() -> int:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before

    return min(once() for _ in range(3))


@campaign
def test_very_many_records_read_alike_in_both_codecs() -> None:
    """Both versions, all hosts, sysflags and compressions, Unicode, empty everything: bytes there and back, in whole buffers."""
    checked = 0

    @settings(max_examples=RECORDS // RECORDS_PER_EXAMPLE, deadline=None)
    @given(seed=st.integers(0, (1 << 32) - 1), sysflag_bits=st.sampled_from((0xFFFFFFFF, 0xFF, 0x30, 0)))
    def agree(seed: int, sysflag_bits: int) -> None:
        nonlocal checked
        chance = random.Random(seed)
        made = [make_record(chance, sysflag_bits, any_shape(chance)) for _ in range(RECORDS_PER_EXAMPLE)]
        records = [record for record, _ in made]
        data = b"".join(map(encode_rocketmq_record, records))
        assert decode_all(data) == records
        said, wanted = columns_say(data), records_say(records)
        for number in range(RECORDS_PER_EXAMPLE):
            assert said[number] == wanted[number], f"seed {seed}, record {number}"
        queued, written = read_queue_entries(queue_entries_of(read_columns(data), 7).tobytes())
        assert (len(queued), written) == (len(records), 20 * len(records))
        assert [entry.size_bytes for entry in queued] == [record.size_bytes for record in records]
        for record, sent in made[:20]:
            assert record.plain_body() == sent
        checked += len(said)

    agree()
    assert checked >= RECORDS


def representatives() -> Iterator[tuple[str, bytes]]:
    """Every version, pair of hosts and compression; empty everything; long topics; sealed with `__CRC32#` and not; a real broker's."""
    chance = random.Random(20_260_801)
    for seal, version, hosts, kind, _ in product(("sealed", "plain"), (1, 2), HOST_FLAGS, Compression, range(5)):
        record, _ = make_record(chance, 0xFF, (version, hosts, kind))
        raw = encode_rocketmq_record(record)
        if len(raw) < 2_000:
            yield seal, append_crc_property(raw) if seal == "sealed" else raw
    for version, hosts in product((1, 2), HOST_FLAGS):
        born_host, store_host = bytes(20 if hosts & 0x10 else 8), bytes(20 if hosts & 0x20 else 8)
        empty = replace(EMPTY, version=version, sysflag=hosts, born_host=born_host, store_host=store_host)
        yield "plain", encode_rocketmq_record(empty)
    for name in PARTS:
        yield from (("plain", raw) for raw in golden_part(name).raw if len(raw) < 2_000)


def one_at_a_time(data: bytes) -> str:
    """Why the codec for one record refuses *data*; empty when it takes it."""
    try:
        decode_all(data)
    except RecordMalformed as error:
        return error.detail
    return ""


def all_at_once(data: bytes) -> str:
    """Why the vectorised codec refuses *data*; empty when it takes it."""
    try:
        read_columns(data)
    except RecordMalformed as error:
        return error.detail
    return ""


def by_our_own_form(data: bytes) -> bool:
    """Whether the reader of our own form (version 1, IPv4) takes *data*; it too knows no error but its own."""
    try:
        for start in record_starts(data).tolist():
            decode_record(data, start)
    except LinkBodyMalformed:
        return False
    return True


@campaign
def test_every_truncation_is_refused_alike() -> None:
    """Each representative cut at every byte, alone and behind a whole record: the same typed error from both codecs."""
    kinds: dict[tuple[str, int, int], bytes] = {}
    for seal, raw in representatives():
        record = decode_rocketmq_record(raw)
        if len(raw) < 700:
            kinds.setdefault((seal, record.version, record.sysflag & 0x30 | record.compression), raw)
    assert len(kinds) == 2 * 2 * 16
    cuts = 0
    for raw in list(kinds.values())[::STEP]:
        for cut in range(1, len(raw)):
            for data, at in ((raw[:cut], 0), (raw + raw[:cut], len(raw))):
                said = one_at_a_time(data)
                assert said == all_at_once(data), (raw.hex(), cut)
                assert said.startswith(f"At byte {at}:"), (raw.hex(), cut)
                assert not by_our_own_form(data), (raw.hex(), cut)
                cuts += 1
    assert cuts > 20_000 // STEP


def corrupt(raw: bytes, chance: random.Random) -> bytes:
    """*raw* with one to four bits flipped, bytes replaced, or a number set to an extreme; never *raw* itself."""
    data = bytearray(raw)
    while data == raw:
        # Sizes and flags lie in the header; half of all hits go there.
        at = chance.randrange(min(128, len(raw)) if chance.random() < 0.5 else len(raw))
        match chance.randrange(3):
            case 0:
                for _ in range(chance.randrange(1, 5)):
                    data[chance.randrange(at, min(at + 8, len(raw)))] ^= 1 << chance.randrange(8)
            case 1:
                data[at] = chance.randrange(256)
            case _:
                hit = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4), chance.randbytes(4)))
                data[at : at + 4] = hit[: len(raw) - at]
    return bytes(data)


@campaign
def test_thousands_of_corruptions_are_refused_or_seen_for_what_they_are() -> None:
    """Both codecs agree on each; what is taken differs only where it was hit; a sealed record never passes for whole."""
    seed = 20_260_802
    chance = random.Random(seed)
    pool = list(representatives())
    refused = taken = crcs = 0
    for number in range(CORRUPTIONS):
        seal, raw = chance.choice(pool)
        data = corrupt(raw, chance)
        try:
            said = one_at_a_time(data)
            assert said == all_at_once(data)
            by_our_own_form(data)
            if said:
                refused += 1
                continue
            taken += 1
            assert seal == "plain" or crc_property_holds(data, 0, len(data)) is not True
            (record,) = decode_all(data)
            assert encode_rocketmq_record(record) == data
            assert columns_say(data) == records_say([record])
            before = decode_rocketmq_record(raw)
            if record.body != before.body and record.body_crc == before.body_crc:
                crcs += 1
                assert record.stored_body_crc != record.body_crc
            with suppress(RecordMalformed):
                record.plain_body()
        except Exception as error:
            raise AssertionError(f"seed {seed}, number {number}: {data.hex()}") from error
    assert refused + taken == CORRUPTIONS
    assert min(refused, taken) > CORRUPTIONS // 10, "the corruptions are all of one kind"
    assert crcs > CORRUPTIONS // 100, "no corruption hit a body"


@campaign
def test_nothing_takes_more_than_twice_the_input() -> None:
    """Whole, cut or corrupted, one record or many of the smallest: the peak of either codec is at most twice the bytes."""
    seed = 20_260_803
    chance = random.Random(seed)
    pool = list(representatives())
    smallest = min([raw for _, raw in pool], key=len)
    mixed = b"".join(raw for _, raw in chance.choices(pool, k=cases(3_000, 150)))
    body = chance.randbytes(2 << 20)
    large = encode_rocketmq_record(replace(EMPTY, body=body, body_crc=crc32(body) & 0x7FFFFFFF))
    many = [smallest * cases(20_000, 500), mixed, mixed[:-1], mixed + b"\xff" * 200, large]
    many += [corrupt(many[0], chance), corrupt(many[-1], chance), corrupt(mixed, chance)]
    tracemalloc.start()
    try:
        few = pool[::STEP]
        for data in [raw for _, raw in few] + [corrupt(raw, chance) for _, raw in few] + many:
            for read in (all_columns, each_record):
                peak = peak_bytes(lambda data=data, read=read: read(data))  # type: ignore[misc]
                assert peak <= 2 * len(data) + OBJECTS_SIZE_BYTES, (seed, len(data), data[:200].hex())
    finally:
        tracemalloc.stop()


def all_columns(data: bytes) -> object:
    """The columns, or the refusal."""
    try:
        return read_columns(data)
    except RecordMalformed as error:
        return error


def each_record(data: bytes) -> None:
    """One record at a time, none kept."""
    at = 0
    with suppress(RecordMalformed):
        while at < len(data):
            at += decode_rocketmq_record(data, at).size_bytes


@campaign
def test_corrupted_bodies_unpack_within_their_limit() -> None:
    """Compressed bodies hit at random: the error is ours, or what comes out is no larger than the limits allow."""
    seed = 20_260_804
    chance = random.Random(seed)
    packed = [(kind, stored) for kind in Compression if kind for stored, _ in bodies(3, kind) if stored]
    packed += [(kind, compress(bytes(3 << 20), kind)) for kind in Compression if kind]
    refused = 0
    tracemalloc.start()
    try:
        for number in range(CORRUPTIONS):
            kind, stored = chance.choice(packed)
            # Frame headers lie at the front.
            data = corrupt(stored[:64], chance) + stored[64:] if number % 2 else corrupt(stored, chance)
            try:
                unpacked = len(decompress(data, kind, 1 << 20))
                assert unpacked <= min(1 << 20, max(DECOMPRESSED_SIZE_FREE_BYTES, DECOMPRESSION_RATIO_MAX * len(data)))
            except RecordMalformed:
                refused += 1
            except Exception as error:
                raise AssertionError(f"seed {seed}, number {number}, {kind.name}: {data.hex()}") from error
        assert tracemalloc.get_traced_memory()[1] < 16 << 20, seed
    finally:
        tracemalloc.stop()
    assert refused > CORRUPTIONS // 4
