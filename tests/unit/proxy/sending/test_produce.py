"""Sends through the whole proxy: receipts, replays, partial failure, limits, and what each trouble of the broker answers."""

import asyncio
from typing import Any

import msgspec
import orjson
import pytest

from tern_proxy.exchange import FlightBudget
from tern_wire.errors import DiskFull, Overloaded, TernError
from tern_wire.limits import BATCH_SIZE_MAX_BYTES, MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.link.requests import RequestCode
from tern_wire.paths import JSON, MSGPACK, NDJSON
from tern_wire.records.read import decode_record
from tests.support.broker.contents import delete_topic
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

pytestmark = pytest.mark.anyio
ONE = "/v1/topics/orders/messages"
BATCH = "/v1/topics/orders/messages/batch"


def cut(link: Any, _: Any) -> None:
    """The broker's process dies: the link closes without a reply."""
    link.abort("scripted")


async def test_a_single_send_answers_a_receipt() -> None:
    """201, where the message is, and a Location that reads it back; the body is stored byte for byte."""
    async with proxy_mesh() as mesh:
        answer = await mesh.post(ONE, b"a=b&c=d", content_type="application/x-www-form-urlencoded")
        receipt = answer.json()
        assert answer.status_code == 201
        assert receipt == {
            "message_id": receipt["message_id"],
            "queue": "broker-a:1",
            "offset": 0,
            "born_at": NOW_MS,
        }
        (stored,) = mesh.broker.records("orders")
        assert decode_record(stored).body == b"a=b&c=d"
        assert decode_record(stored).properties["UNIQ_KEY"] == receipt["message_id"]
        read = await mesh.http.get(answer.headers["location"])
        assert [message["message_id"] for message in read.json()["messages"]] == [receipt["message_id"]]


async def test_the_same_receipt_comes_as_messagepack_or_as_headers() -> None:
    """By Accept, and 204 for `Prefer: return=minimal`."""
    async with proxy_mesh() as mesh:
        packed = await mesh.post(ONE, b"x", accept=MSGPACK)
        assert (packed.status_code, packed.headers["content-type"]) == (201, MSGPACK)
        assert msgspec.msgpack.decode(packed.content)["queue"] == "broker-a:1"
        minimal = await mesh.post(ONE, b"x", prefer="return=minimal")
        assert (minimal.status_code, minimal.content) == (204, b"")
        assert (minimal.headers["mq-queue"], minimal.headers["mq-offset"]) == ("broker-a:2", "0")
        assert len(minimal.headers["mq-message-id"]) == 32


async def test_a_repeated_idempotency_key_gets_the_first_receipt() -> None:
    """200 with Idempotency-Replayed and every field of the first; the message is stored once."""
    async with proxy_mesh() as mesh:
        first = await mesh.post(ONE, b"pay", idempotency_key="k1")
        mesh.proxy.clock.ms += 5_000  # type: ignore[attr-defined]
        again = await mesh.post(f"{ONE}?idempotency_key=k1", b"pay")
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json() == first.json()
        minimal = await mesh.post(ONE, b"pay", idempotency_key="k1", prefer="return=minimal")
        assert (minimal.status_code, minimal.headers["idempotency-replayed"]) == (204, "true")
        assert len(mesh.broker.records("orders")) == 1


async def test_an_idempotency_key_with_another_body_is_refused() -> None:
    """422, and the first message stays."""
    async with proxy_mesh() as mesh:
        await mesh.post(ONE, b"pay 1", idempotency_key="k1")
        answer = await mesh.post(ONE, b"pay 2", idempotency_key="k1")
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency-key-reused")


