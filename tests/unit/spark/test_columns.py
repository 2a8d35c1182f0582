"""A page of records as Arrow columns: whatever `decode_record` says of a record, the columns say too."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tern_spark import COLUMNS, arrow_schema, record_batch
from tern_spark.columns import Part, heads_batch, records_batch
from tern_spark.schema import HEAD_COLUMNS
from tern_wire.errors import LinkBodyMalformed
from tern_wire.names import QueueName
from tern_wire.records.columns import heads_of, record_starts
from tern_wire.records.layout import HEAD_SIZE_BYTES
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record, fill_in
from tests.support.client.record_server import stored

QUEUE = QueueName("broker-a", 3)
LIFTED = {"UNIQ_KEY": "message_id", "KEYS": "keys", "TAGS": "tags"}

bodies = st.one_of(st.binary(max_size=40), st.binary(min_size=11, max_size=14), st.just(b"x" * 5_000))
names = st.one_of(st.sampled_from([*LIFTED, "origin", ""]), st.text(st.characters(codec="utf-8"), max_size=8))
# Bytes as any producer may have written them: separators in odd places, doubled names, halves of characters.
raw_properties = st.one_of(
    st.lists(st.tuples(names, st.text(st.characters(codec="utf-8"), max_size=20)), max_size=6).map(
        lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
    ),
    st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"KEYS", b"\xff", "é".encode(), b""]), max_size=12).map(b"".join),
)
records = st.tuples(bodies, raw_properties, st.integers(0, 2**40), st.integers(0, 2**50))


def page_of(parts: list[tuple[bytes, bytes, int, int]]) -> bytes:
    """Records with the given bodies, properties, birth times and offsets, one behind another."""
    page = bytearray(b"".join(encode_record(b"orders", 3, body, raw, born_ms=born) for body, raw, born, _ in parts))
    starts = record_starts(page)
    fill_in(page, starts, np.array([offset for *_, offset in parts], np.int64), starts)
    return bytes(page)


@settings(deadline=None)
@given(st.lists(records, max_size=20))
@example([])
@example([(b"", b"", 0, 0)])
@example([(b"twelve bytes", b"a\x01b\x02a\x01c\x02", 1, 1), (b"thirteen byte", b"KEYS\x01k\x02", 2, 2)])
@example([(b"x", b"\xff\x01v\x02", 0, 0)])
def test_columns_equal_the_records_decoded_one_by_one(parts: list[tuple[bytes, bytes, int, int]]) -> None:
    """Property: build a page of any records; each row equals what decode_record makes of the same bytes."""
    page = page_of(parts)
    batch = record_batch(page, topic="orders", queue=QUEUE)
    batch.validate(full=True)
    rows = batch.to_pylist()
    assert len(rows) == len(parts)
    for row, start in zip(rows, record_starts(page), strict=True):
        record = decode_record(page, int(start))
        rest = {name: value for name, value in record.properties.items() if name not in LIFTED}
        assert (row["queue_offset"], row["body"], row["store_size"]) == (record.offset, record.body, record.size_bytes)
        assert row["born_ts"].timestamp() * 1_000 == pytest.approx(record.born_ms, abs=1e-3)
        assert dict(row["properties"]) == rest
        assert {name: row[column] for name, column in LIFTED.items()} == {
            name: record.properties.get(name) for name in LIFTED
        }


def test_a_row_names_the_queue_that_was_read() -> None:
    """Topic, broker group and queue number are those of the read, for every row."""
    page = stored(0, b"a") + stored(1, b"b")
    rows = record_batch(page, topic="retries", queue=QUEUE, names=["topic", "broker", "queue_id"]).to_pylist()
    assert rows == [{"topic": "retries", "broker": "broker-a", "queue_id": 3}] * 2


@pytest.mark.parametrize("name", COLUMNS)
def test_any_column_can_be_read_alone(name: str) -> None:
    """Project one column: the values equal that column of the whole row, and the schema is the one that Spark compares."""
    page = stored(7, b"body", {"KEYS": "k", "TAGS": "t", "colour": "red"})
    whole = record_batch(page, topic="orders", queue=QUEUE)
    alone = record_batch(page, topic="orders", queue=QUEUE, names=[name])
    assert alone.column(0).to_pylist() == whole.column(name).to_pylist()
    assert alone.schema.equals(arrow_schema([name]), check_metadata=True)


def test_columns_without_a_value_are_null() -> None:
    """No key, no tag: NULL, as Spark's `is null` expects, while properties are an empty map."""
    row = record_batch(stored(0, b""), topic="orders", queue=QUEUE).to_pylist()[0]
    assert (row["keys"], row["tags"], row["properties"]) == (None, None, [])
    assert row["message_id"] == "id-0-0"


@pytest.mark.parametrize("cut", [1, 40, 91])
def test_a_page_that_ends_inside_a_record_is_refused(cut: int) -> None:
    """Cut the page's end: an error, never a shorter batch, since the reader would go on behind the lost record."""
    page = stored(0, b"first") + stored(1, b"second")
    with pytest.raises(LinkBodyMalformed):
        record_batch(page[:-cut], topic="orders", queue=QUEUE)


