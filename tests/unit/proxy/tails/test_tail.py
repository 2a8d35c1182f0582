"""Tails through a whole proxy and brokers in memory: what comes, in which order, and where it goes on."""

from typing import Any

import pytest

from tern_proxy.routes.tails import stream
from tern_wire.link.requests import RequestCode
from tern_wire.paths import EVENT_STREAM
from tests.support.broker.contents import forget_messages
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh
from tests.support.proxy.tail_exchange import TailExchange
from tests.support.proxy.two_groups import two_groups

pytestmark = pytest.mark.anyio
TAIL = "/v1/topics/orders/tail"


async def send(mesh: ProxyMesh, *bodies: str, query: str = "") -> None:
    """Store messages one after the other."""
    for body in bodies:
        answer = await mesh.post(f"/v1/topics/orders/messages{query}", body.encode())
        assert answer.status_code == 201


async def read(mesh: ProxyMesh, query: str, **headers: str) -> list[dict[str, Any]]:
    """The events of a tail that ends by itself."""
    tail = TailExchange(mesh.app, TAIL + query, headers)
    await tail.over()
    assert tail.status == 200
    return tail.lines


async def test_a_tail_gives_what_comes_and_nothing_older() -> None:
    """From the end of all queues on, with the document of a pull; no group has moved, no lease was taken."""
    async with proxy_mesh() as mesh:
        await send(mesh, "old")
        tail = await TailExchange(mesh.app, TAIL).begun()
        assert (tail.status, tail.headers[b"content-type"]) == (200, b"application/x-ndjson")
        assert b"content-length" not in tail.headers
        await send(mesh, "a", "b", "c", "d", "e", query="?tag=new&key=k")
        await tail.has(5)
        assert tail.bodies == ["a", "b", "c", "d", "e"]
        first = tail.messages[0]
        pulled = await mesh.http.get(f"/v1/topics/orders/queues/{first['queue']}/messages?offset={first['offset']}")
        assert pulled.json()["messages"][0] == first
        assert mesh.broker.asked[RequestCode.RECEIVE] == 0
        await tail.end()
        assert len(mesh.proxy.tails) == len(mesh.proxy.growth) == 0


async def test_server_sent_events_are_the_default() -> None:
    """As EventSource asks, and as curl does; each message has its id."""
    async with proxy_mesh() as mesh:
        await send(mesh, "a", "b")
        for kind in (EVENT_STREAM, "*/*", "text/event-stream, */*;q=0.1"):
            tail = TailExchange(mesh.app, f"{TAIL}?from=earliest&idle=0", kind=kind)
            await eventually(lambda tail=tail: tail.is_over, "the end")  # type: ignore[misc]
            assert tail.headers[b"content-type"] == b"text/event-stream"
            assert [event.name for event in tail.events] == ["message", "message", "end"]
            assert len({event.last_event_id for event in tail.events}) == 2
        refused = await mesh.http.get(TAIL, headers={"accept": "text/html"})
        assert (refused.status_code, refused.json()["code"]) == (406, "not-acceptable")


async def test_every_id_continues_exactly_behind_its_message() -> None:
    """Over four queues, from the header and from the query, at another connection: no gap, no repeat."""
    async with proxy_mesh() as mesh:
        bodies = [f"m{number}" for number in range(25)]
        await send(mesh, *bodies)
        whole = await read(mesh, "?from=earliest&idle=0")
        order = [line["data"]["body"] for line in whole if line["event"] == "message"]
        assert sorted(order) == sorted(bodies)
        for at, line in enumerate(whole[:-1]):
            rest = sorted(order[at:])
            for query, headers in ((f"&last_event_id={line['id']}", {}), ("", {"Last-Event-ID": line["id"]})):
                again = await read(mesh, f"?from=earliest&idle=0{query}", **headers)
                assert sorted(each["data"]["body"] for each in again if each["event"] == "message") == rest
        # The header is newer than the query of a client that connects again.
        header = {"Last-Event-ID": whole[-1]["id"]}
        assert [each["event"] for each in await read(mesh, f"?idle=0&last_event_id={whole[0]['id']}", **header)] == [
            "start",
            "end",
        ]


