"""Sends and settles that came whole are answered without ASGI, with the same answers, rights and counts."""

import json
from typing import Any

import httpx
import pytest

from tern_proxy.routes.table import ROUTES, may_be_brief
from tern_wire.paths import JSON, MSGPACK
from tests.support.proxy.guarded_mesh import OTHER, OWN, guarded_mesh
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
SEND = "/v1/topics/orders/messages"
SETTLE = "/v1/topics/orders/groups/billing"
# Path, body, and headers of sends as real clients make them.
SENDS: dict[str, tuple[str, Any, dict[str, str]]] = {
    "plain": (SEND, b"x", {}),
    "key and tag": (f"{SEND}?key=a&tag=b", b"x", {"MQ-Property-Colour": "red"}),
    "delayed": (SEND, b"x", {"MQ-Delay": "10s"}),
    "ordered": (SEND, b"x", {"MQ-Message-Group": "g"}),
    "minimal": (SEND, b"x", {"Prefer": "return=minimal"}),
    "packed answer": (SEND, b"x", {"Accept": MSGPACK}),
    "batch": (f"{SEND}/batch", json.dumps({"messages": [{"body": "a"}, {"body": "b"}]}), {"Content-Type": JSON}),
    "partly wrong": (f"{SEND}/batch", json.dumps({"messages": [{"body": "a"}, {"tag": "|"}]}), {"Content-Type": JSON}),
    "no such queue": (SEND, b"x", {"MQ-Queue": "broker-a:99"}),
    "illegal tag": (SEND, b"x", {"MQ-Tag": "a|b"}),
    "unknown parameter": (f"{SEND}?no=1", b"x", {}),
    "encoded": (SEND, b"x", {"Content-Encoding": "gzip"}),
    "malformed": (f"{SEND}/batch", b"{", {"Content-Type": JSON}),
}
# They differ from one send to the next.
_OWN_FIELDS = {"message_id", "offset", "queue", "recall_handle", "request_id", "location", "mq-request-id"}
_OWN_FIELDS |= {"mq-message-id", "mq-offset", "mq-queue", "mq-recall-handle", "content-length"}


def _shape(status: int, headers: dict[str, str], body: bytes) -> tuple[Any, ...]:
    """What is the same in two answers to equal requests."""
    kept = {name: value for name, value in headers.items() if name not in _OWN_FIELDS}
    document = json.loads(body) if "json" in headers.get("content-type", "") else len(body)
    return status, kept, _without(document)


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: "" if name in _OWN_FIELDS else _without(item) for name, item in value.items()}
    return [_without(item) for item in value] if isinstance(value, list) else value


async def _by_asgi(mesh: ProxyMesh, path: str, body: Any, headers: dict[str, str]) -> tuple[Any, ...]:
    data = body if isinstance(body, bytes) else body.encode()
    exchange = mesh.raw("POST", path, headers)
    exchange.push(data)
    await exchange.task
    fields = {name.decode(): value.decode() for name, value in exchange.headers.items()}
    return _shape(exchange.status, fields, exchange.sent[1]["body"])


@pytest.mark.parametrize("name", SENDS)
@pytest.mark.parametrize("namespace", ["", "shop"])
async def test_a_whole_send_is_answered_as_asgi_answers_it(name: str, namespace: str) -> None:
    """Status, headers and document; inside a namespace as well. Each way counts what it has answered."""
    path, body, headers = SENDS[name]
    if namespace:
        headers = {**headers, "MQ-Namespace": namespace}
    async with proxy_mesh(topics={"orders": 4, "shop%orders": 4}) as mesh:
        wanted = await _by_asgi(mesh, path, body, headers)
        before = dict(mesh.proxy.counters.requests)
        assert mesh.transport.taken == 0
        answer = await mesh.http.post(path, content=body, headers=headers)
        assert mesh.transport.taken == 1
        fields = dict(answer.headers.items())
        closes = {**wanted[1]}
        closes.pop("connection", None)  # without ASGI the body is always read
        assert _shape(answer.status_code, fields, answer.content) == (wanted[0], closes, wanted[2])
        (counted,) = [each for each, count in mesh.proxy.counters.requests.items() if count != before.get(each, 0)]
        assert counted[1] == answer.status_code
        assert mesh.proxy.budget.bytes.used == mesh.proxy.budget.messages.used == 0


