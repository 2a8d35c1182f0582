"""Entries of the sink equal what the SDK sends for the same messages, and their keys tell rows apart."""

from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_client import OutgoingMessage
from tern_client.calls.documents import packed_message
from tern_spark.sink.columns import rows_of
from tern_spark.sink.entries import Entries, encode

TASK = b"0123456789abcdef" * 2
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
WORDS = st.text("abäß€", min_size=1, max_size=40)
ROWS = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=300),
        "key": st.none() | st.lists(WORDS, max_size=3).map(" ".join),
        "tags": st.none() | TEXTS,
        "properties": st.none() | st.dictionaries(WORDS, st.none() | TEXTS, max_size=4),
        "message_group": st.none() | TEXTS,
        "deliver_at": st.none() | st.integers(0, 9_999_999_999_999),
    }
)
SCHEMA = pa.schema(
    {
        "body": pa.binary(),
        "key": pa.string(),
        "tags": pa.string(),
        "properties": pa.map_(pa.string(), pa.string()),
        "message_group": pa.string(),
        "deliver_at": pa.int64(),
    }
)


def batch_of(rows: list[dict[str, Any]]) -> Any:
    """A RecordBatch as Spark makes it."""
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    columns["properties"] = [None if each is None else list(each.items()) for each in columns["properties"]]
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def decoded(entries: Entries) -> list[dict[str, Any]]:
    """Each entry, decoded on its own."""
    data = entries.data.tobytes()
    return [
        msgspec.msgpack.decode(data[start:end])
        for start, end in zip(entries.ends[:-1].tolist(), entries.ends[1:].tolist(), strict=True)
    ]


def of_the_sdk(row: dict[str, Any]) -> dict[str, Any]:
    """What the SDK's batch encoder sends for the message of *row*."""
    message = OutgoingMessage(
        body=row["body"],
        tag=row["tags"] or "",
        keys=tuple((row["key"] or "").split()),
        properties={name: value for name, value in (row["properties"] or {}).items() if value is not None},
        message_group=row["message_group"] or "",
        deliver_at=row["deliver_at"],
    )
    return packed_message(message)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(ROWS, min_size=1, max_size=6), start=st.integers(0, 2))
def test_entries_equal_the_sdk_s_batch(rows: list[dict[str, Any]], start: int) -> None:
    """Any rows, also those of a sliced batch: decoded, each entry is the SDK's, with or without a key."""
    batch = batch_of(rows)[start:]
    expected = [of_the_sdk(row) for row in rows[start:]]
    if not expected:
        return
    assert decoded(encode(rows_of(batch, 0), 0, b"")) == expected
    keyed = decoded(encode(rows_of(batch, 0), 7, TASK))
    keys = [entry.pop("idempotency_key") for entry in keyed]
    assert keyed == expected
    assert [key[:44] for key in keys] == [f"{TASK.decode()}{number:012x}" for number in range(7, 7 + len(keys))]


def test_properties_that_were_read_can_be_written() -> None:
    """Of names that TernMQ writes itself, the content type is passed on; the others are left out."""
    read = {"MQ_CONTENT_TYPE": "text/plain", "UNIQ_KEY": "id", "TRAN_MSG": "true", "color": "red"}
    rows = [dict.fromkeys(SCHEMA.names) | {"body": b"1", "properties": given} for given in (read, {}, {"DELAY": "3"})]
    assert decoded(encode(rows_of(batch_of(rows), 0), 0, b"")) == [
        {"body": b"1", "content_type": "text/plain", "properties": {"color": "red"}},
        {"body": b"1"},
        {"body": b"1"},
    ]


def test_times_are_in_milliseconds_rounded_down() -> None:
    """Spark's timestamps have microseconds."""
    times = pa.array([1_999, None, -1, 1_700_000_000_000_000], pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_pydict({"value": ["a", "ä", "", "d"], "deliver_at": times})
    assert decoded(encode(rows_of(batch, 0), 0, b"")) == [
        {"body": b"a", "deliver_at": 1},
        {"body": "ä".encode()},
        {"body": b"", "deliver_at": -1},
        {"body": b"d", "deliver_at": 1_700_000_000_000},
    ]


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(ROWS, min_size=2, max_size=8))
def test_rows_with_other_fields_have_other_keys(rows: list[dict[str, Any]]) -> None:
    """The last part of a key depends on all fields but the body, and on nothing else."""
    keys = [entry["idempotency_key"][44:] for entry in decoded(encode(rows_of(batch_of(rows), 0), 0, TASK))]
    fields = [repr({name: value for name, value in of_the_sdk(row).items() if name != "body"}) for row in rows]
    for key, field in zip(keys, fields, strict=True):
        assert [other == key for other in keys] == [other == field for other in fields]


def test_a_hash_has_no_pattern_in_small_changes() -> None:
    """20,000 tags that count up, and texts that differ in a trailing zero byte only: no two keys are equal."""
    tags = [*(f"t{number}" for number in range(20_000)), "\0", "\0\0", "a", "a\0"]
    batch = pa.RecordBatch.from_pydict({"body": [b""] * len(tags), "tags": tags})
    entries = encode(rows_of(batch, 0), 0, TASK)
    assert len({entry["idempotency_key"][44:] for entry in decoded(entries)}) == len(tags)
