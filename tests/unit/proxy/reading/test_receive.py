"""Receives through the whole proxy: shapes of answers, long polls that wake exactly, clients that go away, moving leaders."""

import asyncio
import base64
from collections.abc import Sized
from functools import partial
from typing import Any

import msgspec
import orjson
import pytest

from tern_proxy.core.reading.delivery import LONG_TEXT_LENGTH
from tern_wire.errors import Overloaded
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.paths import JSON, MSGPACK, NDJSON
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
RECEIVE = "/v1/topics/orders/groups/billing/receive"
ACK = "/v1/topics/orders/groups/billing/ack"


def _has(things: Sized, count: int) -> bool:
    return len(things) == count


async def parked(mesh: ProxyMesh, count: int, **fields: Any) -> list[asyncio.Task[Any]]:
    """*count* polls that wait, the oldest first."""
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(mesh.receive(wait="30s", **fields)))
        await eventually(partial(_has, mesh.proxy.parking, number + 1), "a parked poll")
    await eventually(lambda: mesh.broker.notified == 1, "one notification at the broker")
    return tasks


async def test_a_received_message_has_all_that_was_sent() -> None:
    """Every field of the message object; fields that were not set are not there."""
    async with proxy_mesh() as mesh:
        headers = {"content-type": "text/plain", "mq-tag": "A", "mq-key": "k", "mq-properties": '{"origin":"JFK"}'}
        receipt = (await mesh.http.post("/v1/topics/orders/messages", content=b"hi", headers=headers)).json()
        (message,) = (await mesh.receive()).json()["messages"]
        handle = message.pop("receipt_handle")
        assert len(handle) < 120
        assert message == {
            **receipt,
            "topic": "orders",
            "body": "hi",
            "content_type": "text/plain",
            "tag": "A",
            "keys": ["k"],
            "properties": {"origin": "JFK"},
            "stored_at": NOW_MS,
            "attempt": 1,
            "invisible_until": NOW_MS + 60_000,
        }
        await mesh.post("/v1/topics/orders/messages", b"plain")
        (bare,) = (await mesh.receive()).json()["messages"]
        assert not bare.keys() & {"content_type", "tag", "keys", "properties", "json", "body_base64"}


@pytest.mark.parametrize(
    ("body", "content_type", "query", "field", "value"),
    [
        (b"text", "", "", "body", "text"),
        (b"\xff\x00", "", "", "body_base64", "/wA="),
        (b'{"n": 12345678901234567890}', JSON, "", "json", {"n": 12345678901234567890}),
        (b'{\n"n":\n1}', "application/a+json; v=1", "", "json", {"n": 1}),
        (b"{broken", JSON, "", "body", "{broken"),
        (b'"\xff"', JSON, "", "body_base64", base64.b64encode(b'"\xff"').decode()),
        (b"", "", "", "body", ""),
        (b'{"n":1}', JSON, "?encoding=text", "body", '{"n":1}'),
        (b'{"n":1}', "", "?encoding=json", "json", {"n": 1}),
        (b"no json", "", "?encoding=json", "body", "no json"),
        (b"text", "", "?encoding=base64", "body_base64", "dGV4dA=="),
        (b"\xff", "", "?encoding=text", "body_base64", "/w=="),
        (('"\\\n\u00fc' * LONG_TEXT_LENGTH).encode(), "", "", "body", '"\\\n\u00fc' * LONG_TEXT_LENGTH),
    ],
)
async def test_a_body_is_written_as_what_it_is(
    body: bytes, content_type: str, query: str, field: str, value: object
) -> None:
    """`json` for JSON, text for UTF-8, base64 for the rest, or what `encoding` forces; exactly one of the three."""
    async with proxy_mesh() as mesh:
        await mesh.post("/v1/topics/orders/messages", body, content_type=content_type)
        (message,) = (await mesh.receive(query)).json()["messages"]
        assert {name: message[name] for name in ("body", "json", "body_base64") if name in message} == {field: value}


