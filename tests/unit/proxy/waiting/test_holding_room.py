"""Every way to hold a proxy's room: others go on, it is charged to who holds it, and it comes back exactly once, whatever becomes of it."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import orjson
import pytest

from tern_proxy.exchange import FlightBudget
from tern_wire.limits import BATCH_SIZE_MAX_BYTES
from tern_wire.link.requests import RequestCode
from tern_wire.paths import JSON
from tests.support.loops import eventually
from tests.support.proxy.guarded_mesh import OTHER, OWN, GuardedMesh, guarded_mesh
from tests.support.proxy.proxy_mesh import ProxyMesh, RawExchange, proxy_mesh

pytestmark = pytest.mark.anyio
ONE = "/v1/topics/orders/messages"
BATCH = "/v1/topics/orders/messages/batch"
RECEIVE = "/v1/topics/orders/groups/billing/receive"
LENGTH, CHUNKED = {"content-length": "900000"}, {"transfer-encoding": "chunked"}
# What a test's proxy holds in all; an ordinary send is small beside it.
ROOM = 4_000_000


def used(mesh: ProxyMesh) -> tuple[int, int, int]:
    """Bytes and messages that are held, and who holds them."""
    budget = mesh.proxy.budget
    return budget.bytes.used, budget.messages.used, budget.bytes.owners + budget.messages.owners


async def ends(mesh: ProxyMesh, exchange: RawExchange) -> None:
    """The rest of the body comes."""
    exchange.push(b"end")


async def goes(mesh: ProxyMesh, exchange: RawExchange) -> None:
    """The client is gone."""
    exchange.hang_up()


async def grows(mesh: ProxyMesh, exchange: RawExchange) -> None:
    """More comes than any message has."""
    exchange.push(bytes(5_000_000), more=True)


async def is_cancelled(mesh: ProxyMesh, exchange: RawExchange) -> None:
    """The server stops."""
    exchange.task.cancel()


End = Callable[[ProxyMesh, RawExchange], Awaitable[None]]
# Method, path, headers, what has come so far, and what of that is held.
WAYS = [
    ("declared", "POST", ONE, LENGTH, [], 0),
    ("declared, dribbling", "POST", ONE, LENGTH, [b"x"] * 9, 9),
    ("chunks, dribbling", "POST", ONE, CHUNKED, [b"x", b"", b"x"], 2),
    ("near its end", "POST", ONE, LENGTH, [bytes(899_999)], 899_999),
    ("a batch", "POST", BATCH, {**CHUNKED, "content-type": JSON}, [b'{"messages"'], 11),
    ("a receive", "POST", RECEIVE, CHUNKED, [b"{", b" " * 900], 901),
    ("an admin's body", "PUT", "/v1/topics/more", {**CHUNKED, "content-type": JSON}, [b"{", b" " * 900], 901),
    ("a request that waits", "POST", "/v1/topics/orders/requests", CHUNKED, [b"x"] * 5, 5),
]


@pytest.mark.parametrize("end", [ends, goes, grows, is_cancelled], ids=lambda each: str(each.__name__))
@pytest.mark.parametrize(
    ("method", "path", "headers", "pieces", "held"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS]
)
async def test_what_is_held_is_what_has_come_and_it_comes_back_once(
    method: str, path: str, headers: dict[str, str], pieces: list[bytes], held: int, end: End
) -> None:
    """While it is held an ordinary send is taken; afterwards nothing is held, by nobody."""
    async with proxy_mesh(budget=FlightBudget(ROOM)) as mesh:
        exchange = mesh.raw(method, path, headers)
        for piece in pieces:
            exchange.push(piece, more=True)
        await eventually(lambda: exchange.taken == len(pieces), "all that was sent has arrived")
        await eventually(lambda: used(mesh)[0] == held, "it is held")
        assert (await mesh.post(ONE, b"x")).status_code == 201
        assert used(mesh)[0] == held
        await end(mesh, exchange)
        await eventually(lambda: used(mesh) == (0, 0, 0), "it is given back")
        exchange.hang_up()
        await asyncio.wait([exchange.task], timeout=10)
        assert used(mesh) == (0, 0, 0)


async def test_bodies_that_are_only_announced_take_no_room_from_anybody() -> None:
    """A hundred of the largest, of which a byte has come; sends, batches, acks and receives go on."""
    async with proxy_mesh() as mesh:
        head = {"content-length": str(BATCH_SIZE_MAX_BYTES), "content-type": JSON}
        exchanges = [mesh.raw("POST", BATCH, head) for _ in range(100)]
        for each in exchanges:
            each.push(b" ", more=True)
        await eventually(lambda: used(mesh)[0] == 100, "a byte of each")
        assert (await mesh.post(ONE, bytes(100_000))).status_code == 201
        assert (await mesh.post(BATCH, b'{"messages": [{"body": "a"}]}', content_type=JSON)).status_code == 200
        got = (await mesh.receive(max_messages=2)).json()["messages"]
        acks = orjson.dumps({"receipt_handles": [each["receipt_handle"] for each in got]})
        assert (await mesh.post("/v1/topics/orders/groups/billing/ack", acks)).status_code == 200
        ready = await mesh.http.get("/readyz")
        assert (ready.status_code, set(ready.json()["room"].values())) == (200, {"free"})
        for each in exchanges:
            each.hang_up()
        await eventually(lambda: used(mesh) == (0, 0, 0), "all is given back")


async def test_large_bodies_of_anybody_leave_room_for_small_requests() -> None:
    """All of what large requests may take is taken, by who cannot be told apart: readiness tells it, and the instance stays ready."""
    async with proxy_mesh(budget=FlightBudget(ROOM)) as mesh:
        large = [mesh.raw("POST", ONE, CHUNKED) for _ in range(3)]
        for each in large:
            each.push(bytes(990_000), more=True)
        await eventually(lambda: used(mesh)[0] == 2_970_000, "they are held")
        refused = mesh.raw("POST", ONE, CHUNKED)
        refused.push(bytes(500_000), more=True)
        await asyncio.wait_for(refused.task, 30)
        assert refused.status == 503
        assert int(refused.headers[b"retry-after"]) >= 1
        assert (await mesh.post(ONE, bytes(200_000))).status_code == 201
        assert (await mesh.receive(max_messages=1)).status_code == 200
        ready = await mesh.http.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["room"] == {"bytes of requests in flight": "short", "messages in flight": "free"}
        metrics = (await mesh.http.get("/metrics")).text
        assert 'ternmq_proxy_room_refused_total{of="bytes of requests in flight/full"} 1.0' in metrics
        for each in large:
            each.hang_up()
        await eventually(lambda: used(mesh) == (0, 0, 0), "all is given back")


async def test_without_any_room_the_proxy_is_not_ready() -> None:
    """Not even a small request is taken, whosever it is: a load balancer does well to send it elsewhere."""
    async with proxy_mesh(budget=FlightBudget(8_000)) as mesh:
        small = [mesh.raw("POST", ONE, CHUNKED) for _ in range(8)]
        for each in small:
            each.push(bytes(1_000), more=True)
        await eventually(lambda: used(mesh)[0] == 8_000, "they are held")
        ready = await mesh.http.get("/readyz")
        assert (ready.status_code, ready.json()["room"]["bytes of requests in flight"]) == (503, "full")
        for each in small:
            each.hang_up()
        await eventually(lambda: used(mesh) == (0, 0, 0), "all is given back")
        assert (await mesh.http.get("/readyz")).status_code == 200


def sending(mesh: GuardedMesh, key: str, path: str, size: int) -> RawExchange:
    """A body of which *size* bytes have come, with *key*."""
    exchange = mesh.raw("POST", path, {"authorization": f"Bearer {key}", **CHUNKED})
    exchange.push(bytes(size), more=True)
    return exchange


@pytest.mark.parametrize("size", [1_000_000, 400_000, 200_000])
async def test_a_principal_at_its_share_is_refused_and_no_other_one(size: int) -> None:
    """429 `share-exceeded` for whoever takes all it can, in large bodies or in small ones; others send small and large."""
    async with guarded_mesh(budget=FlightBudget(ROOM)) as mesh:
        greedy, other = mesh.known.put("app", OWN), mesh.known.put("other", OTHER)
        held: list[RawExchange] = []
        while len(held) < 100:
            exchange = sending(mesh, greedy, ONE, size)
            await eventually(lambda: exchange.status or exchange.taken, "it is taken or refused")  # noqa: B023
            await asyncio.sleep(0)
            if exchange.status:
                break
            held.append(exchange)
        assert exchange.status == 429
        assert orjson.loads(exchange.sent[1]["body"])["code"] == "share-exceeded"
        assert int(exchange.headers[b"retry-after"]) >= 1
        theirs = "/v1/topics/invoices/messages"
        assert (await mesh.ask("POST", theirs, other, content=b"x")).status_code == 201
        assert (await mesh.ask("POST", theirs, other, content=bytes(300_000))).status_code == 201
        for each in held:
            each.hang_up()
        await eventually(lambda: used(mesh) == (0, 0, 0), "all is given back")
        assert (await mesh.ask("POST", ONE, greedy, content=bytes(size))).status_code == 201


async def test_messages_in_flight_are_shared_as_bytes_are() -> None:
    """A principal whose batches wait for a broker leaves places for another one's sends."""
    batch = orjson.dumps({"messages": [{"body": "a"}] * 300})
    async with guarded_mesh(budget=FlightBudget(limit_messages=1_000)) as mesh:
        greedy, other = mesh.known.put("app", OWN), mesh.known.put("other", OTHER)
        mesh.broker.hold()
        first = asyncio.create_task(mesh.ask("POST", BATCH, greedy, content=batch, headers={"Content-Type": JSON}))
        await eventually(lambda: mesh.broker.held, "the first batch at the broker")
        refused = await mesh.ask("POST", BATCH, greedy, content=batch, headers={"Content-Type": JSON})
        assert (refused.status_code, refused.json()["code"]) == (429, "share-exceeded")
        theirs = asyncio.create_task(mesh.ask("POST", "/v1/topics/invoices/messages", other, content=b"x"))
        await eventually(lambda: mesh.broker.asked[RequestCode.SEND] == 2, "the other one's send at the broker")
        mesh.broker.let_go()
        assert ((await first).status_code, (await theirs).status_code) == (200, 201)
        assert used(mesh) == (0, 0, 0)


