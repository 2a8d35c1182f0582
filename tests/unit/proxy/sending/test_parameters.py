"""Tables of headers, queries, durations and Accept headers: what is read, what is refused and with which code."""

import re

import pytest

from tern_proxy.core.sending.parameters import (
    BASIC,
    PULLED,
    RECEIVED,
    answer_kind,
    invisible_of,
    number_of,
    read_query,
    read_query_once,
    read_send,
    wait_of,
)
from tern_wire.errors import TernError
from tern_wire.paths import JSON, MSGPACK, NDJSON, OCTETS, RECORDS


@pytest.mark.parametrize(
    ("accept", "supported", "kind"),
    [
        ("", BASIC, JSON),
        ("*/*", BASIC, JSON),
        ("application/*", BASIC, JSON),
        ("application/json", BASIC, JSON),
        ("Application/JSON; charset=utf-8", BASIC, JSON),
        (MSGPACK, BASIC, MSGPACK),
        ("application/msgpack", BASIC, MSGPACK),
        ("application/x-msgpack", BASIC, MSGPACK),
        ("text/html, application/vnd.msgpack;q=0.9, */*;q=0.8", BASIC, MSGPACK),
        ("application/json;q=0.2, application/vnd.msgpack;q=0.7", BASIC, MSGPACK),
        ("application/vnd.msgpack;q=0, */*;q=0.1", BASIC, JSON),
        ("application/x-ndjson", RECEIVED, NDJSON),
        ("application/jsonl", RECEIVED, NDJSON),
        ("application/octet-stream", RECEIVED, OCTETS),
        (RECORDS, PULLED, RECORDS),
    ],
)
def test_accept_chooses_the_representation(accept: str, supported: tuple[str, ...], kind: str) -> None:
    """Wildcards, quality values, aliases and parameters are understood."""
    assert answer_kind(accept, supported) == kind


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "application/json;q=x", RECORDS, ",", ";"])
def test_an_accept_that_nothing_fits_is_refused(accept: str) -> None:
    """406 names what the path can answer."""
    with pytest.raises(TernError) as caught:
        answer_kind(accept, BASIC)
    assert caught.value.code == "not-acceptable"
    assert JSON in caught.value.fields["supported"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0s", 0), (0, 0), ("500ms", 500), ("20s", 20_000), ("30s", 30_000), (30_000, 30_000), ("0.5m", 30_000)],
)
def test_waits_are_read(text: str | int, ms: int) -> None:
    """Durations as people write them, or milliseconds."""
    assert wait_of(text) == ms


@pytest.mark.parametrize("text", ["31s", "30001", -1, "-1s", "soon", "", "1e3", "9" * 40])
def test_waits_out_of_range_are_refused(text: str | int) -> None:
    """400 illegal-wait, never a clamp in silence."""
    with pytest.raises(TernError) as caught:
        wait_of(text)
    assert caught.value.code == "illegal-wait"


@pytest.mark.parametrize("text", ["999ms", 0, "13h", "x", None])
def test_invisible_times_out_of_range_are_refused(text: str) -> None:
    """400 illegal-invisible-time; the ends of the range are allowed."""
    assert (invisible_of("1s"), invisible_of("12h")) == (1_000, 43_200_000)
    with pytest.raises(TernError) as caught:
        invisible_of(text)
    assert caught.value.code == "illegal-invisible-time"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("99h", "'wait' is 99h; use"),
        (356_400_000, "'wait' is 99 h (356400000); use"),
        ("60000", "'wait' is 60 s (60000); use"),
    ],
)
def test_a_time_out_of_range_is_told_as_it_was_written_or_with_its_unit(given: str | int, told: str) -> None:
    """Clients send milliseconds for what somebody wrote in hours."""
    with pytest.raises(TernError, match=re.escape(told)):
        wait_of(given)


@pytest.mark.parametrize("text", ["", "x", "1.5", "0", "11", "-3", "٣", "9" * 30, "1_0", " 5"])
def test_numbers_outside_their_range_are_refused(text: str) -> None:
    """Only ASCII digits within the range; the pointer names the parameter."""
    with pytest.raises(TernError) as caught:
        number_of(text, "max_messages", 1, 10)
    assert (caught.value.code, caught.value.fields["pointer"]) == ("invalid-field", "query/max_messages")