async def test_a_batch_answers_in_input_order() -> None:
    """200, one result a message, all in one queue with offsets in order, in JSON and in MessagePack."""
    async with proxy_mesh() as mesh:
        body = orjson.dumps({"messages": [{"body": str(number)} for number in range(5)]})
        answer = await mesh.post(BATCH, body, content_type=JSON)
        document = answer.json()
        assert (answer.status_code, document["failed"]) == (200, 0)
        assert [(result["index"], result["offset"]) for result in document["results"]] == [(n, n) for n in range(5)]
        assert {result["queue"] for result in document["results"]} == {"broker-a:1"}
        packed = await mesh.post(BATCH, body, content_type=JSON, accept=MSGPACK)
        assert msgspec.msgpack.decode(packed.content)["failed"] == 0
        assert [decode_record(record).body for record in mesh.broker.records("orders")[:5]] == [
            b"0",
            b"1",
            b"2",
            b"3",
            b"4",
        ]


async def test_a_batch_with_some_bad_messages_stores_the_good_ones() -> None:
    """207 with a problem at its place, for refusals of the proxy and of the broker alike."""
    async with proxy_mesh() as mesh:
        await mesh.post(ONE, b"first", idempotency_key="used")
        lines = [
            {"body": "ok"},
            {"body": "x", "tag": "a|b"},
            {"body": "other", "idempotency_key": "used"},
            {"body": "x", "queue": "broker-a:9"},
            {"body": "first", "idempotency_key": "used"},
        ]
        answer = await mesh.post(BATCH, b"\n".join(map(orjson.dumps, lines)), content_type=NDJSON)
        document = answer.json()
        assert (answer.status_code, document["failed"]) == (207, 3)
        codes = [result.get("error", {}).get("code", "stored") for result in document["results"]]
        assert codes == ["stored", "illegal-tag", "idempotency-key-reused", "queue-not-found", "stored"]
        assert document["results"][1]["error"]["pointer"] == "/messages/1/tag"
        assert document["results"][4]["replayed"] is True