async def test_acks_and_settles_are_taken() -> None:
    """One by one, several, and a dead letter, which asks the broker a second time."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=4)
        messages = (await mesh.receive(max_messages=4)).json()["messages"]
        handles = [message["receipt_handle"] for message in messages]
        taken = mesh.transport.taken
        one = await mesh.http.post(f"{SETTLE}/ack?receipt_handle={handles[0]}")
        two = await mesh.http.post(f"{SETTLE}/ack", json={"receipt_handles": handles[1:3]})
        entries = [{"receipt_handle": handles[3], "action": "dead_letter", "reason": "no"}]
        rejected = await mesh.http.post(f"{SETTLE}/settle", json={"entries": entries})
        assert [answer.status_code for answer in (one, two, rejected)] == [200, 200, 200], rejected.text
        assert mesh.transport.taken == taken + 3


async def test_a_topic_that_is_new_here_is_found_by_a_taken_send() -> None:
    """The waits for its route are those of a task."""
    async with proxy_mesh() as mesh:
        mesh.broker.create_topic("fresh", 2)
        answer = await mesh.post("/v1/topics/fresh/messages", b"x")
        assert (answer.status_code, mesh.transport.taken) == (201, 1)


async def test_every_brief_route_may_be_taken_and_reads_are_not_tried() -> None:
    """The test by the end of the target knows all brief rows, with and without a query."""
    for route in ROUTES:
        path = route.path.replace("{", "").replace("}", "").encode()
        if route.is_brief:
            assert route.hot
            assert route.method == "POST"
            assert may_be_brief(path)
            assert may_be_brief(path + b"?a=b")
    assert not may_be_brief(b"/v1/topics/orders/groups/billing/receive")
    assert not may_be_brief(b"/v1/topics/orders/requests?b=/messages")


async def _taken(mesh: ProxyMesh, answer: Any) -> tuple[int, bool]:
    """Status, and whether the request was taken."""
    before = mesh.transport.taken
    response: httpx.Response = await answer
    return response.status_code, mesh.transport.taken > before


async def test_a_known_key_is_taken_and_an_unknown_one_is_refused_by_asgi() -> None:
    """From its second send on; a revoked key, a missing right and no key at all are not taken."""
    async with guarded_mesh() as mesh:
        key, other = mesh.known.put("app", OWN), mesh.known.put("other", OTHER)

        async def send(key: str, **headers: str) -> tuple[int, bool]:
            more = {name.replace("_", "-"): value for name, value in headers.items()}
            return await _taken(mesh, mesh.ask("POST", SEND, key, content=b"x", headers=more))

        assert await send(key) == (201, False)
        assert await send(key) == (201, True)
        assert await send(key, Idempotency_Key="k", MQ_Tag="t") == (201, True)
        assert await send("") == (401, False)
        assert await send(other) == (404, False)
        assert await send(key, Signature_Input="sig=()") == (401, False)
        mesh.known.revoke("app")
        assert await send(key) == (401, False)
        assert not len(mesh.guard.open)


async def test_a_quota_is_charged_once_and_refuses_a_taken_send() -> None:
    """Five requests a second: the sixth is 429 with the time to wait. Bytes are counted by ASGI."""
    async with guarded_mesh() as mesh:
        key, counted = mesh.known.put("app", OWN, requests_per_s=5), mesh.known.put("bytes", OWN, bytes_per_s=10_000)
        told = [await _taken(mesh, mesh.ask("POST", SEND, key, content=b"x")) for _ in range(6)]
        assert told == [(201, False), *[(201, True)] * 4, (429, True)]
        mesh.clock.ms += 1_000
        assert await _taken(mesh, mesh.ask("POST", SEND, key, content=b"x")) == (201, True)
        told = [await _taken(mesh, mesh.ask("POST", SEND, counted, content=b"x")) for _ in range(2)]
        assert told == [(201, False)] * 2


async def test_a_key_that_ends_is_not_taken_any_more() -> None:
    """To the millisecond, although it was known."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN, key={"expires_ms": mesh.clock.ms + 1_000})
        assert await _taken(mesh, mesh.ask("POST", SEND, key, content=b"x")) == (201, False)
        mesh.clock.ms += 999
        assert await _taken(mesh, mesh.ask("POST", SEND, key, content=b"x")) == (201, True)
        mesh.clock.ms += 1
        assert await _taken(mesh, mesh.ask("POST", SEND, key, content=b"x")) == (401, False)
