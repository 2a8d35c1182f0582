"""Where a topic comes to be at its first use, what becomes of it when that breaks off, and what a proxy refuses that does not see all of it."""

import asyncio

import pytest

from tern_proxy import sending
from tern_proxy.auto_create import AutoCreate
from tern_proxy.routes.transactions import begins as transactions
from tern_remoting import Frame, Link
from tern_wire.errors import Overloaded
from tern_wire.link.requests import RequestCode
from tern_wire.link.rows import key_hash
from tern_wire.routing.placement import Placement, owners, slot_of_key
from tests.support.broker.contents import open_transactions, place_topic, placements
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh
from tests.support.proxy.transaction_requests import declare

pytestmark = pytest.mark.anyio

BOTH = ("broker-a", "broker-b")
BORN = Placement(epoch=1, groups=BOTH)
MESSAGES = "/v1/topics/made/messages"


def brokers() -> tuple[MemoryBroker, MemoryBroker]:
    """Leaders of broker-a and broker-b."""
    return MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")


def put(broker: MemoryBroker, placement: Placement, topic: str = "made") -> None:
    """The broker group has *topic* and was told *placement*."""
    place_topic(broker, topic, placement)


def told(mesh: ProxyMesh, topic: str = "made") -> list[str]:
    """The placement of *topic* in each broker group; `-` where it is not."""
    return placements(mesh.brokers, topic)


def key_of(owner: str, topic: bytes = b"made") -> str:
    """An idempotency key that belongs to *owner* when both share."""
    keys = (f"k{number}" for number in range(1_000))
    return next(key for key in keys if owners(BOTH)[slot_of_key(key_hash(topic, key.encode()))] == owner)


async def test_a_topic_is_created_in_one_broker_group_first_which_says_where_it_is_placed() -> None:
    """The others hear of it only when that one has answered; nobody ever has it without its placement."""
    held: list[tuple[Link, Frame]] = []
    async with proxy_mesh(*brokers(), auto_create=AutoCreate(topics=True)) as mesh:
        first, second = mesh.brokers
        first.script(RequestCode.CREATE_TOPIC, lambda link, frame: held.append((link, frame)))
        await eventually(lambda: mesh.proxy.groups["broker-b"].link.has_leader, "broker-b is led")
        sends = [mesh.post(MESSAGES, b"x", Idempotency_Key=key_of(name)) for name in BOTH]
        answers = [asyncio.create_task(each) for each in sends]
        await eventually(lambda: held, "broker-a is asked")
        assert not second.asked[RequestCode.CREATE_TOPIC]
        ((link, frame),) = held
        first.serve(link, frame)
        assert {(await each).status_code for each in answers} == {201}
        assert told(mesh) == [str(BORN)] * 2
        assert [len(broker.records("made")) for broker in mesh.brokers] == [1, 1]


async def test_which_broker_group_says_it_does_not_depend_on_who_leads_now() -> None:
    """A proxy that sees no leader there creates the topic nowhere, since another one may see it."""
    async with proxy_mesh(*brokers(), auto_create=AutoCreate(topics=True), leader_wait_ms=50) as mesh:
        await mesh.send()
        mesh.brokers[0].resign()
        await mesh.proxy.cache.refresh()
        refused = await mesh.post(MESSAGES, b"x")
        assert (refused.status_code, refused.json()["code"]) == (503, "no-leader")
        assert told(mesh) == ["-", "-"]


async def test_of_two_creators_at_once_the_second_takes_what_the_first_has_placed() -> None:
    """Though it would have placed the topic otherwise."""
    async with proxy_mesh(*brokers(), auto_create=AutoCreate(topics=True)) as mesh:
        first = mesh.brokers[0]

        def created_before(link: Link, frame: Frame) -> None:
            put(first, Placement(epoch=1, groups=("broker-a",)))
            first.serve(link, frame)

        first.script(RequestCode.CREATE_TOPIC, created_before)
        answer = await mesh.post(MESSAGES, b"x", Idempotency_Key=key_of("broker-b"))
        assert (answer.status_code, told(mesh)) == (201, ["1|broker-a|", "-"])
        assert answer.json()["queue"].startswith("broker-a:")


@pytest.mark.parametrize("is_declared", [False, True])
async def test_a_topic_that_another_proxy_has_just_created_elsewhere_is_found(*, is_declared: bool) -> None:
    """A proxy that had not heard of broker-a has created it in broker-b, and no route says so yet: at its first use, and when it is declared."""
    placed = Placement(epoch=1, groups=("broker-b",))
    async with proxy_mesh(*brokers(), auto_create=AutoCreate(topics=True)) as mesh:
        second = mesh.brokers[1]

        def created_before(link: Link, frame: Frame) -> None:
            put(second, placed)
            second.serve(link, frame)

        await eventually(lambda: mesh.proxy.groups["broker-b"].link.has_leader, "broker-b is led")
        second.script(RequestCode.DESCRIBE_TOPIC, created_before)
        if is_declared:
            assert (await mesh.http.put("/v1/topics/made", json={})).status_code == 200
        answer = await mesh.post(MESSAGES, b"x", Idempotency_Key=key_of("broker-a"))
        assert (answer.status_code, told(mesh)) == (201, ["-", str(placed)])
        assert answer.json()["queue"].startswith("broker-b:")


