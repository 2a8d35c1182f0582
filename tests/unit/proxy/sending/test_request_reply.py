"""Requests and replies at the proxy: stored, waited for, answered raw and as documents, asked for again; and what is refused."""

import asyncio
from typing import Any

import httpx
import pytest

from tern_wire.errors import Overloaded, TopicNotFound
from tern_wire.link.requests import RequestCode
from tern_wire.records.read import decode_record
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
REQUESTS, REPLIES, TOPIC = "/v1/topics/orders/requests", "/v1/topics/orders/replies", "dev_REPLY_TOPIC"


def asking(mesh: ProxyMesh, query: str = "", **headers: str) -> asyncio.Task[httpx.Response]:
    """A request that is under way."""
    return asyncio.create_task(mesh.post(f"{REQUESTS}{query}", b"how much?", **headers))


async def received(mesh: ProxyMesh) -> dict[str, Any]:
    """The one request that a consumer gets."""
    messages: list[dict[str, Any]] = (await mesh.receive(wait="5s")).json()["messages"]
    (message,) = messages
    return message


async def replied(mesh: ProxyMesh, message: dict[str, Any], body: bytes = b"42", **headers: str) -> httpx.Response:
    """The answer to a reply to *message*."""
    query = httpx.QueryParams(reply_to=message["reply_to"], correlation_id=message["correlation_id"])
    return await mesh.post(f"{REPLIES}?{query}", body, **headers)


async def test_a_request_is_answered_with_the_reply_as_it_is() -> None:
    """The consumer sees who asks and until when; the requester gets the reply's bytes, and everything else in headers."""
    async with proxy_mesh() as mesh:
        task = asking(mesh, "?timeout=9s&client=shop-7&tag=price", mq_property_city="Bern")
        message = await received(mesh)
        assert message["reply_to"] == "broker-a:shop-7"
        assert message["expires_at"] == NOW_MS + 9_000
        assert (message["tag"], message["properties"]) == ("price", {"city": "Bern"})
        stored = await replied(mesh, message, b"\x00 42", content_type="text/x-price", mq_property_unit="CHF")
        assert stored.status_code == 201
        answer = await task
        assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"\x00 42", "text/x-price")
        assert answer.headers["mq-correlation-id"] == message["correlation_id"]
        assert answer.headers["mq-message-id"] == stored.json()["message_id"]
        assert answer.headers["mq-topic"] == TOPIC
        assert answer.headers["mq-properties"] == '{"unit": "CHF"}'
        (record,) = mesh.broker.records(TOPIC)
        assert {"MSG_TYPE": "reply", "TAGS": message["correlation_id"], "KEYS": message["correlation_id"]}.items() <= (
            decode_record(record).properties.items()
        )


async def test_the_answer_may_be_a_document() -> None:
    """By Accept, as a message of a pull looks."""
    async with proxy_mesh() as mesh:
        task = asking(mesh, mq_correlation_id="c1", mq_client="shop-7", mq_timeout="9s", accept="application/json")
        await replied(mesh, await received(mesh), b'{"price": 42}', content_type="application/json")
        document = (await task).json()
        assert document["json"] == {"price": 42}
        assert (document["correlation_id"], document["reply_to"]) == ("c1", "broker-a:shop-7")
        assert (document["topic"], document["tag"], document["keys"]) == (TOPIC, "c1", ["c1"])


async def test_a_request_that_nobody_answers_in_time_says_that_it_is_stored_and_how_to_ask_again() -> None:
    """A late reply is stored all the same, and found by the path in the problem; of two replies the first one counts."""
    async with proxy_mesh() as mesh:
        answer = await asking(mesh, "?timeout=20ms&correlation_id=c%231&client=shop-7")
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["correlation_id"]) == (504, "reply-timeout", "c#1")
        assert problem["ask_again"] == "/v1/topics/orders/requests/c%231?client=shop-7&wait=20s"
        message = await received(mesh)
        assert message["message_id"] == problem["message_id"]
        assert (await mesh.http.get(f"{REQUESTS}/c%231?client=shop-7")).json()["code"] == "no-reply"
        again = asyncio.create_task(mesh.http.get(problem["ask_again"]))
        await eventually(lambda: mesh.broker.awaited_replies, "a wait at the broker")
        for body in (b"late", b"second"):
            assert (await replied(mesh, message, body)).status_code == 201
        assert (await again).content == b"late"
        assert (await mesh.http.get(f"{REQUESTS}/c%231?client=shop-7")).content == b"late"
        # Whose request it was is part of the question.
        assert (await mesh.http.get(f"{REQUESTS}/c%231")).status_code == 404


