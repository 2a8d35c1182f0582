"""Arguments of a wrong type, at every call that takes them: a TypeError names the argument, and nothing is sent."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tern_client import (
    BlockingConsumer,
    BlockingProducer,
    BlockingTransactionProducer,
    BodyMismatch,
    CloudEvent,
    Consumer,
    EncodedBody,
    HalfMessage,
    OutgoingMessage,
    Producer,
)
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, blocking_proxy, packed, said
from tests.unit.client.bodies.orders import Order
from tests.unit.client.deliveries import delivered, delivery

RECEIPT = {"message_id": "m", "queue": "broker-a:1", "offset": 7, "born_at": 1}
# Fields of a message, and what the error says.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"body": 7}, "body is an int; allowed are bytes"),
    ({"keys": "abc"}, "keys is a str; allowed is a list or tuple of str, such as ['abc']"),
    ({"keys": b"abc"}, "keys is a bytes; allowed is a list or tuple of str"),
    ({"keys": {"a": 1}}, "keys is a dict; allowed is"),
    ({"keys": ["a", 1]}, "keys[1] is an int; allowed is a str"),
    ({"tag": 5}, "tag is an int; allowed is a str"),
    ({"tag": "x", "queue": b"broker-a:0"}, "queue is a bytes; allowed is a str"),
    ({"content_type": ["x"]}, "content_type is a list; allowed is a str"),
    ({"message_group": 4}, "message_group is an int; allowed is a str"),
    ({"idempotency_key": 4}, "idempotency_key is an int; allowed is a str"),
    ({"properties": [("a", "b")]}, "properties is a list; allowed is a dict of str to str"),
    ({"properties": {"a": 1}}, "properties['a'] is an int; allowed is a str"),
    ({"properties": {1: "a"}}, "a name in properties is an int; allowed is a str"),
    ({"delay": 1.5}, 'delay is a float; allowed is a text such as "30s", an int of milliseconds or a timedelta'),
    ({"delay": datetime(2026, 1, 1, tzinfo=UTC)}, "delay is a datetime; allowed is"),
    ({"delay": True}, "delay is a bool; allowed is"),
    ({"deliver_at": timedelta(1)}, "deliver_at is a timedelta; allowed is a datetime, an int of milliseconds since"),
    ({"deliver_at": 1.5}, "deliver_at is a float; allowed is"),
    ({"delay_level": "3"}, "delay_level is a str; allowed is an int from 1 to 18"),
]


# Fields that a half message does not have.
NOT_OF_TRANSACTIONS = {"message_group", "delay", "deliver_at", "delay_level"}


def answer(asked: Asked) -> Reply:
    """Stores everything; delivers two messages."""
    if asked.path.endswith("/receive"):
        return delivered(1, 2)
    if asked.path.endswith("/batch"):
        count = len(asked.document["messages"])
        return packed({"results": [{**RECEIPT, "index": at} for at in range(count)], "failed": 0})
    return said(RECEIPT, 201)


def fields_of(fields: dict[str, Any]) -> dict[str, Any]:
    """*fields* with a body."""
    return {"body": b"x", **fields}


@pytest.mark.parametrize("fields, text", WRONG, ids=str)
async def test_a_wrong_field_is_named_by_every_way_of_sending(fields: dict[str, Any], text: str) -> None:
    """Before anything is sent, by both producers."""
    wanted, message = re.escape(text), OutgoingMessage(**fields_of(fields))
    parts = fields_of(fields)
    body = parts.pop("body")
    async with ScriptedProxy(answer=answer) as proxy, Producer(proxy.url) as producer:
        calls: list[Callable[[], Any]] = [
            lambda: producer.send("t", body, **parts),
            lambda: producer.send_message("t", message),
            lambda: producer.send_batch("t", [OutgoingMessage(body=b"fine"), message]),
            lambda: producer.send_soon("t", message),
            lambda: producer.request("t", body, **parts),
        ]
        for call in calls:
            with pytest.raises(TypeError, match=wanted):
                await call()
        with BlockingProducer(proxy.url) as blocking:
            for blocking_call in (
                lambda: blocking.send("t", body, **parts),
                lambda: blocking.send_batch("t", [message]),
                lambda: blocking.request("t", body, **parts),
            ):
                with pytest.raises(TypeError, match=wanted):
                    blocking_call()
        if fields.keys().isdisjoint(NOT_OF_TRANSACTIONS):
            with (
                BlockingTransactionProducer(proxy.url, "shop") as transactions,
                pytest.raises(TypeError, match=wanted),
            ):
                transactions.begin([HalfMessage(topic="t", body=b"fine"), HalfMessage(topic="t", **fields_of(fields))])
        assert proxy.asked == []


async def test_times_and_bodies_of_a_consumer_are_named() -> None:
    """Of settles and of replies."""
    async with ScriptedProxy(answer=answer) as proxy:
        async with Consumer(proxy.url, "t", "g") as consumer:
            first, _ = await consumer.receive()
            sent = len(proxy.asked)
            with pytest.raises(TypeError, match="invisible_ms is a ReceivedMessage; allowed is an int of milliseconds"):
                await consumer.extend(first)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="delay_ms is a str; allowed is an int of milliseconds, or None"):
                await consumer.nack(first, delay_ms="5s")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="body is an int"):
                await consumer.reply(first, 42)
            with pytest.raises(TypeError, match="keys is a str"):
                await consumer.reply(first, b"", keys="k")
            assert len(proxy.asked) == sent
        async with Producer(proxy.url) as producer:
            with pytest.raises(TypeError, match=r"timeout is a float; allowed is a text such as"):
                await producer.request("t", b"x", timeout=1.5)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="body is an int"):
                await producer.reply("t", 42, reply_to="a", correlation_id="b")


async def test_typed_bodies_travel_by_every_way_of_sending() -> None:
    """What arrives is JSON that says so; a content type of the caller's stays."""
    async with ScriptedProxy(answer=answer) as proxy:
        async with Producer(proxy.url) as producer:
            await producer.send("t", Order(1))
            await producer.send("t", {"id": 2}, content_type="application/vnd.shop+json")
            await producer.send_batch("t", [OutgoingMessage(body=Order(3)), OutgoingMessage(body="four")])
            await (await producer.send_soon("t", OutgoingMessage(body=Order(5), properties={"a": "b"})))
            await producer.send("t", CloudEvent(type="paid", source="/s", id="6"), properties={"a": "b"})
        single, named, batch, soon, event = proxy.asked
        assert (single.body, single.headers["content-type"]) == (b'{"id":1,"items":[],"at":null}', "application/json")
        assert named.headers["content-type"] == "application/vnd.shop+json"
        bodies = [(each["body"], each["content_type"]) for each in batch.document["messages"]]
        assert bodies == [(b'{"id":3,"items":[],"at":null}', "application/json"), (b"four", "text/plain")]
        assert soon.document["messages"][0]["properties"] == {"a": "b"}
        assert '"CE_type":"paid"' in event.headers["mq-properties"] and '"a":"b"' in event.headers["mq-properties"]