async def test_the_same_messages_in_every_representation() -> None:
    """MessagePack with bytes, NDJSON with a message a line (however the JSON inside was broken into lines), raw with headers."""
    async with proxy_mesh() as mesh:
        for _ in range(4):
            await mesh.post("/v1/topics/orders/messages", b'{\n"n": 1\n}', content_type=JSON, mq_tag="A", mq_key="k")
        packed = await mesh.post(f"{RECEIVE}?max_messages=1", accept=MSGPACK)
        assert msgspec.msgpack.decode(packed.content)["messages"][0]["body"] == b'{\n"n": 1\n}'
        lines = await mesh.post(f"{RECEIVE}?max_messages=2", accept="application/x-ndjson")
        assert [orjson.loads(line)["json"] for line in lines.content.splitlines()] == [{"n": 1}] * 2
        raw = await mesh.post(RECEIVE, accept="application/octet-stream")
        assert (raw.status_code, raw.content, raw.headers["content-type"]) == (200, b'{\n"n": 1\n}', JSON)
        assert (raw.headers["mq-tag"], raw.headers["mq-key"], raw.headers["mq-attempt"]) == ("A", "k", "1")
        acked = await mesh.http.post(f"{ACK}?receipt_handle={raw.headers['mq-receipt-handle']}")
        assert acked.status_code == 200
        empty = await mesh.post(f"{RECEIVE}?format=raw")
        assert (empty.status_code, empty.content) == (204, b"")


async def test_an_empty_topic_answers_at_once_without_a_wait() -> None:
    """200 with two empty lists, and nothing asked but one RECEIVE."""
    async with proxy_mesh() as mesh:
        answer = await mesh.receive()
        assert (answer.status_code, answer.json()) == (200, {"messages": [], "settled": []})
        assert (mesh.broker.asked[RequestCode.RECEIVE], mesh.broker.asked[RequestCode.NOTIFY]) == (1, 0)


async def test_query_forms_and_the_body_say_the_same_to_the_broker() -> None:
    """max_messages, max_bytes and invisible reach it in milliseconds and bytes; 0 stands for the group's own time."""
    async with proxy_mesh() as mesh:
        await mesh.receive("?max_messages=3&max_bytes=1000&invisible=90s")
        await mesh.receive(max_messages=3, max_bytes=1000, invisible="90s")
        await mesh.post(RECEIVE, msgspec.msgpack.encode({"max_messages": 7}), content_type=MSGPACK)
        heads = [head for code, head in mesh.broker.heads if code == RequestCode.RECEIVE]
        fixed = {"topic": "orders", "group": "billing"}
        assert heads[0] == heads[1] == {**fixed, "max_messages": 3, "max_bytes": 1000, "invisible_ms": 90_000}
        assert heads[2] == {**fixed, "max_messages": 7, "max_bytes": 1 << 20, "invisible_ms": 0}


@pytest.mark.parametrize(
    ("query", "body", "status", "code"),
    [
        ("?max_messages=0", b"", 400, "invalid-field"),
        ("?max_messages=257", b"", 400, "invalid-field"),
        ("?max_messages=x", b"", 400, "invalid-field"),
        ("?max_bytes=99999999", b"", 400, "invalid-field"),
        ("?wait=31s", b"", 400, "illegal-wait"),
        ("?invisible=0s", b"", 400, "illegal-invisible-time"),
        ("?encoding=hex", b"", 400, "invalid-field"),
        ("?format=xml", b"", 400, "invalid-field"),
        ("?format=raw&encoding=text", b"", 400, "invalid-field"),
        ("?filter=a", b"", 400, "unknown-parameter"),
        ("?wait=1s&wait=2s", b"", 400, "invalid-field"),
        ("", b'{"filter":{"words":["A"]}}', 400, "unknown-field"),
        ("", b'{"filter":{"tags":["A||B"]}}', 400, "invalid-field"),
        ("", b'{"filter":{"sql":"a >"}}', 400, "illegal-filter"),
        ("?tags=A&sql=a+IS+NULL", b"", 400, "illegal-filter"),
        ("", b'{"max_messages":"3"}', 400, "invalid-field"),
        ("", b'{"max_messages":-1}', 400, "invalid-field"),
        ("", b'{"max_messages":', 400, "malformed-body"),
        ("", b'{"settle":[{"receipt_handle":"x","action":"reject"}]}', 400, "invalid-field"),
        ("?format=raw", b'{"settle":[{"receipt_handle":"x"}]}', 400, "invalid-field"),
    ],
)
async def test_bad_receives_are_problems(query: str, body: bytes, status: int, code: str) -> None:
    """Refused before the broker is asked."""
    async with proxy_mesh() as mesh:
        answer = await mesh.post(RECEIVE + query, body, content_type=JSON)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert mesh.broker.asked[RequestCode.RECEIVE] == 0