async def test_who_repeats_a_request_with_its_key_waits_for_the_same_reply() -> None:
    """Neither correlation id nor client was given: both follow from the key. The request is stored once."""
    async with proxy_mesh() as mesh:
        first = await asking(mesh, "?timeout=10ms", idempotency_key="k1")
        assert first.json()["code"] == "reply-timeout"
        task = asking(mesh, "?timeout=9s", idempotency_key="k1")
        await replied(mesh, await received(mesh))
        answer = await task
        assert (answer.status_code, answer.content) == (200, b"42")
        assert answer.headers["mq-correlation-id"] == first.json()["correlation_id"]
        assert len(mesh.broker.records("orders")) == 1


async def test_a_request_outlives_the_leader_that_it_waits_at() -> None:
    """Deposed: refused there, waited for at the next leader. A reply topic that is missing, or a busy broker, is not the end either."""
    nodes = [MemoryBroker(KEY, node=f"broker-a-{number}", leads=not number) for number in range(2)]
    async with proxy_mesh(*nodes) as mesh:
        nodes[0].script(RequestCode.AWAIT_REPLY, TopicNotFound(topic=TOPIC), Overloaded(what="requests that wait"))
        task = asking(mesh, "?timeout=20s&correlation_id=c1&client=shop-7")
        await eventually(lambda: nodes[0].awaited_replies, "a wait at the first leader")
        nodes[0].resign()
        nodes[1].lead(2)
        nodes[1].create_topic(TOPIC, 8)
        await eventually(lambda: nodes[1].awaited_replies, "a wait at the second leader")
        assert (await replied(mesh, {"reply_to": "broker-a:shop-7", "correlation_id": "c1"})).status_code == 201
        assert (await task).content == b"42"


async def test_replies_go_to_the_broker_group_of_their_address_and_are_found_in_any() -> None:
    """With two broker groups: each request's address names one, the reply is stored there alone, and GET asks both."""
    brokers = [MemoryBroker(KEY, broker_group=f"broker-{name}", node=f"broker-{name}-0") for name in "ab"]
    async with proxy_mesh(*brokers) as mesh:
        await eventually(lambda: all(group.link.has_leader for group in mesh.proxy.groups.values()), "both leaders")
        used = set()
        for number in range(12):
            task = asking(mesh, f"?timeout=20s&correlation_id=c1&client=shop-{number}")
            message = await received(mesh)
            place = message["reply_to"].partition(":")[0]
            used.add(place)
            receipt = (await replied(mesh, message, b"%d" % number)).json()
            assert receipt["queue"].startswith(place)
            assert (await task).content == b"%d" % number
            assert (await mesh.http.get(f"{REQUESTS}/c1?client=shop-{number}")).content == b"%d" % number
        assert used == {"broker-a", "broker-b"}


async def test_a_reply_that_is_repeated_with_its_key_is_stored_once() -> None:
    """As any message: 200, and the first receipt."""
    async with proxy_mesh() as mesh:
        to = {"reply_to": "broker-a:shop-7", "correlation_id": "c1"}
        first, again = [await replied(mesh, to, idempotency_key="k") for _ in range(2)]
        assert (first.status_code, again.status_code) == (201, 200)
        assert (again.json()["offset"], again.headers["idempotency-replayed"]) == (first.json()["offset"], "true")
        assert first.headers["location"].startswith(f"/v1/topics/{TOPIC}/queues/broker-a:")
        pulled = (await mesh.http.get(first.headers["location"])).json()["messages"][0]
        assert (pulled["correlation_id"], pulled["reply_to"], "expires_at" in pulled) == ("c1", to["reply_to"], False)


async def test_a_proxy_that_stops_says_that_the_request_is_stored() -> None:
    """The reply can be asked for at another proxy. One that has no room for another wait stores nothing."""
    async with proxy_mesh() as mesh:
        task = asking(mesh, "?timeout=20s")
        again = asyncio.create_task(mesh.http.get(f"{REQUESTS}/c1?wait=20s"))
        await eventually(lambda: mesh.broker.awaited_replies == 2, "two waits at the broker")
        mesh.proxy.stop_waiting()
        assert (await task).json()["code"] == "reply-timeout"
        assert (await again).json()["code"] == "shutting-down"
        assert (await asking(mesh)).json()["code"] == "overloaded"
        assert (await mesh.http.get(f"{REQUESTS}/c1?wait=20s")).json()["code"] == "overloaded"
        assert len(mesh.broker.records("orders")) == 1