async def test_a_batch_that_failed_for_one_cause_answers_that_cause() -> None:
    """The status is the error's own, as for a single send."""
    async with proxy_mesh() as mesh:
        body = orjson.dumps({"messages": [{"body": "x", "tag": "|"}] * 3})
        answer = await mesh.post(BATCH, body, content_type=JSON)
        assert (answer.status_code, answer.json()["code"]) == (400, "illegal-tag")
        assert mesh.broker.asked[RequestCode.SEND] == 0


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "code"),
    [
        ("/v1/topics/nope/messages", {}, b"", 404, "topic-not-found"),
        ("/v1/topics/a.b/messages", {}, b"", 400, "illegal-topic"),
        ("/v1/topics//messages", {}, b"", 400, "illegal-topic"),
        ("/v1/topics/%E2%82%AC/messages", {}, b"", 400, "illegal-topic"),
        (f"{ONE}?delya=10s", {}, b"", 400, "unknown-parameter"),
        (ONE, {"mq-delya": "10s"}, b"", 400, "unknown-field"),
        (f"{ONE}?delay=41d", {}, b"", 400, "illegal-delivery-time"),
        (ONE, {"mq-delay": "1s", "mq-message-group": "g"}, b"", 400, "property-conflicts-with-type"),
        (f"{ONE}?queue=broker-a:4", {}, b"", 404, "queue-not-found"),
        (ONE, {"content-encoding": "gzip"}, b"", 415, "unsupported-encoding"),
        (ONE, {"accept": "text/html"}, b"", 406, "not-acceptable"),
        (ONE, {}, bytes(MESSAGE_BODY_SIZE_MAX_BYTES + 1), 413, "message-too-large"),
        (BATCH, {"content-type": JSON}, b'{"messages":[{"bdy":1}]}', 400, "unknown-field"),
        (BATCH, {"content-type": JSON}, b"{", 400, "malformed-body"),
        (BATCH, {"content-type": JSON}, b'{"messages":[]}', 400, "batch-empty"),
        (BATCH, {"content-type": "text/csv"}, b"a,b", 415, "unsupported-batch-format"),
        (BATCH, {"content-type": JSON}, bytes(BATCH_SIZE_MAX_BYTES + 1), 413, "batch-too-large"),
        (f"{BATCH}?atomic=true", {"content-type": JSON}, b"{}", 400, "unknown-parameter"),
    ],
)
async def test_bad_sends_are_problems(path: str, headers: dict[str, str], body: bytes, status: int, code: str) -> None:
    """A stable code, a sentence, the path and the request id; nothing stored."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.post(path, content=body, headers={**headers, "mq-request-id": "r-7"})
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["status"]) == (status, code, status)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["mq-request-id"] == problem["request_id"] == "r-7"
        assert problem["detail"]
        assert mesh.broker.records("orders") == []


async def test_a_body_that_grows_over_the_limit_is_refused_before_its_end() -> None:
    """413 and a closing connection as soon as the count is over; the declared size is refused without reading anything."""
    async with proxy_mesh() as mesh:
        chunked = mesh.raw("POST", ONE, {"transfer-encoding": "chunked"})
        for _ in range(5):
            chunked.push(bytes(1 << 20), more=True)
        await asyncio.wait_for(chunked.task, 30)
        assert (chunked.status, chunked.headers[b"connection"]) == (413, b"close")
        declared = mesh.raw("POST", ONE, {"content-length": str(MESSAGE_BODY_SIZE_MAX_BYTES + 1)})
        await asyncio.wait_for(declared.task, 30)
        assert (declared.status, declared.taken, declared.headers[b"connection"]) == (413, 0, b"close")
        assert mesh.proxy.budget.bytes.used == 0


async def test_a_body_in_pieces_is_one_message() -> None:
    """Chunks without a length are joined; empty ones do no harm."""
    async with proxy_mesh() as mesh:
        sent = mesh.raw("POST", ONE, {"transfer-encoding": "chunked"})
        for piece in (b"ab", b"", b"cd"):
            sent.push(piece, more=True)
        sent.push(b"e")
        await asyncio.wait_for(sent.task, 30)
        assert sent.status == 201
        assert decode_record(mesh.broker.records("orders")[0]).body == b"abcde"


async def test_a_client_that_goes_away_within_its_body_stores_nothing() -> None:
    """No answer, no message, and the budget is given back."""
    async with proxy_mesh() as mesh:
        sent = mesh.raw("POST", ONE, {"content-length": "100"})
        sent.push(b"half", more=True)
        sent.hang_up()
        await asyncio.wait_for(sent.task, 30)
        assert (sent.sent, mesh.broker.asked[RequestCode.SEND], mesh.proxy.budget.bytes.used) == ([], 0, 0)


async def test_requests_beyond_the_byte_budget_are_refused_and_small_ones_are_not() -> None:
    """503 overloaded as soon as a body has no room; what is small has a part of its own; once the others are answered there is room again."""
    async with proxy_mesh(budget=FlightBudget(2_000)) as mesh:
        mesh.broker.hold()
        first = asyncio.create_task(mesh.post(ONE, bytes(1_400)))
        await eventually(lambda: mesh.broker.held, "the first send at the broker")
        second = mesh.raw("POST", ONE, {"content-length": "900"})
        second.push(bytes(600), more=True)
        await asyncio.wait_for(second.task, 30)
        assert (second.status, second.headers[b"connection"]) == (503, b"close")
        assert orjson.loads(second.sent[1]["body"])["code"] == "overloaded"
        assert second.headers[b"retry-after"]
        small = asyncio.create_task(mesh.post(ONE, bytes(400)))
        await eventually(lambda: mesh.proxy.budget.bytes.used == 1_800, "the small one is held")
        mesh.broker.let_go()
        assert ((await first).status_code, (await small).status_code) == (201, 201)
        assert (await mesh.post(ONE, bytes(1_400))).status_code == 201


async def test_a_large_body_that_has_no_room_is_refused_by_its_head() -> None:
    """Nobody sends 16 MiB in vain; what a head announces takes no room all the same."""
    async with proxy_mesh(budget=FlightBudget(8 << 20)) as mesh:
        told = mesh.raw("POST", BATCH, {"content-length": str(BATCH_SIZE_MAX_BYTES), "content-type": JSON})
        await asyncio.wait_for(told.task, 30)
        assert (told.status, told.taken, mesh.proxy.budget.bytes.used) == (503, 0, 0)


async def test_messages_beyond_their_budget_are_refused_and_counted() -> None:
    """A batch counts each of its messages; nothing of what is refused is stored, and /metrics names the budget."""
    two, three = (orjson.dumps({"messages": [{"body": "a"}] * count}) for count in (2, 3))
    async with proxy_mesh(budget=FlightBudget(limit_messages=4)) as mesh:
        mesh.broker.hold()
        first = asyncio.create_task(mesh.post(BATCH, two, content_type=JSON))
        await eventually(lambda: mesh.broker.held, "the first batch at the broker")
        refused = await mesh.post(BATCH, two, content_type=JSON)
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert (refused.json()["what"], refused.json()["limit"]) == ("messages in flight", 3)
        assert refused.headers["retry-after"] == "1"
        mesh.broker.let_go()
        assert (await first).status_code == 200
        assert (await mesh.post(BATCH, three, content_type=JSON)).status_code == 200
        assert (mesh.proxy.budget.messages.used, mesh.proxy.budget.bytes.used) == (0, 0)
        assert len(mesh.broker.records("orders")) == 5
        assert 'ternmq_proxy_refused_total{what="messages in flight"} 1.0' in (await mesh.http.get("/metrics")).text


@pytest.mark.parametrize(
    ("error", "status"), [(Overloaded(what="requests that wait"), 503), (DiskFull(broker_group="broker-a"), 503)]
)
async def test_a_brokers_refusal_is_passed_on(error: TernError, status: int) -> None:
    """Nothing was stored, so the code is the broker's and Retry-After says when to come again."""
    async with proxy_mesh() as mesh:
        mesh.broker.script(RequestCode.SEND, error)
        answer = await mesh.post(ONE, b"x")
        assert (answer.status_code, answer.json()["code"]) == (status, error.code)
        assert (answer.headers["retry-after"], answer.json()["retryable"]) == ("1", True)


