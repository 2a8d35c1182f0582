"""Compressed bodies in a page of records: the column has them plain, as any reader does."""

from dataclasses import replace

import pytest

from tern_spark import record_batch
from tern_spark.columns import Part, records_batch
from tern_wire.errors import LinkBodyMalformed
from tern_wire.extras import ExtraMissing
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.names import QueueName
from tern_wire.records.compression import ENCODINGS, Compression, compress, sysflag_of
from tern_wire.records.read import decode_rocketmq_record
from tern_wire.records.write import encode_record, encode_rocketmq_record

QUEUE = QueueName("broker-a", 3)
SIZES = [4_095, 4_096, 4_097, 1 << 20, MESSAGE_BODY_SIZE_MAX_BYTES]
TEXT = b"".join(b'{"order":%d}\n' % number for number in range(280_000))[:MESSAGE_BODY_SIZE_MAX_BYTES]


def record(body: bytes, compression: Compression = Compression.NONE, stored: bytes | None = None) -> bytes:
    """One record with *body*, or with *stored* in its place."""
    plain = decode_rocketmq_record(encode_record(b"orders", 3, b"", b"UNIQ_KEY\x01id\x02", born_ms=1))
    kept = compress(body, compression) if stored is None else stored
    return encode_rocketmq_record(replace(plain, body=kept, sysflag=sysflag_of(compression)))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_size_is_plain_among_plain_ones(encoding: str) -> None:
    """Byte for byte; what the record takes in the log stays its stored size."""
    parts = [piece for size in SIZES for piece in (record(TEXT[:size], ENCODINGS[encoding]), record(b"between"))]
    batch = record_batch(b"".join(parts), topic="orders", queue=QUEUE)
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert [row["body"] for row in rows[::2]] == [TEXT[:size] for size in SIZES]
    assert {row["body"] for row in rows[1::2]} == {b"between"}
    assert [row["store_size"] for row in rows] == [len(part) for part in parts]
    assert {row["message_id"] for row in rows} == {"id"}


def test_a_page_without_the_column_decompresses_nothing() -> None:
    """A count of rows meets no damaged body."""
    page = record(b"", Compression.ZLIB, b"damaged")
    batch = records_batch(page, [Part("orders", QUEUE, len(page))], ["queue_offset", "message_id"])
    assert batch.num_rows == 1


@pytest.mark.parametrize(
    "compression, stored, reason",
    [
        (Compression.ZLIB, compress(bytes(64 << 20), Compression.ZLIB), "unpack to more than"),
        (Compression.LZ4, compress(bytes(64 << 20), Compression.LZ4), "unpack to more than"),
        (Compression.ZSTD, compress(bytes(64 << 20), Compression.ZSTD), "unpack to more than"),
        (Compression.ZLIB, compress(TEXT, Compression.ZLIB)[:-9], "end too early"),
        (Compression.ZSTD, b"damaged", "not zstd"),
    ],
    ids=["zlib bomb", "lz4 bomb", "zstd bomb", "cut", "damaged"],
)
def test_a_body_that_cannot_be_read_names_its_offset(compression: Compression, stored: bytes, reason: str) -> None:
    """A job must not go on as if there were no such message."""
    with pytest.raises(LinkBodyMalformed, match=f"the body at offset 0: .*{reason}"):
        record_batch(record(b"", compression, stored), topic="orders", queue=QUEUE)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line to install."""
    monkeypatch.setattr("tern_wire.extras.is_installed", lambda module: module != "zstandard")
    with pytest.raises(ExtraMissing, match="A body in zstd needs zstandard"):
        record_batch(record(TEXT[:5_000], stored=b"x", compression=Compression.ZSTD), topic="orders", queue=QUEUE)


def test_a_page_is_bounded_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many bodies, each within the limit of a message, must not fill the memory of a worker."""
    monkeypatch.setattr("tern_spark.columns.PLAIN_PAGE_SIZE_MAX_BYTES", 3 << 20)
    pages = b"".join(record(TEXT[: 1 << 20], Compression.ZLIB) for _ in range(4))
    with pytest.raises(LinkBodyMalformed, match="read smaller pages"):
        record_batch(pages, topic="orders", queue=QUEUE)
