"""Namespaces at the entry of the proxy: paths made whole, answers taken apart down to their names and no further, refusals, answers in pieces."""

import json
from typing import Any, cast

import msgspec
import pytest

from tern_proxy.core.access.namespaces import is_document, own_body, own_headers, read_namespace, whole_path
from tern_proxy.counters import Counters
from tern_proxy.hot import Application, EntryPoint
from tern_wire.errors import IllegalGroup, IllegalTopic, InvalidField
from tern_wire.paths import JSON, MSGPACK, NDJSON, OCTETS, PROBLEM, RECORDS
from tests.support.proxy.proxy_mesh import RawExchange, proxy_mesh

pytestmark = pytest.mark.anyio


def typed(kind: str) -> list[tuple[bytes, bytes]]:
    """The headers of an answer of *kind*."""
    return [(b"content-type", kind.encode())]


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("/v1/topics/orders", "/v1/topics/shop%orders"),
        ("/v1/topics/orders/messages/groups", "/v1/topics/shop%orders/messages/groups"),
        ("/v1/topics/orders/groups/billing/receive", "/v1/topics/shop%orders/groups/shop%billing/receive"),
        ("/v1/topics/orders/queues/broker-a:1/messages", "/v1/topics/shop%orders/queues/broker-a:1/messages"),
        ("/v1/groups/billing/members/m%1", "/v1/groups/shop%billing/members/m%1"),
        ("/v1/producer-groups/pay/checks/receive", "/v1/producer-groups/shop%pay/checks/receive"),
        ("/v1/transactions/abc/commit", "/v1/transactions/abc/commit"),
        ("/v1/messages/abc/trace", "/v1/messages/abc/trace"),
        ("/v1/topics", "/v1/topics"),
        ("/metrics", "/metrics"),
    ],
)
def test_names_in_paths_get_their_namespace_and_nothing_else_does(path: str, whole: str) -> None:
    """Ids, handles and queues stay; without a namespace everything does."""
    assert whole_path(path, "shop") == whole
    assert whole_path(path, "") == path


@pytest.mark.parametrize("namespace", ["", "shop"])
def test_a_namespace_in_a_path_is_refused(namespace: str) -> None:
    """Whoever writes it, its owner too: there is one way to say it."""
    with pytest.raises(IllegalTopic):
        whole_path("/v1/topics/shop%orders/messages", namespace)
    with pytest.raises(IllegalGroup):
        whole_path("/v1/topics/orders/groups/shop%billing/ack", namespace)
    for path in ("/v1/groups/shop%billing", "/v1/producer-groups/shop%pay"):
        with pytest.raises(IllegalGroup):
            whole_path(path, namespace)


def test_a_request_has_one_namespace() -> None:
    """None when there is none; several are refused even if they are the same."""
    assert read_namespace([(b"mq-tag", b"x")]) is None
    assert read_namespace([(b"mq-namespace", b"shop")]) == "shop"
    for headers in ([(b"mq-namespace", b"shop")] * 2, [(b"mq-namespace", b"")], [(b"mq-namespace", b"caf\xe9")]):
        with pytest.raises(InvalidField, match="header/MQ-Namespace"):
            read_namespace(headers)


DOCUMENT: dict[str, Any] = {
    "topic": "shop%orders",
    "groups": ["shop%billing", "shop%audit"],
    "topics": [{"topic": "shop%a", "queues": [{"queue": "broker-a:0"}]}, {"topic": "shop%b"}],
    "producer_group": "shop%pay",
    "subscriptions": {"shop%orders": "shop%tag || b"},
    "subscription_conflict": [{"topic": "shop%orders", "filters": [{"filter": "shop%x"}]}],
    "links": {"commit": "/v1/topics/shop%orders/x"},
    "results": [{"error": {"topic": "shop%orders", "detail": "There is no topic 'shop%orders'."}}, {"offset": 1}],
    "messages": [
        {"tag": "shop%tag", "keys": ["shop%k"], "properties": {"topic": "shop%p"}, "body": "shop%b", "topic": "shop%o"}
    ],
    "member": "shop%m",
    "empty": [],
    "nothing": None,
}
OWN: dict[str, Any] = {
    **DOCUMENT,
    "topic": "orders",
    "groups": ["billing", "audit"],
    "topics": [{"topic": "a", "queues": [{"queue": "broker-a:0"}]}, {"topic": "b"}],
    "producer_group": "pay",
    "subscriptions": {"orders": "shop%tag || b"},
    "subscription_conflict": [{"topic": "orders", "filters": [{"filter": "shop%x"}]}],
    "links": {"commit": "/v1/topics/orders/x"},
    "results": [{"error": {"topic": "orders", "detail": "There is no topic 'orders'."}}, {"offset": 1}],
    "messages": [{**DOCUMENT["messages"][0], "topic": "o"}],
}


def test_answers_lose_the_namespace_where_names_are_in_every_form() -> None:
    """And keep it where users wrote it; in JSON, in lines of it and in MessagePack."""
    written = json.dumps(DOCUMENT, indent=1).encode()
    assert json.loads(own_body(typed(JSON), written, "shop")) == OWN
    assert msgspec.msgpack.decode(own_body(typed(MSGPACK), msgspec.msgpack.encode(DOCUMENT), "shop")) == OWN
    line = json.dumps(DOCUMENT).encode()
    lines = own_body(typed(NDJSON), line + b"\n" + line + b"\n", "shop").splitlines()
    assert [json.loads(one) for one in lines] == [OWN, OWN]
    assert json.loads(own_body(typed(JSON), written, "sho")) == DOCUMENT, "another namespace's names are left alone"