async def test_a_creation_that_broke_off_is_completed_by_the_next_use() -> None:
    """Of a proxy that met trouble, and of another one that finds the topic so; a key waits until its owner has the topic."""
    async with proxy_mesh(*brokers(), auto_create=AutoCreate(topics=True)) as mesh:
        await eventually(lambda: mesh.proxy.groups["broker-b"].link.has_leader, "broker-b is led")
        mesh.brokers[1].script(RequestCode.CREATE_TOPIC, Overloaded(what="requests that wait"))
        assert (await mesh.post(MESSAGES, b"x")).status_code == 201
        assert told(mesh) == [str(BORN), "-"]
        assert (await mesh.post(MESSAGES, b"x")).status_code == 201
        await eventually(lambda: told(mesh) == [str(BORN)] * 2, "the topic is where it is placed")
    second_life = brokers()
    put(second_life[0], BORN)
    async with proxy_mesh(*second_life, auto_create=AutoCreate(topics=True)) as mesh:
        await eventually(lambda: mesh.proxy.groups["broker-b"].link.has_leader, "broker-b is led")
        stored = await mesh.post(MESSAGES, b"x", Idempotency_Key=key_of("broker-b"))
        assert (stored.status_code, told(mesh)) == (201, [str(BORN)] * 2)
        assert stored.json()["queue"].startswith("broker-b:")


async def test_who_has_not_heard_of_a_move_is_told_by_the_next_use() -> None:
    """Whatever this proxy may create: whoever began the move may have died before it told everybody."""
    nodes = brokers()
    growing = Placement(epoch=1, groups=("broker-a",)).next(BOTH)
    put(nodes[0], growing)
    put(nodes[1], Placement(epoch=1, groups=("broker-a",)))
    async with proxy_mesh(*nodes) as mesh:
        await eventually(lambda: mesh.proxy.groups["broker-b"].link.has_leader, "broker-b is led")
        assert (await mesh.post(MESSAGES, b"x")).status_code == 201
        await eventually(lambda: told(mesh) == [str(growing)] * 2, "broker-b has heard of it")


async def test_what_keeps_on_failing_is_not_tried_with_every_send() -> None:
    """Once a second, beside the sends."""
    nodes = brokers()
    put(nodes[0], BORN)
    async with proxy_mesh(*nodes, auto_create=AutoCreate(topics=True)) as mesh:
        await eventually(lambda: mesh.proxy.groups["broker-b"].link.has_leader, "broker-b is led")
        nodes[1].script(RequestCode.CREATE_TOPIC, *[Overloaded(what="requests that wait")] * 100)
        await mesh.post(MESSAGES, b"x")
        await eventually(lambda: nodes[1].asked[RequestCode.CREATE_TOPIC], "it is tried")
        await eventually(lambda: mesh.proxy.auto_create._failed, "it has failed")
        for _ in range(20):
            assert (await mesh.post(MESSAGES, b"x")).status_code == 201
        assert nodes[1].asked[RequestCode.CREATE_TOPIC] < 20


@pytest.mark.parametrize(
    ("placement", "owner"), [(BORN, "broker-a"), (Placement(epoch=1, groups=("broker-a",)).next(BOTH), "broker-b")]
)
async def test_what_an_unseen_broker_group_decides_about_is_refused_and_stored_nowhere(
    placement: Placement, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One message, one of a message group, a batch, a transaction; what belongs nowhere in particular is stored."""
    for module in (sending, transactions):
        monkeypatch.setattr(module, "PLACEMENT_NEWS_MS", 60)
    (_, second), key = brokers(), key_of(owner)
    put(second, placement)
    async with proxy_mesh(second) as mesh:
        declare(mesh)
        refused = await mesh.post(MESSAGES, b"x", Idempotency_Key=key)
        problem = refused.json()
        assert (refused.status_code, problem["code"], problem["retryable"]) == (503, "owner-unknown", True)
        assert "'broker-a'" in problem["detail"]
        started = await mesh.post("/v1/topics/made/transactions", b"x", Idempotency_Key=key, MQ_Producer_Group="shop")
        assert (started.status_code, started.json()["code"]) == (503, "owner-unknown")
        keyed = [{"body": "x", "idempotency_key": key}, {"body": "y"}]
        several = (await mesh.http.post(f"{MESSAGES}/batch", json={"messages": keyed})).json()
        assert [entry.get("error", {}).get("code") for entry in several["results"]] == ["owner-unknown", None]
        assert [len(second.records("made")), len(open_transactions(second))] == [1, 0]


async def test_a_transaction_whose_broker_group_is_not_in_sight_comes_again() -> None:
    """Topics that lie apart as far as this proxy sees may have a broker group in common."""
    nodes = brokers()
    put(nodes[0], Placement(epoch=1, groups=("broker-a",)), "one")
    put(nodes[1], BORN, "two")
    async with proxy_mesh(*nodes, topics={}) as mesh:
        declare(mesh)
        both = {"messages": [{"topic": "one", "body": "1"}, {"topic": "two", "body": "2"}], "producer_group": "shop"}
        refused = await mesh.http.post("/v1/transactions", json=both)
        assert (refused.status_code, refused.json()["code"]) == (503, "owner-unknown")
