"""Delivery times and message groups of a send: rows, records, broker groups, limits."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.sending.encoding import Encoded, MessageIds, encode_messages
from tern_proxy.core.sending.topic import Topic
from tern_wire.limits import DELAY_LEVELS_MS, TIMER_DELAY_MAX_MS
from tern_wire.link.rows import SEND_ROWS, message_group_hash
from tern_wire.records.hosts import host_bytes
from tern_wire.records.read import decode_record
from tern_wire.routing.route import TopicRoute

BORN_MS = 1_767_225_600_000
DAY_MS = 24 * 3_600_000


def topic_of(kind: str = "MIXED", **queues: int) -> Topic:
    """Topic orders with so many queues in each broker group (written broker_a=4)."""
    routes = {
        name.replace("_", "-"): TopicRoute(topic_id=7, queues=count, type=kind)
        for name, count in (queues or {"broker_a": 4}).items()
    }
    return Topic("orders", routes)


def encode(topic: Topic, *messages: PackedMessage | JsonMessage) -> Encoded:
    """Encode with fixed ids and times."""
    return encode_messages(
        topic,
        list(messages),
        ids=MessageIds("0" * 20),
        born_ms=BORN_MS,
        born_host=host_bytes("10.0.0.1", 99),
        usable=tuple(topic.broker_groups),
    )


def facts(encoded: Encoded) -> tuple[Any, dict[str, str]]:
    """The one row, and the record's properties."""
    (parcel,) = encoded.parcels
    return np.frombuffer(parcel.rows[0], SEND_ROWS)[0], decode_record(b"".join(parcel.parts)).properties


@pytest.mark.parametrize(
    ("fields", "deliver_ms"),
    [
        ({"delay": "30s"}, BORN_MS + 30_000),
        ({"delay": 1}, BORN_MS + 1),
        ({"delay": "40d"}, BORN_MS + TIMER_DELAY_MAX_MS),
        ({"deliver_at": BORN_MS + 5}, BORN_MS + 5),
        ({"deliver_at": str(BORN_MS + 6)}, BORN_MS + 6),
        ({"deliver_at": datetime.fromtimestamp(BORN_MS / 1000 + 60, UTC).isoformat()}, BORN_MS + 60_000),
        ({"deliver_at": "2026-01-01T02:00:00+01:00"}, BORN_MS + 3_600_000),
        ({"delay_level": 1}, BORN_MS + 1_000),
        ({"delay_level": 18}, BORN_MS + 7_200_000),
        ({"delay_level": 1_000}, BORN_MS + 7_200_000),
    ],
)
def test_a_delivery_time_is_in_the_row_and_in_the_record(fields: dict[str, Any], deliver_ms: int) -> None:
    """In RocketMQ's properties, the level too; and the encoded request knows who waits for it."""
    for kind in (PackedMessage, JsonMessage):
        body: Any = b"x" if kind is PackedMessage else "x"
        encoded = encode(topic_of(), kind(body=body, **fields))
        row, properties = facts(encoded)
        assert row["deliver_ms"] == deliver_ms == int(properties["TIMER_DELIVER_MS"])
        assert properties.get("DELAY") == (str(min(fields["delay_level"], 18)) if "delay_level" in fields else None)
        assert encoded.deliver_ms == {0: deliver_ms}
        assert row["message_group"] == 0


@pytest.mark.parametrize("fields", [{}, {"delay": 0}, {"delay": "0s"}, {"deliver_at": 0}, {"deliver_at": BORN_MS}])
def test_without_a_time_or_with_one_that_is_over_it_is_at_once(fields: dict[str, Any]) -> None:
    """The row says 0, the record nothing."""
    encoded = encode(topic_of(), PackedMessage(b"x", **fields))
    row, properties = facts(encoded)
    assert (row["deliver_ms"], encoded.deliver_ms) == (0, {})
    assert "TIMER_DELIVER_MS" not in properties