async def test_an_unknown_group_is_told_also_to_those_who_would_wait() -> None:
    """404 group-not-found at once, and 400 for a name that no group can have."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.post("/v1/topics/orders/groups/nobody/receive?wait=30s")
        assert (answer.status_code, answer.json()["code"]) == (404, "group-not-found")
        illegal = await mesh.http.post("/v1/topics/orders/groups/a.b/receive")
        assert (illegal.status_code, illegal.json()["code"]) == (400, "illegal-group")


# Long polls -------------------------------------------------------------------------------------------------------
async def test_one_message_wakes_exactly_one_poll_and_it_is_the_oldest() -> None:
    """Five wait behind one NOTIFY; a message costs one RECEIVE more, and four wait on."""
    async with proxy_mesh() as mesh:
        tasks = await parked(mesh, 5)
        before = mesh.broker.asked[RequestCode.RECEIVE]
        await mesh.send()
        answer = await tasks[0]
        assert len(answer.json()["messages"]) == 1
        assert answer.headers["mq-wait-applied"] == "30000ms"
        await eventually(lambda: mesh.broker.notified == 1, "the next notification")
        assert mesh.broker.asked[RequestCode.RECEIVE] == before + 1
        assert [task.done() for task in tasks] == [True, False, False, False, False]
        mesh.proxy.stop_waiting()
        await asyncio.gather(*tasks)


async def test_as_many_polls_wake_as_there_are_messages() -> None:
    """Three messages that appear together wake three of five polls."""
    async with proxy_mesh() as mesh:
        tasks = await parked(mesh, 5, max_messages=1)
        await mesh.post(
            "/v1/topics/orders/messages/batch", orjson.dumps({"messages": [{"body": "x"}] * 3}), content_type=JSON
        )
        answers = await asyncio.gather(*tasks[:3])
        assert [len(answer.json()["messages"]) for answer in answers] == [1, 1, 1]
        await eventually(lambda: mesh.broker.notified == 1, "the next notification")
        assert [task.done() for task in tasks[3:]] == [False, False]
        mesh.proxy.stop_waiting()
        await asyncio.gather(*tasks)


async def test_a_poll_ends_empty_at_its_deadline() -> None:
    """200 and two empty lists; nothing is left behind."""
    async with proxy_mesh() as mesh:
        answer = await mesh.receive(wait="50ms")
        assert (answer.status_code, answer.json()) == (200, {"messages": [], "settled": []})
        assert answer.headers["mq-wait-applied"] == "50ms"
        assert len(mesh.proxy.parking) == 0


async def test_a_poll_woken_in_vain_keeps_its_place() -> None:
    """Somebody else took the message: it waits on in front, and gets the next one."""
    async with proxy_mesh() as mesh:
        tasks = await parked(mesh, 2)

        def lie(link: Any, frame: Any) -> None:
            link.reply(frame.opaque, 0, body_parts({"available": 1}))

        mesh.broker.script(RequestCode.NOTIFY, lie)
        mesh.broker.resign()
        mesh.broker.lead()
        received = mesh.broker.asked[RequestCode.RECEIVE]
        await eventually(lambda: mesh.broker.asked[RequestCode.RECEIVE] > received, "a receive in vain")
        await eventually(lambda: mesh.broker.notified == 1, "the notification after it")
        await mesh.send()
        assert len((await tasks[0]).json()["messages"]) == 1
        assert not tasks[1].done()
        mesh.proxy.stop_waiting()
        assert (await tasks[1]).json()["messages"] == []


async def test_a_poll_whose_client_is_gone_receives_nothing() -> None:
    """It leaves the queue; the message goes to the next one."""
    async with proxy_mesh() as mesh:
        gone = mesh.raw("POST", f"{RECEIVE}?wait=30s")
        gone.push(b"")
        await eventually(lambda: len(mesh.proxy.parking) == 1, "the poll to park")
        gone.hang_up()
        await asyncio.wait_for(gone.task, 30)
        assert (gone.sent, len(mesh.proxy.parking)) == ([], 0)
        received = mesh.broker.asked[RequestCode.RECEIVE]
        await mesh.send()
        assert mesh.broker.asked[RequestCode.RECEIVE] == received
        assert len((await mesh.receive()).json()["messages"]) == 1


async def test_messages_leased_for_a_client_that_went_away_are_released() -> None:
    """They are visible at once for the next consumer, as the same attempt."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=2)
        gone = mesh.raw("POST", RECEIVE)

        def hang_up_first(link: Any, frame: Any) -> None:
            gone.hang_up()
            asyncio.get_running_loop().call_soon(mesh.broker.serve, link, frame)

        mesh.broker.script(RequestCode.RECEIVE, hang_up_first)
        gone.push(b"")
        await asyncio.wait_for(gone.task, 30)
        assert (gone.sent, len(mesh.broker.released)) == ([], 2)
        messages = (await mesh.receive()).json()["messages"]
        assert [message["attempt"] for message in messages] == [1, 1]


