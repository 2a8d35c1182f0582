"""Endpoints: what is one, and what a client says when nobody listens at it."""

import asyncio
from typing import Any

import pytest

from tern_client import (
    Admin,
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    Consumer,
    EndpointMalformed,
    OutgoingMessage,
    Producer,
    ProxyUnreachable,
    RetryPolicy,
)
from tern_client.transport.endpoints import Endpoints
from tern_wire.errors import OutcomeUnknown
from tests.support.client.scripted_proxy import HANG_UP, Asked, Reply, ScriptedProxy

# Nothing listens there: port 1 of loopback is never given out.
NOBODY = "http://127.0.0.1:1"
# The first pause would be longer than the deadline: one attempt, without a race against the clock.
ONCE = RetryPolicy(first_delay_ms=60_000, max_delay_ms=60_000, deadline_ms=10_000)
IMPATIENT = RetryPolicy(first_delay_ms=1, max_delay_ms=1, deadline_ms=300)
MALFORMED: list[Any] = [
    "localhost:8080",
    "127.0.0.1:8080",
    "http://",
    "http://:8080",
    "ftp://x",
    "http:/host",
    "http://host:99999",
    "http://host:0",
    "http://host:port",
    "http://[::1",
    "http://a b:8080",
    " http://host",
    "http://host?x=1",
    "http://host#x",
    "http://host/v1",
    "http://host:8080/v1/",
    "https://host/mq/v1",
    "http://user:secret@host",
    "http://host/m\u00fc",
    'http://host/"a"',
    "",
    None,
    8080,
    b"http://host",
    [],
    [None],
    ["http://127.0.0.1:8080", "localhost:8080"],
]


@pytest.mark.parametrize("endpoint", MALFORMED, ids=repr)
def test_a_malformed_endpoint_is_refused_at_once_by_every_client(endpoint: Any) -> None:
    """A ValueError that shows what was given and what an endpoint looks like; no client is half made."""
    for make in (Producer, Admin, BlockingProducer, BlockingAdmin):
        with pytest.raises(EndpointMalformed, match=r"such as http://127\.0\.0\.1:8080"):
            make(endpoint)
    for make_consumer in (Consumer, BlockingConsumer):
        with pytest.raises(ValueError, match=r"such as http://127\.0\.0\.1:8080"):
            make_consumer(endpoint, "t", "g")


def test_the_refusal_names_the_endpoint_that_is_wrong_and_why() -> None:
    """One of several, too."""
    with pytest.raises(EndpointMalformed, match=r"'localhost:8080'.*http:// or https://"):
        Endpoints(["http://127.0.0.1:8080", "localhost:8080"])
    with pytest.raises(EndpointMalformed, match=r"'http://host:99999'.*port"):
        Endpoints("http://host:99999")
    with pytest.raises(EndpointMalformed, match=r"'http://host:8080/v1'.*leave it out"):
        Endpoints("http://host:8080/v1")
    with pytest.raises(EndpointMalformed, match="user name") as refused:
        Endpoints("http://user:secret@host")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://host",
        "http://host:8080/",
        "https://host",
        "http://[::1]:8080",
        "HTTP://h_1.example:65535",
        "https://g/p",
        "https://g/a/b/",
        "https://g/v1x",
    ],
)
def test_what_is_an_endpoint_is_taken(endpoint: str) -> None:
    """With or without a port, a name or an address, one or several; a slash at the end goes."""
    assert Endpoints(endpoint).urls == Endpoints([endpoint]).urls == (endpoint.rstrip("/"),)


@pytest.mark.parametrize("endpoint", [NOBODY, "http://localhost:1", "https://127.0.0.1:1"])
async def test_nobody_listening_is_said_and_is_no_unknown_outcome(endpoint: str) -> None:
    """No byte was sent, with or without an idempotency key; by every way of sending."""
    refused = rf"{endpoint} does not answer \(connection refused\)"
    for idempotent in (True, False):
        async with Producer(endpoint, policy=ONCE, idempotent=idempotent) as producer:
            with pytest.raises(ProxyUnreachable, match=refused):
                await producer.send("t", b"x")
            outcome = await producer.send_batch("t", [OutgoingMessage(body=b"x")], return_errors=True)
            with pytest.raises(ProxyUnreachable, match=refused):
                outcome.confirmed()
            with pytest.raises(ProxyUnreachable, match=refused):
                await (await producer.send_soon("t", OutgoingMessage(body=b"x")))

    def blocking() -> None:
        with BlockingProducer(endpoint, policy=ONCE) as producer, pytest.raises(ProxyUnreachable, match=refused):
            producer.send("t", b"x")

    await asyncio.to_thread(blocking)


async def test_a_send_that_was_once_on_its_way_ends_unknown_although_nobody_listens_any_more() -> None:
    """The proxy took it and died: it may be stored, so no later refused connection may say that it is not."""
    proxy = ScriptedProxy()

    def die(_: Asked) -> Reply:
        assert proxy._server
        proxy._server.close()
        return HANG_UP

    proxy.answer = die
    async with proxy, Producer(proxy.url, policy=IMPATIENT) as producer:
        with pytest.raises(OutcomeUnknown):
            await producer.send("t", b"x")
        assert len(proxy.asked) == 1
