"""How tails end and what they hold: lost rights, limits, clients that take nothing or go away, a proxy that stops."""

import asyncio
import logging
from typing import Any

import pytest

from tern_proxy.waiting.tails import Tails
from tern_wire.errors import Overloaded, ShuttingDown, TopicNotReadable
from tern_wire.limits_tails import TAIL_PAGE_SIZE_BYTES
from tern_wire.link.requests import RequestCode
from tests.support.loops import eventually
from tests.support.proxy.guarded_mesh import OWN, GuardedMesh, guarded_mesh
from tests.support.proxy.proxy_mesh import proxy_mesh
from tests.support.proxy.tail_exchange import EVENT_STREAM, TailExchange

pytestmark = pytest.mark.anyio
TAIL = "/v1/topics/orders/tail"


def with_key(mesh: GuardedMesh, key: str, query: str = "", **more: Any) -> TailExchange:
    """A tail of the holder of *key*."""
    return TailExchange(mesh.app, TAIL + query, {"authorization": f"Bearer {key}"}, **more)


@pytest.mark.parametrize(
    ("how", "code"), [("revoked", "unauthenticated"), ("deleted", "unauthenticated"), ("grant removed", "forbidden")]
)
async def test_a_tail_ends_at_the_moment_at_which_its_rights_are_lost(
    how: str, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With the problem that a request now gets, as its last event; no message that comes then is handed over. The audit has it."""
    caplog.set_level(logging.INFO, "ternmq.audit")
    async with guarded_mesh() as mesh:
        key, other = mesh.known.put("reader", OWN), mesh.known.put("writer", OWN)
        tail, kept = await with_key(mesh, key).begun(), await with_key(mesh, other).begun()
        if how == "revoked":
            mesh.known.revoke("reader")
        elif how == "deleted":
            mesh.known.delete("reader")
        else:
            mesh.known.put("reader", ("allow DESCRIBE topic orders*", "allow ALL group billing*"))
        answer = await mesh.ask("POST", "/v1/topics/orders/messages", other, content=b"secret")
        assert answer.status_code == 201
        last = await tail.over()
        assert (last["event"], last["data"]["code"]) == ("error", code)
        assert tail.messages == []
        await kept.has(1)
        await kept.end()
        audited = [vars(record) for record in caplog.records if record.name == "ternmq.audit"]
        (denied,) = [event for event in audited if event["principal"] == "reader"]
        assert denied["decision"] == "denied"


async def test_a_tail_needs_the_right_to_read() -> None:
    """Refused with a status: without a key, without the right, and of a topic that it may not see."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("reader", ("allow DESCRIBE topic orders*", "allow PUB topic orders*"))
        assert (await mesh.ask("GET", TAIL)).status_code == 401
        assert (await mesh.ask("GET", TAIL, key)).json()["code"] == "forbidden"
        assert (await mesh.ask("GET", "/v1/topics/invoices/tail", key)).json()["code"] == "topic-not-found"
        assert len(mesh.proxy.tails) == 0


async def test_a_key_that_expires_ends_its_tail() -> None:
    """Though it lives for longer than any other request: the clock of the wall decides."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("reader", OWN, key={"expires_ms": mesh.clock.ms + 3_600_000})
        tail = await with_key(mesh, key).begun()
        (request,) = mesh.guard.open._open
        assert request.timer is not None
        mesh.clock.ms += 3_600_001
        mesh.guard.open._on_time(request)
        last = await tail.over()
        assert (last["event"], last["data"]["code"]) == ("error", "unauthenticated")


async def test_tails_of_one_principal_and_of_all_are_bounded() -> None:
    """429 with Retry-After and the limit; a place is free again as soon as its tail ends."""
    async with guarded_mesh() as mesh:
        mesh.proxy.tails = Tails(3, 2)
        key, other = mesh.known.put("reader", OWN), mesh.known.put("writer", OWN)
        mine = [await with_key(mesh, key).begun() for _ in range(2)]
        refused = await mesh.ask("GET", TAIL, key)
        assert (refused.status_code, refused.json()["code"]) == (429, "too-many-tails")
        assert int(refused.headers["retry-after"]) >= 1
        assert "2 tails of this principal" in refused.json()["detail"]
        theirs = await with_key(mesh, other).begun()
        assert "3 tails of all clients" in (await mesh.ask("GET", TAIL, other)).json()["detail"]
        await mine[0].end()
        mine[0] = await with_key(mesh, key).begun()
        for tail in (*mine, theirs):
            await tail.end()
        assert len(mesh.proxy.tails) == mesh.proxy.tails.claimed("reader") == 0


async def test_tails_take_no_place_of_requests_in_progress() -> None:
    """They count as waiting, for as long as they are open, and never twice."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("reader", OWN)
        tails = [await with_key(mesh, key).begun() for _ in range(3)]
        assert (mesh.proxy.waiting, len(mesh.guard.open)) == (3, 3)
        for tail in tails:
            await tail.end()
        assert mesh.proxy.waiting == 0


async def test_a_client_that_takes_nothing_stops_the_reading() -> None:
    """One page is read, whatever the backlog, until the client has taken it; then the rest comes."""
    async with proxy_mesh(topics={"orders": 1}) as mesh:
        size = TAIL_PAGE_SIZE_BYTES // 8
        for _ in range(40):
            await mesh.post("/v1/topics/orders/messages", b"x" * size)
        tail = TailExchange(mesh.app, f"{TAIL}?from=earliest&max_messages=40")
        await eventually(lambda: mesh.broker.asked[RequestCode.PULL] or tail.body, "the first page")
        tail.is_open.clear()
        await eventually(lambda: tail.blocked, "a write that is not taken")
        for _ in range(20):
            await asyncio.sleep(0)
        before = mesh.broker.asked[RequestCode.PULL]
        read_bytes = sum(len(message["body"]) for message in tail.messages)
        await mesh.post("/v1/topics/orders/messages", b"more")
        assert mesh.broker.asked[RequestCode.PULL] == before <= read_bytes // TAIL_PAGE_SIZE_BYTES + 2
        tail.is_open.set()
        await tail.over()
        assert len(tail.messages) == 40


async def test_a_message_larger_than_a_page_is_a_page() -> None:
    """Of 3 MiB, between small ones."""
    async with proxy_mesh(topics={"orders": 2}) as mesh:
        for body in (b"a", b"x" * (12 * TAIL_PAGE_SIZE_BYTES // 16), b"b"):
            await mesh.post("/v1/topics/orders/messages", body)
        tail = TailExchange(mesh.app, f"{TAIL}?from=earliest&max_messages=3")
        await tail.over()
        assert sorted(len(body) for body in tail.bodies) == [1, 1, 12 * TAIL_PAGE_SIZE_BYTES // 16]


async def test_a_proxy_that_stops_ends_its_tails_with_their_place() -> None:
    """The last event says so, the answer is whole, and a tail that is begun now is refused."""
    async with proxy_mesh() as mesh:
        lines, sent = await TailExchange(mesh.app, TAIL).begun(), TailExchange(mesh.app, TAIL, kind=EVENT_STREAM)
        await sent.begun()
        mesh.proxy.stop_waiting()
        last = await lines.over()
        assert (last["event"], last["data"]) == ("end", {"reason": "stopping"})
        assert last["id"] == lines.last_id
        await eventually(lambda: sent.is_over, "the end of the other tail")
        assert [event.name for event in sent.events] == ["end"]
        refused = await mesh.http.get(TAIL)
        assert (refused.status_code, refused.json()["code"]) == (503, ShuttingDown.code)


async def test_an_error_that_no_repeat_mends_ends_a_tail_with_its_problem() -> None:
    """As that of a topic that may not be read any more."""
    async with proxy_mesh() as mesh:
        tail = await TailExchange(mesh.app, TAIL).begun()
        mesh.broker.script(RequestCode.PULL, TopicNotReadable(topic="orders"))
        await mesh.send(count=1)
        last = await tail.over()
        assert (last["event"], last["data"]["code"]) == ("error", "topic-not-readable")


async def test_a_read_that_fails_for_now_is_repeated() -> None:
    """Nobody hears of it."""
    async with proxy_mesh() as mesh:
        tail = await TailExchange(mesh.app, TAIL).begun()
        mesh.broker.script(RequestCode.PULL, Overloaded(what="a test"))
        await mesh.send(count=1)
        await tail.has(1)
        assert [line["event"] for line in tail.lines] == ["start", "message"]
        await tail.end()
