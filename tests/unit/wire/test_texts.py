"""Names, durations, handles, codec errors and the table of errors: the words of the wire."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_proxy.core.documents.sends import JsonBatch, PackedBatch
from tern_wire.errors import (
    ERRORS,
    InvalidField,
    MalformedBody,
    RecallHandleInvalid,
    ReceiptInvalid,
    TernError,
    TopicNotFound,
    UnknownField,
    error_from,
)
from tern_wire.handles import HANDLE_SIZE_MAX_CHARS, HandleMaker, Receipt
from tern_wire.link.codec import encode_msgpack, read_json, read_msgpack
from tern_wire.link.requests import body_parts, error_parts, read_body, read_error
from tern_wire.names import QueueName, check_group, check_topic, parse_queue
from tern_wire.recall_handles import RECALL_HANDLE_SIZE_MAX_CHARS, Recall, RecallMaker
from tern_wire.times import parse_duration_ms, parse_time_ms

KEY = b"k" * 32


@pytest.mark.parametrize("name", ["a", "A-b_9", "9", "x" * 120])
def test_legal_names_pass(name: str) -> None:
    """Topics and groups."""
    assert check_topic(name) == check_group(name) == name


@pytest.mark.parametrize("name", ["", "-a", "_a", "a.b", "a b", "%RETRY%g", "x" * 128, "é", "a\n", "../a"])
def test_illegal_names_are_refused_with_a_sentence(name: str) -> None:
    """No punctuation, no paths, no control characters; never by an exception of another kind."""
    for check in (check_topic, check_group):
        with pytest.raises(TernError) as refused:
            check(name)
        assert refused.value.status == 400


def test_a_queue_is_written_broker_group_colon_number() -> None:
    """And nothing else."""
    assert parse_queue("broker-a:12", "t") == QueueName("broker-a", 12)
    assert str(QueueName("broker-a", 12)) == "broker-a:12"
    for wrong in ("broker-a", "broker-a:01", "broker-a:-1", ":1", "Broker:1", "broker-a:1:2", "broker-a:99999"):
        with pytest.raises(TernError):
            parse_queue(wrong, "t")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s", 10_000),
        ("1.5s", 1500),
        ("500ms", 500),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        (251, 251),
        ("250", 250),
        ("0", 0),
    ],
)
def test_durations_are_read(text: str | int, expected: int) -> None:
    """As people write them."""
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1s", -1, "1 s", "1w", "1e3", "٣s", "9" * 13])
def test_anything_else_is_no_duration(text: str | int) -> None:
    """ValueError, with the reason."""
    with pytest.raises(ValueError, match=r"negative|not a duration"):
        parse_duration_ms(text)


RECEIPTS = st.builds(
    Receipt,
    st.just("broker-a"),
    *(st.integers(0, 2**32 - 1) for _ in range(3)),
    *(st.integers(0, 2**62) for _ in range(2)),
    st.integers(1, 2**16 - 1),
)


@given(RECEIPTS)
def test_a_handle_is_read_as_it_was_made_and_under_no_other_name_or_key(receipt: Receipt) -> None:
    """Topic, group and key are part of the MAC."""
    handle = HandleMaker(KEY, "t", "g").make(receipt)
    assert len(handle) <= HANDLE_SIZE_MAX_CHARS
    assert HandleMaker(KEY, "t", "g").read(handle) == receipt
    for other in (HandleMaker(KEY, "t", "h"), HandleMaker(KEY, "u", "g"), HandleMaker(b"x" * 32, "t", "g")):
        with pytest.raises(ReceiptInvalid):
            other.read(handle)


@given(RECEIPTS, st.integers(0, 70), st.integers(0, 7))
def test_one_flipped_bit_makes_a_handle_forged(receipt: Receipt, at: int, bit: int) -> None:
    """Any character of it; characters outside the alphabet too."""
    maker = HandleMaker(KEY, "t", "g")
    handle = maker.make(receipt)
    at %= len(handle)
    flipped = handle[:at] + chr(ord(handle[at]) ^ 1 << bit) + handle[at + 1 :]
    try:
        assert maker.read(flipped) == receipt  # the unused bits of the last character
        assert at == len(handle) - 1
    except ReceiptInvalid:
        pass


@given(st.text(max_size=150))
def test_random_text_is_no_handle(text: str) -> None:
    """ReceiptInvalid and nothing else."""
    with pytest.raises(ReceiptInvalid):
        HandleMaker(KEY, "t", "g").read(text)


@pytest.mark.parametrize(
    ("document", "kind", "pointer"),
    [
        (b'{"messages":[{"body":"a"},{"bdy":"b"}]}', UnknownField, "/messages/1/bdy"),
        (b'{"messages":[{"body":"a","tag":3}]}', InvalidField, "/messages/0/tag"),
        (b'{"messages":3}', InvalidField, "/messages"),
        (b"{}", InvalidField, "/"),
        (b'{"messages":[', MalformedBody, "/"),
        (b"\xff\xfe", MalformedBody, "/"),
        (b"[" * 100_000, TernError, ""),
    ],
)
def test_what_cannot_be_decoded_is_explained_with_a_pointer(
    document: bytes, kind: type[TernError], pointer: str
) -> None:
    """RFC 6901."""
    with pytest.raises(kind) as refused:
        read_json(document, JsonBatch)
    assert refused.value.fields["pointer"].startswith(pointer)


@given(st.binary(max_size=200))
def test_random_messagepack_is_refused_or_decoded(data: bytes) -> None:
    """Never another exception."""
    try:
        read_msgpack(data, PackedBatch)
    except TernError as error:
        assert error.status == 400


@pytest.mark.parametrize("code", sorted(ERRORS))
def test_every_error_survives_the_problem_document_and_the_link(code: str) -> None:
    """The class comes back, with its fields; a problem always has a sentence."""
    error = ERRORS[code](topic="t", limit=3, actual=4)
    problem = error.problem("/v1/x", "req")
    assert (problem["code"], problem["status"]) == (code, ERRORS[code].status)
    assert len(problem["detail"]) > 15
    again: Any = error_from(problem["code"], problem)
    assert (type(again), again.fields) == (type(error), error.fields)
    assert type(read_error(b"".join(error_parts(error)))) is type(error)


def test_missing_fields_do_not_break_a_sentence() -> None:
    """An error can always be shown."""
    assert "'{topic}'" in TopicNotFound().detail


@pytest.mark.parametrize(
    "body", [b"", b"\x01", b"\xff\xff\xff\xff", b"\x01\0\0\0\xc0", b"\x01\0\0\0\xc1", b"\x02\0\0\0\x81"]
)
def test_broken_link_bodies_are_refused(body: bytes) -> None:
    """Heads that are no maps or run past the body."""
    with pytest.raises(TernError):
        read_body(body)


def test_a_link_body_is_a_head_and_raw_bytes() -> None:
    """There and back."""
    head, raw = read_body(b"".join(body_parts({"a": 1}, [b"xy", encode_msgpack(3)])))
    assert (head, bytes(raw)) == ({"a": 1}, b"xy\x03")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (1_769_860_800_000, 1_769_860_800_000),
        ("1769860800001", 1_769_860_800_001),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T13:00:00+01:00", 1_769_860_800_000),
        ("2026-01-31T12:00:00.25Z", 1_769_860_800_250),
        ("2026-01-31T12:00:00", 1_769_860_800_000),
    ],
)
def test_times_are_milliseconds_or_rfc_3339(value: str | int, expected: int) -> None:
    """Without a zone it is UTC."""
    assert parse_time_ms(value) == expected


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2400, 1, 1)), st.integers(-23 * 60, 23 * 60))
def test_times_are_those_of_the_calendar(moment: datetime, away_minutes: int) -> None:
    """Of every day of four centuries, in every zone, as Python's own calendar has it."""
    zone = timezone(timedelta(minutes=away_minutes))
    zoned = moment.replace(microsecond=moment.microsecond // 1_000 * 1_000, tzinfo=zone)
    assert parse_time_ms(zoned.isoformat()) == round(zoned.timestamp() * 1_000)
    assert parse_time_ms(moment.date().isoformat()) % 86_400_000 == 0


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "-1",
        -2,
        True,
        "1e3",
        "9" * 20,
        "2026-13-01T00:00:00Z",
        "2026-02-29",
        "2026-01-31T24:00:00Z",
        "2026-01-31T12:61",
        "2026-01-31T12:00:00+24:00",
        "1969-12-31T00:00:00Z",
        "٣",
    ],
)
def test_other_times_are_refused(value: str | int) -> None:
    """ValueError with a sentence."""
    with pytest.raises(ValueError, match=r"\w+ .*"):
        parse_time_ms(value)