async def test_a_client_that_goes_leaves_nothing_behind() -> None:
    """Its request stays stored; nothing waits for it at the proxy."""
    async with proxy_mesh() as mesh:
        exchange = mesh.raw("POST", f"{REQUESTS}?timeout=20s")
        exchange.push(b"how much?")
        await eventually(lambda: mesh.broker.awaited_replies, "a wait at the broker")
        assert len(mesh.proxy.parking) == 1
        exchange.hang_up()
        await exchange.task
        assert (exchange.sent, len(mesh.proxy.parking)) == ([], 0)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "code"),
    [
        ("POST", f"{REQUESTS}?timeout=0", {}, 400, "illegal-timeout"),
        ("POST", f"{REQUESTS}?timeout=31s", {}, 400, "illegal-timeout"),
        ("POST", f"{REQUESTS}?timeout=soon", {}, 400, "illegal-timeout"),
        ("POST", f"{REQUESTS}?timeout=", {}, 400, "illegal-timeout"),
        ("POST", REQUESTS, {"MQ-Timeout": "-1s"}, 400, "illegal-timeout"),
        ("POST", f"{REQUESTS}?timeout=1s&timeout=2s", {}, 400, "invalid-field"),
        ("POST", f"{REQUESTS}?correlation_id=a%20b", {}, 400, "illegal-correlation-id"),
        ("POST", f"{REQUESTS}?correlation_id=a%7Cb", {}, 400, "illegal-correlation-id"),
        ("POST", f"{REQUESTS}?correlation_id=", {}, 400, "illegal-correlation-id"),
        ("POST", f"{REQUESTS}?correlation_id={'a' * 65}", {}, 400, "illegal-correlation-id"),
        ("POST", REQUESTS, {"MQ-Correlation-Id": "a/b"}, 400, "illegal-correlation-id"),
        ("POST", f"{REQUESTS}?client=%01", {}, 400, "invalid-field"),
        ("POST", f"{REQUESTS}?client={'a' * 65}", {}, 400, "invalid-field"),
        ("POST", f"{REQUESTS}?no=1", {}, 400, "unknown-parameter"),
        ("POST", f"{REQUESTS}?tag=a%7Cb", {}, 400, "illegal-tag"),
        ("POST", f"{REQUESTS}?%ff", {}, 400, "invalid-field"),
        ("POST", REQUESTS, {"MQ-Reply-To": "broker-a:x"}, 400, "unknown-field"),
        ("POST", REQUESTS, {"MQ-Properties": '{"TTL": "1"}'}, 400, "illegal-property"),
        ("POST", REQUESTS, {"MQ-Properties": '{"REPLY_TO_CLIENT": "1"}'}, 400, "illegal-property"),
        ("POST", "/v1/topics/none/requests", {}, 404, "topic-not-found"),
        ("PUT", REQUESTS, {}, 405, "method-not-allowed"),
        ("POST", REPLIES, {}, 400, "invalid-field"),
        ("POST", f"{REPLIES}?correlation_id=c1", {}, 400, "invalid-field"),
        ("POST", f"{REPLIES}?correlation_id=c1&reply_to=shop", {}, 400, "illegal-reply-address"),
        ("POST", f"{REPLIES}?correlation_id=c1&reply_to=a%01:shop", {}, 400, "illegal-reply-address"),
        ("POST", f"{REPLIES}?correlation_id=c1&reply_to=broker-a:", {}, 400, "illegal-reply-address"),
        ("POST", f"{REPLIES}?correlation_id=c1&reply_to=broker-z:shop", {}, 404, "broker-group-not-found"),
        ("POST", f"{REPLIES}?correlation_id=%00&reply_to=broker-a:shop", {}, 400, "illegal-correlation-id"),
        ("POST", f"{REPLIES}?correlation_id=c1&reply_to=broker-a:shop&tag=a", {}, 400, "unknown-parameter"),
        ("POST", f"{REPLIES}?correlation_id=c1&reply_to=broker-a:shop", {"MQ-Delay": "1s"}, 400, "unknown-field"),
        ("POST", f"{REPLIES}?correlation_id=c1&reply_to=broker-a:shop&key=a%20b", {}, 400, "illegal-key"),
        ("POST", "/v1/topics/none/replies?correlation_id=c1&reply_to=broker-a:shop", {}, 404, "topic-not-found"),
        ("GET", f"{REQUESTS}/c1", {}, 404, "no-reply"),
        ("GET", f"{REQUESTS}/a%20b", {}, 400, "illegal-correlation-id"),
        ("GET", f"{REQUESTS}/", {}, 400, "illegal-correlation-id"),
        ("GET", f"{REQUESTS}/c1?client=", {}, 400, "invalid-field"),
        ("GET", f"{REQUESTS}/c1?wait=31s", {}, 400, "illegal-wait"),
        ("GET", f"{REQUESTS}/c1?timeout=1s", {}, 400, "unknown-parameter"),
        ("GET", f"{REQUESTS}/c1", {"accept": "text/html"}, 406, "not-acceptable"),
        ("GET", "/v1/topics/none/requests/c1", {}, 404, "topic-not-found"),
    ],
)
async def test_bad_requests_are_problems_and_store_nothing(
    method: str, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    """Each with its own code; and never a 500."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.request(method, path, content=b"x", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert not mesh.broker.records("orders")
        assert not (TOPIC in mesh.broker.topics and mesh.broker.records(TOPIC))