async def test_a_brokers_bug_is_an_open_outcome_not_a_500() -> None:
    """What the broker cannot explain may have been stored."""
    async with proxy_mesh() as mesh:
        mesh.broker.script(RequestCode.SEND, TernError())
        answer = await mesh.post(ONE, b"x")
        assert (answer.status_code, answer.json()["code"]) == (504, "outcome-unknown")


async def test_a_lost_link_leaves_the_outcome_open() -> None:
    """504 for a send without a key: it is not repeated behind the client's back."""
    async with proxy_mesh() as mesh:
        await mesh.send()
        mesh.broker.script(RequestCode.SEND, cut)
        answer = await mesh.post(ONE, b"x")
        assert (answer.status_code, answer.json()["code"]) == (504, "outcome-unknown")
        assert mesh.broker.asked[RequestCode.SEND] == 2


async def test_a_lost_link_is_survived_by_a_send_with_a_key() -> None:
    """It is repeated when the link is back, and answered as if nothing had happened."""
    async with proxy_mesh() as mesh:
        mesh.broker.script(RequestCode.SEND, cut)
        answer = await mesh.post(ONE, b"x", idempotency_key="k")
        assert answer.status_code == 201
        assert (mesh.broker.asked[RequestCode.SEND], len(mesh.broker.records("orders"))) == (2, 1)


