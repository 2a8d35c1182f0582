"""Messages to records and rows: bytes as tern_wire reads them, limits, queues, chunks; and batches in their three formats."""

import base64

import msgspec
import numpy as np
import orjson
import pytest

from tern_proxy.brokers.lanes import send_of
from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.sending.batches import read_batch
from tern_proxy.core.sending.encoding import Encoded, MessageIds, encode_messages
from tern_proxy.core.sending.topic import TAGS_KEPT_MAX, Topic
from tern_wire.errors import TernError
from tern_wire.limits import (
    BATCH_MESSAGES_MAX,
    LANE_SIZE_MAX_BYTES,
    MESSAGE_BODY_SIZE_MAX_BYTES,
    PROPERTIES_SIZE_MAX_BYTES,
)
from tern_wire.link.rows import FLAG_KEYED, FLAG_PINNED, FLAG_SENT_ON, SEND_ROWS, key_hash
from tern_wire.paths import JSON, JSONL, MSGPACK, NDJSON
from tern_wire.records.hosts import host_bytes
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.read import Record, decode_record
from tern_wire.routing.placement import Placement
from tern_wire.routing.route import TopicRoute

PREFIX = "0123456789ABCDEF0123"


def topic_of(**queues: int) -> Topic:
    """Topic orders with so many queues in each broker group (written broker_a=4)."""
    return Topic(
        "orders", {name.replace("_", "-"): TopicRoute(topic_id=7, queues=count) for name, count in queues.items()}
    )


def encode(topic: Topic, *messages: PackedMessage | JsonMessage, at: str = "/messages") -> Encoded:
    """Encode with fixed ids and times."""
    return encode_messages(
        topic,
        list(messages),
        ids=MessageIds(PREFIX),
        born_ms=1_234,
        born_host=host_bytes("10.0.0.1", 99),
        usable=tuple(topic.broker_groups),
        at=at,
    )


def records_of(encoded: Encoded) -> list[Record]:
    """All records, decoded by tern_wire."""
    return [
        decode_record(b"".join(parcel.parts[3 * row : 3 * row + 3]))
        for parcel in encoded.parcels
        for row in range(len(parcel.rows))
    ]


def test_a_record_and_its_row_say_what_the_message_said() -> None:
    """Everything comes out again by tern_wire's own reader, and row and record agree."""
    message = PackedMessage(
        b"body",
        content_type="text/plain",
        tag="A",
        keys=["k1", "k2"],
        properties={"origin": "JFK"},
        queue="broker-a:2",
        idempotency_key="idem",
    )
    encoded = encode(topic_of(broker_a=4), message)
    (record,) = records_of(encoded)
    row = np.frombuffer(encoded.parcels[0].rows[0], SEND_ROWS)[0]
    assert (record.topic, record.queue, record.body, record.born_ms) == ("orders", 2, b"body", 1_234)
    assert record.properties == {
        "UNIQ_KEY": f"{PREFIX}{0:012X}",
        "MQ_CONTENT_TYPE": "text/plain",
        "KEYS": "k1 k2",
        "TAGS": "A",
        "origin": "JFK",
    }
    assert (row["size"], row["crc"], row["queue"]) == (record.size_bytes, record.body_crc, 2)
    assert (row["tag"], row["flags"], bytes(row["key"])) == (
        tag_hash("A"),
        FLAG_KEYED | FLAG_PINNED,
        key_hash(b"orders", b"idem"),
    )
    assert encoded.parcels[0].is_keyed
    assert encoded.message_ids == [f"{PREFIX}{0:012X}"]


@pytest.mark.parametrize(
    ("message", "body", "content_type"),
    [
        (JsonMessage(body="hällo"), "hällo".encode(), None),
        (JsonMessage(body=""), b"", None),
        (JsonMessage(body_base64=b"\x00\xff"), b"\x00\xff", None),
        (JsonMessage(json=msgspec.Raw(b'{"n": 12345678901234567890123}')), b'{"n": 12345678901234567890123}', JSON),
        (JsonMessage(json=msgspec.Raw(b"null")), b"null", JSON),
        (JsonMessage(json=msgspec.Raw(b"1"), content_type="application/a+json"), b"1", "application/a+json"),
    ],
)
def test_the_three_ways_to_write_a_body(message: JsonMessage, body: bytes, content_type: str | None) -> None:
    """Text, JSON kept digit by digit, bytes as base64."""
    (record,) = records_of(encode(topic_of(broker_a=1), message))
    assert (record.body, record.properties.get("MQ_CONTENT_TYPE")) == (body, content_type)