@pytest.mark.parametrize("query", ["", "?wait=30s", "?format=raw", "?tags=*", "?attempt_id=a"])
@pytest.mark.parametrize("accept", [JSON, MSGPACK, NDJSON])
async def test_a_receive_whose_client_is_gone_counts_no_attempt_in_any_form(query: str, accept: str) -> None:
    """Unless it said that it would ask again: then it gets the same messages, as the same attempt, for as long as their leases last."""
    async with proxy_mesh() as mesh:
        await mesh.send(count=3)
        gone = mesh.raw("POST", f"{RECEIVE}{query}", {"accept": accept})

        def hang_up_first(link: Any, frame: Any) -> None:
            gone.hang_up()
            asyncio.get_running_loop().call_soon(mesh.broker.serve, link, frame)

        mesh.broker.script(RequestCode.RECEIVE, hang_up_first)
        gone.push(b"")
        await asyncio.wait_for(gone.task, 30)
        leased = 0 if "attempt_id" in query else 1 if "raw" in query else 3
        assert (gone.sent, len(mesh.broker.released)) == ([], leased)
        if leased:
            messages = (await mesh.receive()).json()["messages"]
            assert [message["attempt"] for message in messages] == [1, 1, 1]


async def test_a_poll_goes_on_at_the_new_leader() -> None:
    """The old one refuses its notifications; a message at the new one arrives within the same poll."""
    old, new = MemoryBroker(KEY, node="broker-a-0"), MemoryBroker(KEY, node="broker-a-1", leads=False)
    async with proxy_mesh(old, new) as mesh:
        task = (await parked(mesh, 1))[0]
        new.lead(2)
        old.resign(new.node)
        await eventually(lambda: new.notified == 1, "the notification at the new leader")
        await mesh.send()
        assert len((await task).json()["messages"]) == 1


async def test_a_poll_outlives_a_link_and_a_busy_broker() -> None:
    """A lost link and a refusal with a pause do not end it."""
    async with proxy_mesh() as mesh:
        mesh.broker.script(
            RequestCode.NOTIFY, Overloaded(what="requests that wait"), lambda link, _: link.abort("scripted")
        )
        task = asyncio.create_task(mesh.receive(wait="30s"))
        await eventually(lambda: mesh.broker.notified == 1, "a notification that lasts")
        await mesh.send()
        assert len((await task).json()["messages"]) == 1


async def test_a_full_parking_lot_shortens_the_wait_and_says_so() -> None:
    """MQ-Wait-Applied: 0; the poll that has its place keeps it."""
    async with proxy_mesh(polls_max=1) as mesh:
        (task,) = await parked(mesh, 1)
        answer = await mesh.receive(wait="30s")
        assert (answer.status_code, answer.headers["mq-wait-applied"]) == (200, "0ms")
        await mesh.send()
        assert len((await task).json()["messages"]) == 1


async def test_two_broker_groups_are_asked_in_turn_and_both_wake_a_poll() -> None:
    """What lies in one of them is found whichever is asked first; a poll waits for both."""
    one, two = MemoryBroker(KEY), MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0")
    async with proxy_mesh(one, two) as mesh:
        for queue in ("broker-a:0", "broker-b:0"):
            for _ in range(2):
                await mesh.post(f"/v1/topics/orders/messages?queue={queue}", b"x")
                answer = await mesh.receive()
                assert [message["queue"] for message in answer.json()["messages"]] == [queue]
        task = asyncio.create_task(mesh.receive(wait="30s"))
        await eventually(lambda: one.notified and two.notified, "a notification at each")
        await mesh.post("/v1/topics/orders/messages?queue=broker-b:0", b"x")
        assert [message["queue"] for message in (await task).json()["messages"]] == ["broker-b:0"]


async def test_stopping_answers_parked_polls_empty_and_parks_no_more() -> None:
    """200 at once, and the proxy is not ready any more."""
    async with proxy_mesh() as mesh:
        (task,) = await parked(mesh, 1)
        mesh.proxy.stop_waiting()
        assert (await task).json() == {"messages": [], "settled": []}
        later = await mesh.receive(wait="30s")
        assert later.headers["mq-wait-applied"] == "0ms"
        assert (await mesh.http.get("/readyz")).status_code == 503


async def test_without_a_leader_a_receive_says_so_unless_it_can_wait() -> None:
    """503 for one that does not wait; one that does is answered by the next leader."""
    async with proxy_mesh(leader_wait_ms=50) as mesh:
        mesh.broker.resign()
        answer = await mesh.receive()
        assert (answer.status_code, answer.json()["code"]) == (503, "no-leader")
        task = asyncio.create_task(mesh.receive(wait="30s"))
        await eventually(lambda: len(mesh.proxy.parking) == 1, "the poll to park")
        mesh.broker.lead()
        await eventually(lambda: mesh.broker.notified == 1, "the notification")
        await mesh.send()
        assert len((await task).json()["messages"]) == 1