async def test_keyed_sends_are_repeated_even_when_their_flight_had_others() -> None:
    """Of one lost flight the keyed send is stored, the other one is an open outcome."""
    async with proxy_mesh() as mesh:
        mesh.broker.hold()
        blockers = [asyncio.create_task(mesh.post(ONE, b"b")), asyncio.create_task(mesh.post(ONE, b"b", mq_tag="t"))]
        await eventually(lambda: mesh.proxy.groups["broker-a"].sends.flights, "a first flight")
        lane = mesh.proxy.groups["broker-a"].sends
        while lane.flights < 2:
            blockers.append(asyncio.create_task(mesh.post(ONE, b"b")))
            await eventually(lambda: lane.carried + lane.waiting >= len(blockers), "all blockers")
        keyed = asyncio.create_task(mesh.post(ONE, b"k", idempotency_key="k"))
        plain = asyncio.create_task(mesh.post(ONE, b"p"))
        await eventually(lambda: lane.waiting >= 2, "both to gather")
        await eventually(
            lambda: len(mesh.broker.held) == 2, "both flights at the broker, so that only the next one is cut"
        )
        mesh.broker.script(RequestCode.SEND, cut)
        mesh.broker.let_go()
        assert (await keyed).status_code == 201
        assert (await plain).json()["code"] == "outcome-unknown"
        assert {answer.status_code for answer in await asyncio.gather(*blockers)} == {201}


async def test_without_a_leader_sends_say_so_within_the_wait() -> None:
    """503 no-leader with Retry-After; when one is elected in time, the send just takes longer."""
    async with proxy_mesh(leader_wait_ms=300) as mesh:
        mesh.broker.resign()
        answer = await mesh.post(ONE, b"x")
        assert (answer.status_code, answer.json()["code"]) == (503, "no-leader")
        assert answer.headers["retry-after"] == "1"
    async with proxy_mesh(leader_wait_ms=5_000) as mesh:
        mesh.broker.resign()
        waiting = asyncio.create_task(mesh.post(ONE, b"x"))
        await eventually(lambda: mesh.broker.asked[RequestCode.STATUS], "the search for a leader")
        mesh.broker.lead()
        assert (await waiting).status_code == 201


async def test_a_send_follows_the_leader_to_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """not-leader stored nothing, so even a send without a key goes on; the hint saves the search."""
    # On a busy machine a leader is silent for a while, which is asked about.
    monkeypatch.setattr("tern_routing.attempts.SILENCE_S", 60)
    old, new = MemoryBroker(KEY, node="broker-a-0"), MemoryBroker(KEY, node="broker-a-1", leads=False)
    # Routes that name the new leader before the old one has answered end the wait for that answer.
    async with proxy_mesh(old, new, route_interval_ms=60_000) as mesh:
        link = mesh.proxy.groups["broker-a"].link
        await eventually(lambda: all(node["connected"] for node in link.nodes().values()), "both links")
        await mesh.send()
        old.greets = new.greets = False
        new.lead(2)
        old.resign(new.node)
        answer = await mesh.post(ONE, b"x")
        assert answer.status_code == 201
        assert (len(old.records("orders")), len(new.records("orders"))) == (1, 1)
        assert old.asked[RequestCode.STATUS] == 0


async def test_a_topic_that_the_broker_does_not_know_asks_for_new_routes() -> None:
    """404, and the name server is asked at once, since the route was older than the broker."""
    async with proxy_mesh(route_interval_ms=60_000) as mesh:
        delete_topic(mesh.broker, "orders")
        asked = mesh.name_server.asked
        answer = await mesh.post(ONE, b"x")
        assert (answer.status_code, answer.json()["code"]) == (404, "topic-not-found")
        await eventually(lambda: mesh.name_server.asked > asked, "a poll")


async def test_sends_without_a_key_avoid_a_broker_group_without_a_leader() -> None:
    """Pinned and keyed ones cannot: they are answered no-leader."""
    one, two = MemoryBroker(KEY), MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0", leads=False)
    async with proxy_mesh(one, two, leader_wait_ms=50) as mesh:
        await eventually(lambda: mesh.proxy.groups["broker-a"].link.has_leader, "a link to the leader")
        receipts = await mesh.send(count=8)
        assert {receipt["queue"].split(":")[0] for receipt in receipts} == {"broker-a"}
        pinned = await mesh.post(f"{ONE}?queue=broker-b:0", b"x")
        assert (pinned.status_code, pinned.json()["code"]) == (503, "no-leader")
