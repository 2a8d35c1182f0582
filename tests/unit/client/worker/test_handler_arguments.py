"""What `Worker.on` takes: handlers by their annotations, and options that go together."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from socket import socket
from typing import Any

import pytest

from tern_client import FileOffsets, PulledMessage, ReceivedMessage, Worker
from tern_client.bodies.decoders import decoder_for
from tern_client.worker.arguments import read_handler
from tern_client.worker.outcomes import BodyRefused
from tests.unit.client.deliveries import received


# What `on` takes ---------------------------------------------------------------------------------
async def takes_message(message: ReceivedMessage) -> None:
    """A handler."""


def takes_bodies(bodies: list[bytes]) -> None:
    """A handler."""


def takes_pulled(message: PulledMessage) -> None:
    """A handler."""


class Service:
    """Handlers that are methods or objects."""

    async def handle(self, message: ReceivedMessage) -> None:
        """A method."""

    async def __call__(self, body: bytes, times: int = 1) -> None:
        """An object."""


def test_the_annotation_decides_what_a_handler_takes() -> None:
    """One or a list, the message or its body; functions, methods and objects."""
    one, batch = read_handler(takes_message, is_broadcast=False), read_handler(takes_bodies, is_broadcast=False)
    assert (one.is_async, one.is_batch, one.decoder) == (True, False, None)
    assert (batch.is_async, batch.is_batch, batch.decoder) == (False, True, decoder_for(bytes))
    assert read_handler(Service().handle, is_broadcast=False).is_async
    assert read_handler(Service(), is_broadcast=False).decoder is decoder_for(bytes)
    assert read_handler(takes_pulled, is_broadcast=True).decoder is None


@dataclass
class Order:
    """A body."""

    number: int


def test_a_handler_takes_the_value_of_a_body_and_says_why_one_does_not_fit() -> None:
    """Of any type that `message.decode` knows; with the message's id, for the reader of the dead letter."""

    def handle(order: Order) -> None:
        """A handler."""

    handler, message = read_handler(handle, is_broadcast=False), received(1)
    assert handler.one(replace(message, body=b'{"number": 7}')) == Order(7)
    with pytest.raises(BodyRefused, match=rf"body of message {message.message_id} is not Order: .*number"):
        handler.one(replace(message, body=b'{"number": "seven"}'))


def no_annotation(message) -> None:  # type: ignore[no-untyped-def]
    """Says nothing of its parameter."""


def takes_socket(order: socket) -> None:
    """A type that no body can fill."""


def takes_two(one: bytes, two: bytes) -> None:
    """One too many."""


def takes_none() -> None:
    """One too few."""


async def yields(body: bytes) -> Any:
    """A generator."""
    yield body


@pytest.mark.parametrize(
    "function, is_broadcast, said",
    [
        (no_annotation, False, "parameter 'message' of no_annotation is annotated with nothing"),
        (
            takes_socket,
            False,
            "annotated with socket; a handler takes ReceivedMessage, bytes or the type of a body, or a list of these: ",
        ),
        (takes_pulled, False, "annotated with PulledMessage"),
        (takes_message, True, "with broadcast=True a handler takes PulledMessage, bytes"),
        (takes_two, False, "takes_two takes 2 arguments; a handler takes one"),
        (takes_none, False, "takes_none takes 0 arguments"),
        (yields, False, "yields is a generator"),
    ],
)
def test_what_a_handler_cannot_take_is_named(function: Callable[[Any], Any], is_broadcast: bool, said: str) -> None:
    """With its parameter, and what is allowed."""
    with pytest.raises(TypeError) as caught:
        read_handler(function, is_broadcast=is_broadcast)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "options, said",
    [
        ({}, "give the group that shares the messages of t, or broadcast=True"),
        ({"group": "g", "concurrency": 0}, "concurrency is 0; use 1 to 1000"),
        ({"group": "g", "concurrency": "8"}, "concurrency is a str"),
        ({"group": "g", "tags": "a", "sql": "b"}, "give tags or sql"),
        ({"group": "g", "broadcast": True}, "a broadcast has no group"),
        ({"group": "g", "start": "earliest"}, "start and offsets belong to broadcast=True"),
        ({"group": "g", "deadline": "0s"}, "deadline is 0s; use 1 ms"),
        ({"group": "g", "lease": "10ms"}, "lease is 10ms"),
        ({"broadcast": True, "retry_in": 1}, "no retries"),
        ({"broadcast": True, "start": "yesterday"}, "start is 'yesterday'; use 'earliest', 'latest', a time"),
        ({"broadcast": True, "start": {"broker-a:0": 1}, "offsets": FileOffsets("x")}, "give one of the two"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], said: str) -> None:
    """When the handler is declared, not when it runs."""
    with pytest.raises((TypeError, ValueError)) as caught:
        Worker("http://127.0.0.1:8080").on("t", **options)(takes_pulled if "broadcast" in options else takes_message)
    assert said in str(caught.value)


def test_a_batch_is_not_ordered_and_a_group_has_one_handler() -> None:
    """Both are told at once."""
    worker = Worker("http://127.0.0.1:8080")
    with pytest.raises(ValueError, match="one message of a message group at a time"):
        worker.on("t", group="g", ordered=True)(takes_bodies)
    worker.on("t", group="g")(takes_message)
    with pytest.raises(ValueError, match="t has a handler for g already"):
        worker.on("t", group="g")(takes_bodies)


@pytest.mark.parametrize(
    "start, said",
    [
        (None, "latest"),
        ("earliest", "earliest"),
        (1_500, "@1500"),
        ("1970-01-01T00:00:02Z", "@2000"),
        (datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), "@3000"),
        ({"broker-a:0": 7}, "earliest"),
    ],
)
def test_a_broadcast_begins_where_it_is_told(start: Any, said: str) -> None:
    """In the words of a pull; offsets are a store of places."""
    worker = Worker("http://127.0.0.1:8080")
    worker.on("t", broadcast=True, start=start)(takes_pulled)
    (options,) = worker._options
    assert options.start == said
    assert isinstance(start, dict) is (options.offsets is not None)