@pytest.mark.parametrize(
    ("message", "code", "pointer"),
    [
        (JsonMessage(), "invalid-field", "/messages/0"),
        (JsonMessage(body="a", body_base64=b"b"), "invalid-field", "/messages/0"),
        (JsonMessage(json=msgspec.Raw(b'"\xff"')), "invalid-field", "/messages/0/json"),
        (PackedMessage(b"", tag="a|b"), "illegal-tag", "/messages/0/tag"),
        (PackedMessage(b"", tag="a\x01"), "illegal-tag", "/messages/0/tag"),
        (PackedMessage(b"", tag="ä" * 128), "illegal-tag", "/messages/0/tag"),
        (PackedMessage(b"", keys=["a b"]), "illegal-key", "/messages/0/keys"),
        (PackedMessage(b"", keys=[""]), "illegal-key", "/messages/0/keys"),
        (PackedMessage(b"", keys=["a\x02"]), "illegal-key", "/messages/0/keys"),
        (PackedMessage(b"", keys=["k"] * 33), "illegal-key", "/messages/0/keys"),
        (PackedMessage(b"", properties={"KEYS": "x"}), "illegal-property", "/messages/0/properties/KEYS"),
        (PackedMessage(b"", properties={"": "x"}), "illegal-property", "/messages/0/properties/"),
        (PackedMessage(b"", properties={"a": "x\x01y"}), "illegal-property", "/messages/0/properties/a"),
        (PackedMessage(b"", properties={"a\n": "x"}), "illegal-property", "/messages/0/properties/a\n"),
        (PackedMessage(b"", properties={"n" * 129: "x"}), "illegal-property", "/messages/0/properties/" + "n" * 128),
        (PackedMessage(b"", properties={"a": "x" * 8_193}), "illegal-property", "/messages/0/properties/a"),
        (PackedMessage(b"", properties={str(n): "" for n in range(65)}), "illegal-property", "/messages/0/properties"),
        (PackedMessage(b"", idempotency_key="k" * 256), "illegal-idempotency-key", "/messages/0/idempotency_key"),
        (PackedMessage(b"", idempotency_key="k\x7f"), "illegal-idempotency-key", "/messages/0/idempotency_key"),
        (PackedMessage(b"", content_type="a\r\nb"), "invalid-field", "/messages/0/content_type"),
        (PackedMessage(b"", content_type="a" * 256), "invalid-field", "/messages/0/content_type"),
    ],
)
def test_what_is_not_allowed_is_refused_with_a_pointer(
    message: PackedMessage | JsonMessage, code: str, pointer: str
) -> None:
    """The code and the place, and nothing encoded."""
    encoded = encode(topic_of(broker_a=1), message)
    assert (encoded.errors[0].code, encoded.errors[0].fields["pointer"]) == (code, pointer)
    assert encoded.parcels == []


@pytest.mark.parametrize("queue", ["broker-a:4", "broker-b:0", "3", "broker-a:-1", "broker-a:01", "x" * 500])
def test_a_pinned_queue_must_exist(queue: str) -> None:
    """404 queue-not-found, whether it is missing or misspelled."""
    assert encode(topic_of(broker_a=4), PackedMessage(b"", queue=queue)).errors[0].code == "queue-not-found"


def test_a_body_over_the_limit_is_refused_and_one_at_the_limit_is_not() -> None:
    """4 MiB exactly is fine."""
    at_limit = PackedMessage(bytes(MESSAGE_BODY_SIZE_MAX_BYTES))
    over = PackedMessage(bytes(MESSAGE_BODY_SIZE_MAX_BYTES + 1))
    encoded = encode(topic_of(broker_a=1), at_limit, over)
    assert len(records_of(encoded)) == 1
    assert (encoded.errors[1].code, encoded.errors[1].fields["limit"]) == (
        "message-too-large",
        MESSAGE_BODY_SIZE_MAX_BYTES,
    )


def test_properties_have_a_limit_together() -> None:
    """Each value is short enough, all of them are not: 413."""
    many = PackedMessage(b"", properties={f"p{n}": "v" * 8_000 for n in range(3)})
    few = PackedMessage(b"", properties={f"p{n}": "v" * 8_000 for n in range(2)})
    encoded = encode(topic_of(broker_a=1), many, few)
    assert (encoded.errors[0].code, encoded.errors[0].fields["limit"]) == (
        "properties-too-large",
        PROPERTIES_SIZE_MAX_BYTES,
    )
    assert list(encoded.errors) == [0]


