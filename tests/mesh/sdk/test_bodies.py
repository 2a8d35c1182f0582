"""Typed bodies through a real mesh: each reader of the SDK gets the value that was sent, and a receiver without the SDK its JSON."""

import threading
from dataclasses import dataclass, field

import pytest

from tern_client import (
    BlockingConsumer,
    BlockingProducer,
    BlockingPullConsumer,
    BodyMismatch,
    CloudEvent,
    OutgoingMessage,
)
from tests.support.mesh.mesh import Mesh


@dataclass
class Order:
    """What is sent."""

    id: int
    items: list[str] = field(default_factory=list)


ORDERS = [Order(1, ["tea"]), Order(2), Order(3, ["ü"])]


def test_a_value_reaches_every_reader_as_it_was(mesh: Mesh) -> None:
    """Received, pulled and as plain HTTP; sent alone, in a batch, and as an event in both modes."""
    mesh.create("typed", "typed-readers")
    with BlockingProducer(mesh.endpoint) as producer:
        producer.send("typed", ORDERS[0])
        producer.send_batch("typed", [OutgoingMessage(body=order) for order in ORDERS[1:]]).confirmed()
    with BlockingConsumer(mesh.endpoint, "typed", "typed-readers") as consumer:
        received = [message for message in consumer.until_idle(2_000) if not consumer.ack(message)]
    with BlockingPullConsumer(mesh.endpoint, "typed") as pulling:
        pulled = list(pulling.until_idle(500))
    for messages in (received, pulled):
        assert sorted((message.decode(Order) for message in messages), key=lambda order: order.id) == ORDERS
    with pytest.raises(BodyMismatch, match=f"message {received[0].message_id} is not list"):
        received[0].decode(list[int])
    plain = [
        each["json"]["id"]
        for queue in {message.queue for message in received}
        for each in mesh.call("GET", f"/v1/topics/typed/queues/{queue}/messages?offset=0").json()["messages"]
    ]
    assert sorted(plain) == [1, 2, 3]


def test_events_keep_their_attributes_in_both_modes(mesh: Mesh) -> None:
    """Time, extensions and data; a filter sees the attributes of binary mode."""
    mesh.create("events", "event-readers")
    event = CloudEvent(type="order.paid", source="/shop", data=Order(7), extensions={"shop": "north"})
    with BlockingProducer(mesh.endpoint) as producer:
        producer.send("events", event)
    with BlockingProducer(mesh.endpoint, serializer="cloudevents") as producer:
        producer.send("events", event)
    with BlockingConsumer(mesh.endpoint, "events", "event-readers") as consumer:
        found = [message for message in consumer.until_idle(2_000) if not consumer.ack(message)]
    assert {message.content_type for message in found} == {"application/json", "application/cloudevents+json"}
    for message in found:
        read = message.decode(CloudEvent[Order])
        assert (read.type, read.id, read.data, read.extensions) == (event.type, event.id, Order(7), {"shop": "north"})


def test_a_request_and_its_reply_are_values(mesh: Mesh) -> None:
    """On both sides."""
    mesh.create("priced", "pricing")

    def answer() -> None:
        with BlockingConsumer(mesh.endpoint, "priced", "pricing") as consumer:
            for request in consumer:
                consumer.reply(request, {"price": 9.5, "of": request.decode(Order).id})
                consumer.ack(request)
                return

    answering = threading.Thread(target=answer)
    answering.start()
    with BlockingProducer(mesh.endpoint) as producer:
        reply = producer.request("priced", Order(7), timeout="20s")
    answering.join(60)
    assert reply.decode() == {"price": 9.5, "of": 7}
