"""Bad input at a real mesh: a problem document with a stable code and a sentence that says what to do. Never a 500."""

import json
from typing import Any

import msgspec
import pytest

from tern_wire.paths import MSGPACK
from tests.support.mesh.mesh import Mesh

MIB = 1024 * 1024
CASES: list[tuple[str, str, str, dict[str, Any], int, str]] = [
    # what, method, path, options, status, code
    ("unknown topic, pull", "GET", "/v1/topics/nobody/queues/broker-a:0/messages", {}, 404, "topic-not-found"),
    ("unknown topic, offsets", "GET", "/v1/topics/nobody/offsets", {}, 404, "topic-not-found"),
    ("unknown topic, receive", "POST", "/v1/topics/nobody/groups/g/receive", {"json": {}}, 404, "topic-not-found"),
    ("unknown group", "GET", "/v1/groups/nobody/offsets?topic=bad", {}, 404, "group-not-found"),
    ("unknown queue", "GET", "/v1/topics/bad/queues/broker-a:99/messages", {}, 404, "queue-not-found"),
    ("malformed queue", "GET", "/v1/topics/bad/queues/first/messages", {}, 404, "queue-not-found"),
    ("unknown path", "GET", "/v1/nothing", {}, 404, "route-not-found"),
    ("wrong method", "DELETE", "/v1/topics/bad/messages", {}, 405, "method-not-allowed"),
    ("malformed JSON", "POST", "/v1/topics/bad/messages/batch", {"content": b'{"messages": [', "headers": {"content-type": "application/json"}}, 400, "malformed-body"),
    ("malformed MessagePack", "POST", "/v1/topics/bad/messages/batch", {"content": b"\xc1", "headers": {"content-type": MSGPACK}}, 400, "malformed-body"),
    ("deep JSON", "POST", "/v1/topics/bad/messages/batch", {"content": b"[" * 100_000, "headers": {"content-type": "application/json"}}, 400, ""),
    ("wrong kind", "POST", "/v1/topics/bad/messages/batch", {"json": {"messages": [{"body": 3}]}}, 400, "invalid-field"),
    ("unknown field", "POST", "/v1/topics/bad/messages/batch", {"json": {"messages": [{"body": "a"}, {"body": "b", "dely": "3s"}]}}, 400, "unknown-field"),
    ("unknown parameter", "POST", "/v1/topics/bad/messages?dely=3s", {"content": b"x"}, 400, "unknown-parameter"),
    ("unknown header", "POST", "/v1/topics/bad/messages", {"content": b"x", "headers": {"MQ-Dely": "3s"}}, 400, ""),
    ("two bodies", "POST", "/v1/topics/bad/messages/batch", {"json": {"messages": [{"body": "a", "json": 1}]}}, 400, ""),
    ("no body", "POST", "/v1/topics/bad/messages/batch", {"json": {"messages": [{}]}}, 400, ""),
    ("empty batch", "POST", "/v1/topics/bad/messages/batch", {"json": {"messages": []}}, 400, "batch-empty"),
    ("unknown batch format", "POST", "/v1/topics/bad/messages/batch", {"content": b"a,b", "headers": {"content-type": "text/csv"}}, 415, "unsupported-batch-format"),
    ("compressed", "POST", "/v1/topics/bad/messages", {"content": b"x", "headers": {"content-encoding": "gzip"}}, 415, "unsupported-encoding"),
    ("large message", "POST", "/v1/topics/bad/messages", {"content": b"x" * (4 * MIB + 1)}, 413, "message-too-large"),
    ("large message in a batch", "POST", "/v1/topics/bad/messages/batch", {"content": msgspec.msgpack.encode({"messages": [{"body": b"x" * (4 * MIB + 1)}]}), "headers": {"content-type": MSGPACK}}, 413, "message-too-large"),
    ("large batch", "POST", "/v1/topics/bad/messages/batch", {"content": b" " * (16 * MIB + 1), "headers": {"content-type": "application/json"}}, 413, "batch-too-large"),
    ("long batch", "POST", "/v1/topics/bad/messages/batch", {"json": {"messages": [{"body": "x"}] * 1025}}, 413, "batch-too-large"),
    ("illegal topic", "PUT", "/v1/topics/a.b", {"json": {}}, 400, "illegal-topic"),
    ("long topic", "PUT", "/v1/topics/" + "a" * 128, {"json": {}}, 400, "illegal-topic"),
    ("percent in topic", "PUT", "/v1/topics/%25RETRY%25g", {"json": {}}, 400, "illegal-topic"),
    ("illegal group", "PUT", "/v1/groups/a%20b", {"json": {}}, 400, "illegal-group"),
    ("too many queues", "PUT", "/v1/topics/wide", {"json": {"queues": 100_000}}, 400, "invalid-field"),
    ("fewer queues", "PUT", "/v1/topics/bad", {"json": {"queues": 1}}, 409, "topic-conflict"),
    ("illegal property", "POST", "/v1/topics/bad/messages", {"content": b"x", "headers": {"MQ-Properties": '{"a":"\\u0001"}'}}, 400, "illegal-property"),
    ("reserved property", "POST", "/v1/topics/bad/messages", {"content": b"x", "headers": {"MQ-Properties": '{"UNIQ_KEY":"x"}'}}, 400, "illegal-property"),
    ("large properties", "POST", "/v1/topics/bad/messages/batch", {"json": {"messages": [{"body": "x", "properties": {f"p{n}": "v" * 8000 for n in range(3)}}]}}, 413, "properties-too-large"),
    ("key with a space", "POST", "/v1/topics/bad/messages", {"content": b"x", "headers": {"MQ-Key": "a b"}}, 400, "illegal-key"),
    ("forged handle", "POST", "/v1/topics/bad/groups/readers/ack", {"json": {"receipt_handles": ["AQAGAAAAAQ"]}}, 400, "receipt-invalid"),
    ("garbage handle", "POST", "/v1/topics/bad/groups/readers/ack", {"json": {"receipt_handles": ["\u00e9 \u0000"]}}, 400, "receipt-invalid"),
    ("many handles", "POST", "/v1/topics/bad/groups/readers/ack", {"json": {"receipt_handles": ["x"] * 1025}}, 413, "batch-too-large"),
    ("unknown action", "POST", "/v1/topics/bad/groups/readers/settle", {"json": {"entries": [{"receipt_handle": "x", "action": "nack"}]}}, 400, ""),
    ("long wait", "POST", "/v1/topics/bad/groups/readers/receive", {"json": {"wait": "31s"}}, 400, "illegal-wait"),
    ("negative wait", "POST", "/v1/topics/bad/groups/readers/receive", {"json": {"wait": -1}}, 400, "illegal-wait"),
    ("no duration", "POST", "/v1/topics/bad/groups/readers/receive", {"json": {"wait": "soon"}}, 400, "illegal-wait"),
    ("short invisible", "POST", "/v1/topics/bad/groups/readers/receive", {"json": {"invisible": "1ms"}}, 400, "illegal-invisible-time"),
    ("too many messages", "POST", "/v1/topics/bad/groups/readers/receive", {"json": {"max_messages": 257}}, 400, ""),
    ("no messages", "POST", "/v1/topics/bad/groups/readers/receive", {"json": {"max_messages": 0}}, 400, ""),
    ("huge number", "POST", "/v1/topics/bad/groups/readers/receive", {"content": b'{"max_messages": 99999999999999999999999}', "headers": {"content-type": "application/json"}}, 400, ""),
    ("negative offset", "GET", "/v1/topics/bad/queues/broker-a:0/messages?offset=-1", {}, 400, ""),
    ("offset that is none", "GET", "/v1/topics/bad/queues/broker-a:0/messages?offset=x", {}, 400, ""),
    ("huge offset", "GET", "/v1/topics/bad/queues/broker-a:0/messages?offset=99999999999999999999", {}, 400, ""),
    ("commit without a topic", "PUT", "/v1/groups/readers/offsets", {"json": {"offsets": {}}}, 400, ""),
    ("commit beyond the end", "PUT", "/v1/groups/readers/offsets", {"json": {"topic": "bad", "offsets": {"broker-a:0": 10_000}}}, 400, ""),
    ("cannot answer so", "POST", "/v1/topics/bad/groups/readers/receive", {"json": {}, "headers": {"accept": "image/png"}}, 406, "not-acceptable"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_bad_input_gets_a_problem_that_says_what_to_do(
    mesh: Mesh, method: str, path: str, options: dict[str, Any], status: int, code: str
) -> None:
    """Status, stable code (where one is promised), a sentence; and the mesh stores nothing of it."""
    mesh.create("bad", "readers")
    reply = mesh.settled(method, path, **options)
    assert status == reply.status_code, reply.text[:500]
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert status == problem["status"]
    assert not code or code == problem["code"]
    assert len(problem["detail"]) > 20
    assert "Traceback" not in reply.text
    assert reply.headers["mq-request-id"] == problem["request_id"]


def test_pointers_lead_to_the_field(mesh: Mesh) -> None:
    """RFC 6901, from the document's root."""
    mesh.create("bad", "readers")
    body = {"messages": [{"body": "a"}, {"body": "b", "tag": 3}]}
    problem = mesh.call("POST", "/v1/topics/bad/messages/batch", json=body).json()
    assert "/messages/1/tag" in json.dumps(problem)


def test_after_all_that_nothing_was_stored(mesh: Mesh) -> None:
    """Refused means refused."""
    mesh.create("bad", "readers")
    queues = mesh.call("GET", "/v1/topics/bad/offsets").json()["queues"]
    assert sum(queue["max_offset"] for queue in queues) == 0


def test_what_cannot_be_answered_is_not_done(mesh: Mesh) -> None:
    """406 comes before the topic exists, not after."""
    refused = mesh.settled("PUT", "/v1/topics/unwanted", headers={"accept": "text/html"})
    assert refused.status_code == 406
    assert mesh.settled("GET", "/v1/topics/unwanted/offsets").status_code == 404


def test_the_api_document_lists_every_operation(mesh: Mesh) -> None:
    """The hot routes too, which pass by FastAPI."""
    paths = mesh.call("GET", "/openapi.json").json()["paths"]
    hot = ("messages", "messages/batch", "groups/{group}/receive", "groups/{group}/ack", "groups/{group}/settle")
    assert {f"/v1/topics/{{topic}}/{path}" for path in (*hot, "queues/{queue}/messages")} <= set(paths)
    assert {"/v1/topics/{topic}", "/v1/groups/{group}", "/v1/cluster", "/healthz", "/metrics"} <= set(paths)