def test_a_request_goes_to_one_queue_and_requests_take_turns() -> None:
    """Sticky within a batch, round robin between requests."""
    topic = topic_of(broker_a=4)
    queues = [{record.queue for record in records_of(encode(topic, *[PackedMessage(b"")] * 5))} for _ in range(8)]
    assert all(len(each) == 1 for each in queues)
    assert [each.pop() for each in queues] == [1, 2, 3, 0, 1, 2, 3, 0]


def test_turns_reach_every_queue_of_every_broker_group() -> None:
    """With two broker groups of three queues, six requests reach six queues."""
    topic = topic_of(broker_a=3, broker_b=3)
    parcels = [encode(topic, PackedMessage(b"")).parcels[0] for _ in range(6)]
    reached = {(parcel.broker_group, int(np.frombuffer(parcel.rows[0], SEND_ROWS)["queue"][0])) for parcel in parcels}
    assert len(reached) == 6


def test_a_key_always_belongs_to_the_same_broker_group() -> None:
    """Only there is its first send remembered; different keys spread."""
    topic = topic_of(broker_a=2, broker_b=2, broker_c=2)
    homes = [
        {encode(topic, PackedMessage(b"", idempotency_key=f"k{key}")).parcels[0].broker_group for _ in range(7)}
        for key in range(30)
    ]
    assert all(len(home) == 1 for home in homes)
    assert set.union(*homes) == {"broker-a", "broker-b", "broker-c"}


def test_a_batch_is_cut_into_chunks_in_order() -> None:
    """No chunk is over a lane's size, indexes stay in order, nothing is lost."""
    encoded = encode(topic_of(broker_a=4), *[PackedMessage(bytes(300_000))] * 10)
    assert [len(parcel.rows) for parcel in encoded.parcels] == [3, 3, 3, 1]
    assert all(parcel.size_bytes <= LANE_SIZE_MAX_BYTES for parcel in encoded.parcels)
    assert [index for parcel in encoded.parcels for index in parcel.indexes] == list(range(10))


def test_messages_of_two_topics_travel_in_one_request() -> None:
    """Rows of the second topic are renumbered; sizes and records stay."""
    orders, bills = topic_of(broker_a=1), Topic("bills", {"broker-a": TopicRoute(topic_id=8, queues=1)})
    first = encode(orders, PackedMessage(b"o"))
    second = encode(bills, PackedMessage(b"b1"), PackedMessage(b"b2"))
    send, behind = send_of([*first.parcels, *second.parcels])
    assert (send.topics, send.rows) == (["orders", "bills"], 3)
    raw = b"".join(behind)
    rows = np.frombuffer(raw, SEND_ROWS, 3)
    assert rows["topic"].tolist() == [0, 1, 1]
    assert rows["size"].sum() + rows.nbytes == len(raw)


def test_tags_that_a_producer_makes_up_cost_no_memory() -> None:
    """The cache of hashes is bounded and stays right."""
    topic = topic_of(broker_a=1)
    for number in range(3 * TAGS_KEPT_MAX):
        assert topic.tag_hash(f"t{number}") == tag_hash(f"t{number}")
    assert len(topic._tags) <= TAGS_KEPT_MAX


def test_ids_are_of_one_length_and_never_the_same() -> None:
    """32 upper-case hexadecimal digits."""
    ids = MessageIds(PREFIX)
    taken = [ids.take() for _ in range(1_000)]
    assert len(set(taken)) == 1_000
    assert all(len(each) == 32 and each == each.upper() and int(each, 16) for each in taken)
    with pytest.raises(ValueError, match="20 upper-case"):
        MessageIds("abc")


# Batches ----------------------------------------------------------------------------------------------------------
def test_a_batch_says_the_same_in_all_formats() -> None:
    """JSON, NDJSON (with empty lines and CRLF) and MessagePack."""
    fields = {"tag": "A", "keys": ["k"], "properties": {"p": "v"}, "queue": "broker-a:0", "idempotency_key": "i"}
    text = {**fields, "body_base64": base64.b64encode(b"\x00hi").decode()}
    bodies = [
        (orjson.dumps({"messages": [text, text]}), JSON + "; charset=utf-8"),
        (orjson.dumps(text) + b"\r\n\n  \n" + orjson.dumps(text), NDJSON),
        (orjson.dumps(text) + b"\n" + orjson.dumps(text) + b"\n", JSONL),
        (msgspec.msgpack.encode({"messages": [{**fields, "body": b"\x00hi"}] * 2}), MSGPACK),
    ]
    read = [
        [records_of(encode(topic_of(broker_a=1), message))[0] for message in read_batch(body, kind)]
        for body, kind in bodies
    ]
    assert all(len(records) == 2 for records in read)
    assert all(records == read[0] for records in read)