def test_a_query_is_read_in_order_and_unknown_names_are_refused() -> None:
    """Repeated names stay; an unknown one is named together with the allowed ones."""
    assert read_query(b"key=a&key=b%20c&key=", ("key",)) == [("key", "a"), ("key", "b c"), ("key", "")]
    with pytest.raises(TernError) as caught:
        read_query(b"delay=10s", ("key", "tag"))
    assert (caught.value.code, caught.value.fields) == (
        "unknown-parameter",
        {"parameter": "delay", "allowed": "key, tag"},
    )


@pytest.mark.parametrize("query", [b"key=%ff", b"key=\xff", b"&".join(b"key=%d" % n for n in range(65))])
def test_queries_that_cannot_be_read_are_refused(query: bytes) -> None:
    """Broken UTF-8, raw bytes, too many fields."""
    with pytest.raises(TernError) as caught:
        read_query(query, ("key",))
    assert caught.value.code == "invalid-field"


def test_a_parameter_given_twice_where_once_is_meant_is_refused() -> None:
    """Neither the first nor the last wins."""
    with pytest.raises(TernError) as caught:
        read_query_once(b"wait=1s&wait=2s", ("wait",))
    assert caught.value.fields["pointer"] == "query/wait"


def test_a_single_send_reads_metadata_from_headers() -> None:
    """The body stays as it is; header names are case-insensitive and arrive in lower case."""
    message = read_send(
        [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"mq-tag", "größe".encode()),
            (b"mq-key", b"k1"),
            (b"mq-key", b"k2"),
            (b"mq-queue", b"broker-a:3"),
            (b"mq-message-group", b"user-7"),
            (b"mq-delay", b"10s"),
            (b"mq-deliver-at", b"2026-01-31T12:00:00Z"),
            (b"mq-delay-level", b"3"),
            (b"mq-properties", b'{"Foo": "1"}'),
            (b"mq-property-bar", b"2"),
            (b"mq-request-id", b"r-1"),
            (b"idempotency-key", b"idem"),
            (b"accept", b"*/*"),
        ],
        b"",
        b"a=b&c",
    )
    assert (message.body, message.content_type, message.tag) == (b"a=b&c", "text/plain; charset=utf-8", "größe")
    assert (message.keys, message.queue, message.idempotency_key) == (["k1", "k2"], "broker-a:3", "idem")
    assert message.properties == {"Foo": "1", "bar": "2"}
    assert (message.message_group, message.delay, message.deliver_at) == ("user-7", "10s", "2026-01-31T12:00:00Z")
    assert message.delay_level == 3


def test_the_query_wins_over_headers() -> None:
    """What is typed into the URL is what the person sees."""
    headers = [(b"mq-tag", b"A"), (b"mq-key", b"h"), (b"idempotency-key", b"h"), (b"mq-delay", b"1s")]
    message = read_send(headers, b"tag=B&key=1&key=2&queue=broker-a%3A0&idempotency_key=q&delay=5s&delay_level=2", b"")
    assert (message.delay, message.delay_level) == ("5s", 2)
    assert (message.tag, message.keys, message.queue, message.idempotency_key) == ("B", ["1", "2"], "broker-a:0", "q")


@pytest.mark.parametrize(
    ("headers", "query", "code", "says"),
    [
        ([(b"mq-delya", b"10s")], b"", "unknown-field", "mq-delya"),
        ([], b"delya=10s", "unknown-parameter", "delya"),
        ([(b"mq-message-group", b"")], b"", "illegal-message-group", "mq-message-group"),
        ([], b"message_group=", "illegal-message-group", "message_group"),
        ([(b"mq-delay-level", b"one")], b"", "illegal-delivery-time", "mq-delay-level"),
        ([], b"delay_level=-1", "illegal-delivery-time", "delay_level"),
        ([(b"mq-properties", b"{")], b"", "malformed-body", "MQ-Properties"),
        ([(b"mq-properties", b'{"a": 1}')], b"", "invalid-field", "MQ-Properties"),
        ([(b"mq-properties", b"[]")], b"", "invalid-field", "MQ-Properties"),
        ([(b"mq-tag", b"\xff")], b"", "invalid-field", "mq-tag"),
        ([(b"idempotency-key", b"")], b"", "illegal-idempotency-key", "Idempotency-Key"),
        ([], b"idempotency_key=", "illegal-idempotency-key", "idempotency_key"),
    ],
)
def test_what_a_single_send_does_not_know_is_refused_by_name(
    headers: list[tuple[bytes, bytes]], query: bytes, code: str, says: str
) -> None:
    """The problem names the culprit."""
    with pytest.raises(TernError) as caught:
        read_send(headers, query, b"x")
    assert caught.value.code == code
    assert says in caught.value.detail