def test_rocketmqs_levels_are_the_known_table() -> None:
    """1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h."""
    minutes = [*range(1, 11), 20, 30, 60, 120]
    assert [ms // 1_000 for ms in DELAY_LEVELS_MS] == [1, 5, 10, 30, *(60 * minute for minute in minutes)]


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({"delay": "40d1"}, "illegal-delivery-time", "delay"),
        ({"delay": 40 * DAY_MS + 1}, "illegal-delivery-time", "delay"),
        ({"delay": "9" * 12 + "d"}, "illegal-delivery-time", "delay"),
        ({"delay": -1}, "illegal-delivery-time", "delay"),
        ({"delay": ""}, "illegal-delivery-time", "delay"),
        ({"deliver_at": BORN_MS + 40 * DAY_MS + 1}, "illegal-delivery-time", "deliver_at"),
        ({"deliver_at": -1}, "illegal-delivery-time", "deliver_at"),
        ({"deliver_at": ""}, "illegal-delivery-time", "deliver_at"),
        ({"deliver_at": "1969-12-31T23:59:59Z"}, "illegal-delivery-time", "deliver_at"),
        ({"deliver_at": 1 << 70}, "illegal-delivery-time", "deliver_at"),
        ({"delay_level": 0}, "illegal-delivery-time", "delay_level"),
        ({"delay_level": -3}, "illegal-delivery-time", "delay_level"),
        ({"delay": 1, "deliver_at": 1}, "illegal-delivery-time", "deliver_at"),
        ({"deliver_at": 1, "delay_level": 1}, "illegal-delivery-time", "delay_level"),
        ({"message_group": "ä" * 32}, "illegal-message-group", "message_group"),
        ({"message_group": "a\n"}, "illegal-message-group", "message_group"),
        ({"message_group": "g", "queue": "broker-a:1"}, "property-conflicts-with-type", "message_group"),
        ({"message_group": "g", "deliver_at": 1}, "property-conflicts-with-type", "message_group"),
        ({"message_group": "g", "delay": 0}, "property-conflicts-with-type", "message_group"),
        ({"properties": {"DELAY": "3"}}, "illegal-property", "properties/DELAY"),
        ({"properties": {"TIMER_DELIVER_MS": "3"}}, "illegal-property", "properties/TIMER_DELIVER_MS"),
        ({"properties": {"__SHARDINGKEY": "3"}}, "illegal-property", "properties/__SHARDINGKEY"),
    ],
)
def test_what_is_not_allowed_is_refused_with_its_place(fields: dict[str, Any], code: str, pointer: str) -> None:
    """And the other messages of the request go on."""
    encoded = encode(topic_of(), PackedMessage(b"good"), PackedMessage(b"bad", **fields), PackedMessage(b"good"))
    assert encoded.errors[1].code == code
    assert encoded.errors[1].fields["pointer"] == f"/messages/1/{pointer}"
    assert [index for parcel in encoded.parcels for index in parcel.indexes] == [0, 2]


def test_a_message_group_decides_the_broker_group_and_its_slot_the_queue() -> None:
    """Also with an idempotency key, whose table is then there; the row's queue is 0, since the leader's slots choose."""
    topic = topic_of(broker_a=4, broker_b=4, broker_c=4)
    seen = set()
    for number in range(40):
        name = f"user-{number}"
        keyed = [PackedMessage(b"x", message_group=name, idempotency_key=f"k{number}{n}") for n in range(3)]
        encoded = encode(topic, PackedMessage(b"x", message_group=name), *keyed)
        (parcel,) = encoded.parcels
        seen.add(parcel.broker_group)
        rows = np.frombuffer(b"".join(parcel.rows), SEND_ROWS)
        assert set(rows["queue"].tolist()) == {0}
        assert set(rows["message_group"].tolist()) == {message_group_hash(name.encode())}
        assert decode_record(b"".join(parcel.parts[:3])).properties["__SHARDINGKEY"] == name
    assert seen == {"broker-a", "broker-b", "broker-c"}


@pytest.mark.parametrize(
    ("kind", "fields", "is_allowed"),
    [
        ("NORMAL", {}, True),
        ("NORMAL", {"delay": "1s"}, False),
        ("NORMAL", {"message_group": "g"}, False),
        ("DELAY", {"delay": "1s"}, True),
        ("DELAY", {"deliver_at": 1}, True),
        ("DELAY", {}, False),
        ("FIFO", {"message_group": "g"}, True),
        ("FIFO", {}, False),
        ("MIXED", {"delay_level": 3}, True),
        ("MIXED", {"message_group": "g"}, True),
    ],
)
def test_a_topics_type_says_which_messages_it_takes(kind: str, fields: dict[str, Any], is_allowed: bool) -> None:
    """As RocketMQ's proxy checks it."""
    encoded = encode(topic_of(kind), PackedMessage(b"x", **fields))
    assert [error.code for error in encoded.errors.values()] == ([] if is_allowed else ["property-conflicts-with-type"])