def test_typed_bodies_travel_from_threads_and_in_transactions() -> None:
    """The blocking half, a half message, and a reply."""
    with blocking_proxy(answer) as proxy:
        with BlockingProducer(proxy.url, serializer="json") as producer:
            producer.send("t", "text")
            producer.send("t", b"bytes")
        with BlockingConsumer(proxy.url, "t", "g") as consumer:
            first, _ = consumer.receive()
            request = type(first)(**{**delivery(1), "keys": (), "reply_to": "a", "correlation_id": "b"})
            consumer.reply(request, Order(8), keys=["k"])
        text, plain, _, reply = proxy.asked[:4]
        assert (text.body, text.headers["content-type"]) == (b'"text"', "application/json")
        assert plain.body == b"bytes" and "content-type" not in plain.headers
        assert reply.body == b'{"id":8,"items":[],"at":null}'
        assert reply.headers["content-type"] == "application/json" and "key=k" in reply.path


def test_a_serializer_of_ones_own_must_return_what_can_be_sent() -> None:
    """Its fault is named as its own."""
    with blocking_proxy(answer) as proxy:
        with BlockingProducer(proxy.url, serializer=lambda body: EncodedBody(repr(body).encode(), "x/y")) as producer:
            producer.send("t", 5)
        assert (proxy.asked[0].body, proxy.asked[0].headers["content-type"]) == (b"5", "x/y")
        with (
            BlockingProducer(proxy.url, serializer=lambda _: b"x") as producer,  # type: ignore[arg-type,return-value]
            pytest.raises(TypeError, match="the serializer returned a bytes; it must return an EncodedBody"),
        ):
            producer.send("t", 5)


def test_a_received_message_is_decoded_with_its_own_fields() -> None:
    """The content type, the properties and the id of the message."""
    with blocking_proxy(answer) as proxy, BlockingConsumer(proxy.url, "t", "g") as consumer:
        first, second = consumer.receive()
        assert first.decode() == first.decode(bytes) == b"body 1"
        with pytest.raises(BodyMismatch, match="The body of message m2 is not Order"):
            second.decode(Order)