async def test_an_address_without_credentials_has_a_share_too() -> None:
    """Two addresses of a network: the greedy one is refused, the other one is not."""
    async with proxy_mesh(budget=FlightBudget(ROOM)) as mesh:
        held = []
        for _ in range(4):
            exchange = mesh.raw("POST", ONE, CHUNKED)
            exchange._scope["client"] = ("192.0.2.1", 1)
            exchange.push(bytes(600_000), more=True)
            await eventually(lambda: exchange.status or exchange.taken, "it is taken or refused")  # noqa: B023
            held.append(exchange)
        assert [each.status for each in held] == [0, 0, 0, 429]
        transport = httpx.ASGITransport(app=mesh.app, client=("192.0.2.2", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as http:
            assert (await http.post(ONE, content=bytes(500_000))).status_code == 201
        for each in held:
            each.hang_up()
        await eventually(lambda: used(mesh) == (0, 0, 0), "all is given back")


async def test_what_is_held_counts_against_a_quota_until_it_is_given_back() -> None:
    """A second's worth of bytes that dribble in is all that may pile up: time alone does not pay for what is still held."""
    async with guarded_mesh() as mesh:
        key = mesh.known.put("app", OWN, bytes_per_s=1_000)
        slow = sending(mesh, key, ONE, 600)
        await eventually(lambda: used(mesh)[0] == 600, "it is held")
        more = sending(mesh, key, ONE, 600)
        await eventually(lambda: used(mesh)[0] == 1_200, "it is held, and a little is owed")
        mesh.clock.ms += 60_000
        refused = await mesh.ask("POST", ONE, key, content=b"x")
        assert (refused.status_code, refused.json()["code"]) == (429, "quota-exceeded")
        more.hang_up()
        await eventually(lambda: used(mesh)[0] == 600, "one of them is gone")
        mesh.clock.ms += 300
        assert (await mesh.ask("POST", ONE, key, content=b"x")).status_code == 201
        slow.hang_up()
        await eventually(lambda: used(mesh) == (0, 0, 0), "all is given back")


async def test_polls_that_wait_hold_nothing_of_what_they_said() -> None:
    """A receive of 200 KB of blanks that waits 30 s; a request that waits for its reply, whose body is stored."""
    async with proxy_mesh() as mesh:
        polls = [mesh.raw("POST", RECEIVE, CHUNKED) for _ in range(3)]
        for each in polls:
            each.push(b'{"wait": "30s"' + b" " * 200_000 + b"}")
        await eventually(lambda: len(mesh.proxy.parking) == 3, "they wait")
        assert used(mesh) == (0, 0, 0)
        for each in polls:
            each.hang_up()
        await asyncio.wait([each.task for each in polls], timeout=10)