async def test_the_messages_of_a_queue_come_by_offset_and_those_of_a_page_as_they_came() -> None:
    """Over the queues of two broker groups, and more messages than a page holds; those of one group in one page in the order of its log."""
    async with proxy_mesh(*two_groups()) as mesh:
        lines = [b'{"body": "%d", "queue": "broker-%c:%d"}\n' % (n, b"ab"[n % 2], n // 2 % 4) for n in range(600)]
        for at in range(0, 600, 40):
            batch = b"".join(lines[at : at + 40])
            answer = await mesh.post("/v1/topics/orders/messages/batch", batch, content_type="application/x-ndjson")
            assert answer.status_code == 200
        tail = TailExchange(mesh.app, f"{TAIL}?from=earliest&max_messages=600")
        assert (await tail.over())["data"] == {"reason": "max_messages"}
        assert sorted(map(int, tail.bodies)) == list(range(600))
        offsets: dict[str, list[int]] = {}
        for message in tail.messages:
            offsets.setdefault(message["queue"], []).append(message["offset"])
        assert len(offsets) == 8
        assert all(found == list(range(len(found))) for found in offsets.values())
        first = [message for message in tail.messages[:200] if message["queue"].startswith("broker-a")]
        assert [int(message["body"]) for message in first] == list(range(0, 2 * len(first), 2))


async def test_a_tail_ends_after_so_many_messages_and_after_silence() -> None:
    """With the reason, and an id that continues."""
    async with proxy_mesh() as mesh:
        await send(mesh, *"abcdef")
        first = await read(mesh, "?from=earliest&max_messages=4")
        assert (first[-1]["event"], first[-1]["data"]) == ("end", {"reason": "max_messages"})
        rest = await read(mesh, f"?idle=1ms&last_event_id={first[-1]['id']}")
        assert rest[-1]["data"] == {"reason": "idle"}
        bodies = [line["data"]["body"] for line in first + rest if line["event"] == "message"]
        assert sorted(bodies) == list("abcdef")


async def test_a_tail_begins_at_a_time() -> None:
    """`from=@` a time, `since` a time, and `since` so long ago; the clock of the test stands still."""
    async with proxy_mesh() as mesh:
        await send(mesh, "old")
        mesh.broker.pass_time(60_000)
        await send(mesh, "new")
        now_ms = mesh.proxy.clock.now_ms()
        for query, count in (
            (f"from=@{now_ms + 30_000}", 1),
            (f"since={now_ms + 30_000}", 1),
            (f"since={now_ms - 1}", 2),
            ("since=1h", 2),
            ("since=0s", 2),
        ):
            found = [line for line in await read(mesh, f"?idle=0&{query}") if line["event"] == "message"]
            assert len(found) == count, query


async def test_a_filter_passes_over_messages_and_does_not_read_them_again() -> None:
    """Tags and SQL as in a pull; a sign of life has the place behind what was passed over."""
    async with proxy_mesh() as mesh:
        tagged = await TailExchange(mesh.app, f"{TAIL}?tags=paid").begun()
        chosen = await TailExchange(mesh.app, f"{TAIL}?sql=TAGS%3D'open'").begun()
        await send(mesh, "a", query="?tag=paid")
        await send(mesh, "b", query="?tag=open")
        await tagged.has(1)
        await chosen.has(1)
        assert (tagged.bodies, chosen.bodies) == (["a"], ["b"])
        await tagged.end()
        await chosen.end()
        passed = await read(mesh, "?from=earliest&tags=none&idle=0")
        assert [line["event"] for line in passed] == ["start", "end"]
        before = mesh.broker.asked[RequestCode.PULL]
        await read(mesh, f"?tags=none&idle=0&last_event_id={passed[-1]['id']}")
        assert mesh.broker.asked[RequestCode.PULL] == before
        for query, code in (("tags=a&sql=b", "illegal-filter"), ("sql=(", "illegal-filter")):
            assert (await mesh.http.get(f"{TAIL}?{query}")).json()["code"] == code


async def test_a_filter_that_passes_over_a_backlog_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the place so far: a client that connects again does not begin anew."""
    monkeypatch.setattr(stream, "TAIL_HEARTBEAT_MS", 0)
    async with proxy_mesh(topics={"orders": 2}) as mesh:
        for queue in ("broker-a:0", "broker-a:1"):
            await send(mesh, *"abc", query=f"?queue={queue}")
        lines = await read(mesh, "?from=earliest&tags=none&idle=0")
        assert [line["event"] for line in lines] == ["start", "keep-alive", "end"]
        assert lines[0]["id"] != lines[1]["id"] == lines[2]["id"]


async def test_what_retention_drops_before_it_is_read_is_told() -> None:
    """With the queue and the count; what is there comes."""
    async with proxy_mesh(topics={"orders": 1}) as mesh:
        await send(mesh, *"abcde")
        begin = (await read(mesh, "?from=earliest&max_messages=1"))[-1]["id"]
        forget_messages(mesh.broker, "orders", 0, before=4)
        lines = await read(mesh, f"?idle=0&last_event_id={begin}")
        assert [line["event"] for line in lines] == ["start", "skipped", "message", "end"]
        assert lines[1]["data"] == {"queue": "broker-a:0", "first": 1, "next": 4, "count": 3}
        assert lines[2]["data"]["body"] == "e"
        again = await read(mesh, f"?idle=0&last_event_id={lines[1]['id']}")
        assert [line["event"] for line in again] == ["start", "message", "end"]


async def test_a_new_queue_is_read_from_its_first_message() -> None:
    """The topic gets more queues, and then a second broker group, while the tail runs and while it does not."""
    async with proxy_mesh(topics={"orders": 1}) as mesh:
        tail = await TailExchange(mesh.app, TAIL).begun()
        begin = tail.last_id
        assert (await mesh.http.patch("/v1/topics/orders", json={"queues": 3})).status_code == 200
        await mesh.proxy.cache.refresh()
        for queue in ("broker-a:2", "broker-a:1"):
            await send(mesh, queue, query=f"?queue={queue}")
        await tail.has(2)
        await tail.end()
        lines = await read(mesh, f"?idle=0&last_event_id={begin}")
        assert sorted(line["data"]["body"] for line in lines[1:-1]) == ["broker-a:1", "broker-a:2"]


async def test_a_broker_group_that_joins_is_followed() -> None:
    """From the moment at which the routes name it, all of its messages."""
    first, second = two_groups()
    async with proxy_mesh(first, second, topics={}) as mesh:
        first.create_topic("orders", 2)
        await mesh.proxy.cache.refresh()
        tail = await TailExchange(mesh.app, TAIL).begun()
        second.create_topic("orders", 2)
        await mesh.proxy.cache.refresh()
        await send(mesh, "b", query="?queue=broker-b:1")
        await send(mesh, "a", query="?queue=broker-a:1")
        await tail.has(2)
        assert sorted(tail.bodies) == ["a", "b"]
        await tail.end()


async def test_an_election_is_no_event() -> None:
    """The leader stops leading and leads again; messages of before, of meanwhile and of after come once, and the other group's at once."""
    first, second = two_groups()
    async with proxy_mesh(first, second, topics={"orders": 1}) as mesh:
        tail = await TailExchange(mesh.app, TAIL).begun()
        await send(mesh, "before", query="?queue=broker-a:0")
        await tail.has(1)
        first.resign()
        await send(mesh, "other", query="?queue=broker-b:0")
        await tail.has(2)
        first.lead()
        await send(mesh, "after", query="?queue=broker-a:0")
        await tail.has(3)
        assert tail.bodies == ["before", "other", "after"]
        assert {line["event"] for line in tail.lines} == {"start", "message"}
        await tail.end()


async def test_a_quiet_tail_asks_nobody() -> None:
    """Ten tails of a topic wait with one request at its broker group, which an append answers."""
    async with proxy_mesh(topics={"orders": 8}) as mesh:
        tails = [await TailExchange(mesh.app, TAIL).begun() for _ in range(10)]
        await eventually(lambda: len(mesh.broker.dispatcher.offsets.parked) == 1, "the wait for growth")
        before = mesh.broker.asked.copy()
        for _ in range(50):
            await eventually(lambda: True, "a turn of the loop")
        assert mesh.broker.asked == before
        await send(mesh, "a")
        for tail in tails:
            await tail.has(1)
        asked = mesh.broker.asked - before
        assert asked[RequestCode.PULL] == 10
        for tail in tails:
            await tail.end()


async def test_a_topic_that_is_deleted_ends_its_tails() -> None:
    """With its problem as the last event; and a topic that is not there is refused at once."""
    async with proxy_mesh() as mesh:
        tail = await TailExchange(mesh.app, TAIL).begun()
        assert (await mesh.http.delete("/v1/topics/orders?confirm=orders")).status_code in {200, 204}
        last = await tail.over()
        assert (last["event"], last["data"]["code"], last["data"]["status"]) == ("error", "topic-not-found", 404)
        assert (await mesh.http.get(TAIL)).json()["code"] == "topic-not-found"


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("from=yesterday", "invalid-field"),
        ("from=@", "invalid-field"),
        ("since=soon", "invalid-field"),
        ("since=1h&from=earliest", "invalid-field"),
        ("idle=x", "invalid-field"),
        ("idle=2d", "invalid-field"),
        ("max_messages=0", "invalid-field"),
        ("last_event_id=1-AAAA", "invalid-field"),
        ("encoding=xml", "invalid-field"),
        ("wait=1s", "unknown-parameter"),
    ],
)
async def test_what_a_tail_does_not_understand_is_refused(query: str, code: str) -> None:
    """With a status, before the stream begins; and no place among the tails stays taken."""
    async with proxy_mesh() as mesh:
        answer = await mesh.http.get(f"{TAIL}?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, code)
        assert len(mesh.proxy.tails) == 0


async def test_a_tail_in_a_namespace_has_the_client_s_names() -> None:
    """Its lines leave as they come, and none has the full name; nor has its problem."""
    async with proxy_mesh(topics={"shop%orders": 1}) as mesh:
        inside = {"MQ-Namespace": "shop"}
        tail = await TailExchange(mesh.app, TAIL, inside).begun()
        await mesh.post("/v1/topics/orders/messages", b"a", MQ_Namespace="shop")
        await tail.has(1)
        assert tail.messages[0]["topic"] == "orders"
        await mesh.http.delete("/v1/topics/orders?confirm=orders", headers=inside)
        await tail.over()
        assert b"shop" not in tail.body