def test_a_recall_handle_gives_back_what_it_was_made_of_and_nothing_else_does() -> None:
    """URL-safe, short; one bit changed, another topic, another key or a receipt handle is refused."""
    maker = RecallMaker(KEY, "orders")
    for recall in (Recall("broker-a", 5, 7), Recall("b" * 31, (1 << 62) - 1, (1 << 48) - 1)):
        handle = maker.make(recall)
        assert len(handle) <= RECALL_HANDLE_SIZE_MAX_CHARS
        assert set(handle) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        assert maker.read(handle) == recall
    handle = maker.make(Recall("broker-a", 5, 7))
    other = HandleMaker(KEY, "orders", "g").make(Receipt("broker-a", 1, 2, 3, 4, 5, 6))
    changed = [handle[:at] + ("B" if sign == "A" else "A") + handle[at + 1 :] for at, sign in enumerate(handle[:-1])]
    for wrong in (*changed, handle[:-2], handle + "AAAA", "", "x", "é" * 40, "A" * 200, other):
        with pytest.raises(RecallHandleInvalid):
            maker.read(wrong)
    for stranger in (RecallMaker(KEY, "order"), RecallMaker(b"x" * 32, "orders")):
        with pytest.raises(RecallHandleInvalid):
            stranger.read(handle)