@pytest.mark.parametrize(
    ("at", "value", "says"),
    [(4, 0, "magic"), (87, 200, "body of 200"), (93, 200, "topic of 200"), (93, 5, "do not end where it ends")],
)
def test_a_record_that_contradicts_itself_is_refused(at: int, value: int, says: str) -> None:
    """Damage magic, body size or topic size of a good record: refused with what is wrong, never read out of bounds."""
    page = bytearray(stored(0, b"first"))
    page[at] = value
    with pytest.raises(LinkBodyMalformed, match=says):
        record_batch(bytes(page), topic="orders", queue=QUEUE)


@given(st.lists(records, max_size=20))
@example([])
def test_heads_alone_have_the_columns_that_the_records_have(parts: list[tuple[bytes, bytes, int, int]]) -> None:
    """Property: every column of HEAD_COLUMNS is equal, whichever of both a page has."""
    page = page_of(parts)
    names = tuple(sorted(HEAD_COLUMNS))
    whole = record_batch(page, topic="orders", queue=QUEUE, names=names)
    assert heads_batch(heads_of(page), [Part("orders", QUEUE, HEAD_SIZE_BYTES * len(whole))], names) == whole


def test_bytes_that_are_no_heads_are_refused() -> None:
    """A proxy that cuts its answer, or sends something else, at any place."""
    page = heads_of(page_of([(b"a", b"", 0, 0)] * 5))
    for bad in (b"x" * 100, page[:-1], page[1:], page[:176] + page[180:] + b"abcd", bytes(88)):
        with pytest.raises(LinkBodyMalformed):
            heads_batch(bad, [Part("orders", QUEUE, len(bad))], ("queue_offset",))


def test_a_body_of_4_mib_keeps_its_neighbours_apart() -> None:
    """The largest body between two small ones, in one page."""
    bodies_in = [b"before", bytes(range(256)) * (4 << 12), b"", b"after"]
    page = b"".join(stored(number, body, {"KEYS": str(number)}) for number, body in enumerate(bodies_in))
    rows = record_batch(memoryview(bytearray(page)), topic="orders", queue=QUEUE, names=["body", "keys"]).to_pylist()
    assert [(row["body"], row["keys"]) for row in rows] == [(body, str(at)) for at, body in enumerate(bodies_in)]


def test_bodies_of_one_page_may_fill_megabytes() -> None:
    """A page of 4 MiB with empty, short and long bodies keeps every byte in its place."""
    bodies_in = [bytes([number % 251]) * (number * 37 % 9_000) for number in range(900)]
    page = b"".join(stored(number, body) for number, body in enumerate(bodies_in))
    batch = record_batch(page, topic="orders", queue=QUEUE, names=["body"])
    assert batch.column(0).to_pylist() == bodies_in
    assert batch.schema.field("body").type == pa.binary()


@given(st.lists(st.lists(records, max_size=4), min_size=1, max_size=6), st.lists(st.integers(0, 2), min_size=6))
@example([[]], [0] * 6)
@example([[], [(b"x", b"KEYS\x01k\x02", 0, 0)], []], [0, 1, 2, 0, 0, 0])
def test_pages_of_several_queues_are_one_batch(
    pages: list[list[tuple[bytes, bytes, int, int]]], queues: list[int]
) -> None:
    """Property: decode pages of any queues and topics together; the rows are those of each page alone."""
    contents = [page_of(parts) for parts in pages]
    parts = [
        Part(f"orders-{queue % 2}", QueueName(f"broker-{queue}", queue), len(page))
        for queue, page in zip(queues, contents, strict=False)
    ]
    joined = records_batch(b"".join(contents), parts, tuple(COLUMNS))
    joined.validate(full=True)
    alone = [
        row
        for part, page in zip(parts, contents, strict=False)
        for row in record_batch(page, topic=part.topic, queue=part.queue).to_pylist()
    ]
    assert joined.to_pylist() == alone
    columns = tuple(name for name in COLUMNS if name in HEAD_COLUMNS)
    heads = [heads_of(page) for page in contents]
    parts = [Part(part.topic, part.queue, len(head)) for part, head in zip(parts, heads, strict=True)]
    assert heads_batch(b"".join(heads), parts, columns).to_pylist() == joined.select(columns).to_pylist()


def test_a_record_that_runs_from_one_page_into_the_next_is_refused() -> None:
    """Cut two pages at another place than they were joined: neither has the record at the edge whole."""
    page = stored(0, b"a") + stored(1, b"b")
    for cut in (1, len(stored(0, b"a")) - 1, len(page) - 1):
        with pytest.raises(LinkBodyMalformed):
            records_batch(page, [Part("orders", QUEUE, cut), Part("orders", QUEUE, len(page) - cut)], ("body",))
    with pytest.raises(LinkBodyMalformed):
        heads_batch(heads_of(page), [Part("orders", QUEUE, 50), Part("orders", QUEUE, 110)], ("queue_offset",))