def test_what_is_no_name_stays_the_bytes_that_it_was() -> None:
    """Numbers of any length and form, double keys, large arrays of MessagePack."""
    exact = b'{"json":{"n":123456789012345678901234567890,"e":1.0E+2,"a":1,"a":2,"topic":"shop%x"},"size":1E3}'
    assert own_body(typed(JSON), b'{"messages":[' + exact + b"]}", "shop") == b'{"messages":[' + exact + b"]}"
    rows = [{"topic": "shop%t", "body": bytes([number % 256]) * 40} for number in range(70_000)]
    found = msgspec.msgpack.decode(own_body(typed(MSGPACK), msgspec.msgpack.encode(rows), "shop"))
    assert {row["topic"] for row in found} == {"t"}
    assert [row["body"] for row in found] == [row["body"] for row in rows]


def test_a_problem_speaks_of_names_as_the_client_wrote_them() -> None:
    """In its sentence, its fields and its path."""
    problem = {
        "topic": "shop%orders",
        "detail": "'shop%orders' and 'shop%billing'",
        "instance": "/v1/topics/shop%orders",
    }
    assert json.loads(own_body(typed(PROBLEM), json.dumps(problem).encode(), "shop")) == {
        "topic": "orders",
        "detail": "'orders' and 'billing'",
        "instance": "/v1/topics/orders",
    }


def test_headers_lose_it_and_users_values_do_not() -> None:
    """Paths in Location and Link, their names only; the topic of a raw message."""
    said = [
        (b"location", b"/v1/topics/shop%orders/queues/broker-a:0/messages?offset=1"),
        (b"link", b'</v1/topics/shop%25orders/queues/broker-a:0/messages?offset=2&tags=shop%25x>; rel="next"'),
        (b"mq-topic", b"shop%orders"),
        (b"mq-tag", b"shop%x"),
    ]
    assert own_headers(said) == [
        (b"location", b"/v1/topics/orders/queues/broker-a:0/messages?offset=1"),
        (b"link", b'</v1/topics/orders/queues/broker-a:0/messages?offset=2&tags=shop%25x>; rel="next"'),
        (b"mq-topic", b"orders"),
        (b"mq-tag", b"shop%x"),
    ]


def test_a_message_s_own_body_is_no_document() -> None:
    """Not even when it is JSON; stored records are none either."""
    assert all(is_document(typed(kind)) for kind in (JSON, MSGPACK, NDJSON, PROBLEM, JSON + "; charset=utf-8"))
    assert not any(is_document(typed(kind)) for kind in (OCTETS, RECORDS, "text/plain"))
    assert not is_document([*typed(JSON), (b"mq-topic", b"orders")])


async def test_an_answer_in_pieces_leaves_whole_and_with_its_length() -> None:
    """Other answers pass piece by piece, headers and all."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        assert (scope["path"], dict(scope["headers"])) == ("/v1/topics/shop%t", {b"mq-tag": b"x"})
        kind = JSON if scope["method"] == "GET" else OCTETS
        await send(
            {"type": "http.response.start", "status": 200, "headers": [*typed(kind), (b"content-length", b"18")]}
        )
        await send({"type": "http.response.body", "body": b'{"topic":', "more_body": True})
        await send({"type": "http.response.body", "body": b'"shop%t"}'})

    entry = EntryPoint(cast(Application, app), Counters())
    said = {"MQ-Namespace": "shop", "MQ-Tag": "x"}
    document = RawExchange(entry, "GET", "/v1/topics/t", said)
    await document.task
    assert [message["type"] for message in document.sent] == ["http.response.start", "http.response.body"]
    assert (document.sent[1]["body"], document.headers[b"content-length"]) == (b'{"topic":"t"}', b"13")
    other = RawExchange(entry, "POST", "/v1/topics/t", said)
    await other.task
    assert [message.get("body") for message in other.sent] == [None, b'{"topic":', b'"shop%t"}']


async def test_a_refusal_of_a_namespace_closes_a_connection_whose_body_nobody_has_read() -> None:
    """And is counted; a GET leaves its connection open."""
    async with proxy_mesh() as mesh:
        wrong = {"MQ-Namespace": "no%good"}
        post = mesh.raw("POST", "/v1/topics/orders/messages", {**wrong, "Content-Length": "1"})
        await post.task
        assert (post.status, post.headers[b"connection"]) == (400, b"close")
        get = mesh.raw("GET", "/v1/topics", wrong)
        await get.task
        assert (get.status, b"connection" in get.headers) == (400, False)
        assert mesh.proxy.counters.requests["admin", 400] == 2
        assert json.loads(get.sent[1]["body"])["request_id"] == get.headers[b"mq-request-id"].decode()


async def test_handles_of_one_namespace_are_another_ones_garbage() -> None:
    """The same topic and group, the same proxy: 400 receipt-invalid."""
    async with proxy_mesh(topics={"orders": 1, "shop%orders": 1}) as mesh:
        for broker in mesh.brokers:
            broker.create_group("shop%billing")
        shop = {"MQ_Namespace": "shop"}
        assert (await mesh.post("/v1/topics/orders/messages", b"x", **shop)).status_code == 201
        path = "/v1/topics/orders/groups/billing"
        (message,) = (await mesh.post(f"{path}/receive", **shop)).json()["messages"]
        assert message["topic"] == "orders"
        handles = json.dumps({"receipt_handles": [message["receipt_handle"]]})
        stolen = await mesh.post(f"{path}/ack", handles)
        assert (stolen.status_code, stolen.json()["code"]) == (400, "receipt-invalid")
        assert (await mesh.post(f"{path}/ack", handles, **shop)).status_code == 200