@pytest.mark.parametrize(
    ("body", "kind", "code", "pointer"),
    [
        (b"", JSON, "malformed-body", "/"),
        (b"{", JSON, "malformed-body", "/"),
        (b'{"messages":[]}', JSON, "batch-empty", None),
        (b"[]", JSON, "invalid-field", "/"),
        (b'{"messages":[{"body":"a"},{"body":1}]}', JSON, "invalid-field", "/messages/1/body"),
        (b'{"messages":[{"body":"a","delya":"10s"}]}', JSON, "unknown-field", "/messages/0/delya"),
        (b'{"messages":[{"body":"a","delay":true}]}', JSON, "invalid-field", "/messages/0/delay"),
        (b'{"messages":[{"body":"a","delay_level":"1"}]}', JSON, "invalid-field", "/messages/0/delay_level"),
        (b'{"messages":[{"body_base64":"%"}]}', JSON, "invalid-field", "/messages/0/body_base64"),
        (b'{"messages":[],"atomic":true}', JSON, "unknown-field", "/atomic"),
        (b'{"messages":[{"json":' + b"[" * 100_000, JSON, "document-too-complex", "/"),
        (b'{"body":"a"}\n{"body":', NDJSON, "malformed-body", "/messages/1"),
        (b'{"body":"a"}\n{"bdy":"b"}', NDJSON, "unknown-field", "/messages/1/bdy"),
        (b"", NDJSON, "batch-empty", None),
        (b"\xc1", MSGPACK, "malformed-body", "/"),
        (b"\x90", MSGPACK, "invalid-field", "/"),
        (b"a=b", "application/x-www-form-urlencoded", "unsupported-batch-format", None),
        (b"{}", "", "unsupported-batch-format", None),
    ],
)
def test_batches_that_cannot_be_read_are_refused(body: bytes, kind: str, code: str, pointer: str | None) -> None:
    """A code and, where there is one, the place."""
    with pytest.raises(TernError) as caught:
        read_batch(body, kind)
    assert caught.value.code == code
    if pointer is not None:
        assert caught.value.fields["pointer"] == pointer


@pytest.mark.parametrize("kind", [JSON, NDJSON, MSGPACK])
def test_a_batch_has_a_largest_number_of_messages(kind: str) -> None:
    """1,024 are fine, one more is 413."""

    def body(count: int) -> bytes:
        messages = [{"body": "x"}] * count
        if kind == NDJSON:
            return b"\n".join(map(orjson.dumps, messages))
        if kind == MSGPACK:
            return msgspec.msgpack.encode({"messages": [{"body": b"x"}] * count})
        return orjson.dumps({"messages": messages})

    assert len(read_batch(body(BATCH_MESSAGES_MAX), kind)) == BATCH_MESSAGES_MAX
    with pytest.raises(TernError) as caught:
        read_batch(body(BATCH_MESSAGES_MAX + 1), kind)
    assert (caught.value.code, caught.value.fields["unit"]) == ("batch-too-large", "messages")


def test_a_row_says_that_the_owner_of_before_has_sent_it_on_and_a_row_without_key_stays_one() -> None:
    """So that the next owner takes it, and nobody repeats it."""
    moving = Placement(epoch=2, groups=("broker-b",), before=("broker-a",))
    part = TopicRoute(topic_id=7, queues=2, placement=str(moving))
    topic = Topic("orders", {"broker-a": part, "broker-b": part})
    messages = [PackedMessage(body=b"x", idempotency_key="k"), PackedMessage(body=b"x", message_group="m")]
    for moved_from, flags in (("", [FLAG_KEYED, 0]), ("broker-a", [FLAG_KEYED | FLAG_SENT_ON, FLAG_SENT_ON])):
        encoded = encode_messages(
            topic,
            messages,
            ids=MessageIds(PREFIX),
            born_ms=1_234,
            born_host=host_bytes("10.0.0.1", 99),
            usable=("broker-a",),
            moved_from=moved_from,
        )
        (parcel,) = encoded.parcels
        assert np.frombuffer(b"".join(parcel.rows), SEND_ROWS)["flags"].tolist() == flags
        assert parcel.broker_group == ("broker-b" if moved_from else "broker-a")
        assert not parcel.is_keyed
