"""Broker groups that come and go, at a proxy: what joins gets what others have, and what is taken out is asked no more."""

import asyncio
from typing import Any

import pytest

from tern_broker.core.descriptions import group_settings
from tern_proxy.routes.broker_groups import joining
from tern_proxy.routes.broker_groups.late_groups import begin_topic
from tern_wire.errors import AlreadyExists, BrokerGroupNotFound, LimitReached
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.requests import RequestCode
from tern_wire.settings.producer_settings import ProducerSettings
from tests.support.broker.contents import (
    commit_offsets,
    declare_producers,
    delete_group,
    delete_topic,
    producer_groups,
    store,
)
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh
from tests.support.proxy.two_groups import B, two_groups

pytestmark = pytest.mark.anyio
SECRET = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY"


async def wipe(mesh: ProxyMesh, name: str = "broker-b") -> None:
    """Withdraw the write permission of a broker group; the proxy hears of it."""
    mesh.name_server.wiped.add(name)
    await mesh.proxy.cache.refresh()


# Joining ----------------------------------------------------------------------------------------------------------
async def test_a_broker_group_that_joins_gets_the_groups_that_others_have_with_their_settings() -> None:
    """Of every namespace; retry policy, start, attributes, flags, and the secret with its revision."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        delete_group(other, "billing")
        settings = {"max_attempts": 3, "start": "time", "start_ms": 5, "fifo": True, "broadcast": True}
        retry = {"policy": "custom", "delays_ms": [1_000, 500]}
        one.create_group("shop%paying", **settings, retry=retry, attributes={"owner": "x"})
        told = ProducerSettings(check_url="http://127.0.0.1/", check_secret=SECRET, max_checks=4)
        declare_producers(one, ["shop%bank"], told, revision=5)
        joined = await mesh.http.post(f"{B}/join")
        assert (joined.status_code, joined.json()) == (
            200,
            {"broker_group": "broker-b", "groups": 2, "producer_groups": 1},
        )
        assert set(other.groups) == {"billing", "shop%paying"}
        found = group_settings(other.engine.state.names.groups["shop%paying"])
        assert {name: found[name] for name in settings} == settings
        assert (found["retry"], found["attributes"]) == (retry, {"owner": "x"})
        assert producer_groups(other)["shop%bank"].settings == told
        assert producer_groups(other)["shop%bank"].revision == 5
        again = (await mesh.http.post(f"{B}/join")).json()
        assert (again["groups"], again["producer_groups"]) == (0, 0)


async def test_what_is_there_already_is_not_changed() -> None:
    """Not what was declared before, not what somebody declares at the same time, and nothing anywhere else."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        for name in ("late", "newer"):
            one.create_group(name)
        one.create_group("billing", max_attempts=3)
        other.create_group("billing", max_attempts=9)
        other.script(RequestCode.CREATE_GROUP, AlreadyExists(what="group", name="late"))
        declare_producers(one, ["p"], ProducerSettings(max_checks=3))
        declare_producers(other, ["p"], ProducerSettings(max_checks=9))
        assert (await mesh.http.post(f"{B}/join")).json()["groups"] == 1
        assert other.engine.state.names.groups["billing"].max_attempts == 9
        assert producer_groups(other)["p"].settings.max_checks == 9
        assert one.asked[RequestCode.CREATE_GROUP] == one.asked[RequestCode.ALTER_PRODUCER_GROUP] == 0


async def test_a_producer_group_of_its_first_use_gets_no_decision() -> None:
    """Nobody has decided anything of it: one that is declared there meanwhile keeps what was decided."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        declare_producers(one, ["p"])
        assert (await mesh.http.post(f"{B}/join")).json()["producer_groups"] == 1
        (change,) = [head for code, head in other.heads if code is RequestCode.ALTER_PRODUCER_GROUP]
        assert {name: change[name] for name in ("producer_group", "create")} == {"producer_group": "p", "create": True}
        assert "check_url" not in change
        assert not change.get("revision", 0)


async def test_a_join_goes_page_by_page_and_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group is found, whichever broker groups have which; and no more wait for the new one than the limit says."""
    monkeypatch.setattr(joining, "LISTED_MAX", 3)
    monkeypatch.setattr(joining, "JOINS_AT_ONCE", 2)
    one, other = two_groups()
    third = MemoryBroker(KEY, node="broker-c-0", broker_group="broker-c")
    waiting: list[Any] = []
    async with proxy_mesh(one, other, third) as mesh:
        for number in range(10):
            (one if number % 2 else third).create_group(f"g{number}")
        other.create_group("g4")
        other.script(RequestCode.CREATE_GROUP, *[lambda link, frame: waiting.append((link, frame))] * 2)
        done = asyncio.create_task(mesh.http.post(f"{B}/join"))
        await eventually(lambda: len(waiting) == 2, "two that wait")
        assert other.asked[RequestCode.CREATE_GROUP] == 2
        for link, frame in waiting:
            other.serve(link, frame)
        assert (await done).json()["groups"] == 9
        assert set(other.groups) == {"billing", *(f"g{number}" for number in range(10))}


async def test_a_join_that_is_refused_halfway_is_completed_by_the_next_one() -> None:
    """The first trouble is the answer; what was declared stays."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        for name in ("g1", "g2"):
            one.create_group(name)
        other.script(RequestCode.CREATE_GROUP, LimitReached(what="groups", actual=1, limit=1))
        refused = await mesh.http.post(f"{B}/join")
        assert (refused.status_code, refused.json()["code"]) == (429, "limit-reached")
        assert len(other.groups) == 2
        assert (await mesh.http.post(f"{B}/join")).json()["groups"] == 1


@pytest.mark.parametrize(("method", "end"), [("GET", ""), ("GET", "/topics"), ("POST", "/join")])
async def test_a_broker_group_that_nobody_knows_is_not_found(method: str, end: str) -> None:
    """With those that are known; while the name server is warming up it may come."""
    async with proxy_mesh() as mesh:
        missing = await mesh.http.request(method, f"{B}{end}")
        known = BrokerGroupNotFound(broker_group="broker-b", known="broker-a")
        assert (missing.status_code, missing.json()["detail"]) == (404, known.detail)
        mesh.name_server.is_warm = False
        await mesh.proxy.cache.refresh()
        assert (await mesh.http.request(method, f"{B}{end}")).json()["code"] == "warming-up"


@pytest.mark.parametrize(("method", "end"), [("GET", ""), ("GET", "/topics"), ("POST", "/join")])
async def test_broker_groups_are_the_clusters_and_no_namespaces(method: str, end: str) -> None:
    """Whoever asks from a namespace gets the same answer as everybody, names apart from their namespaces."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={"shop%orders": 1, "orders": 1}) as mesh:
        inside = await mesh.http.request(method, f"{B}{end}", headers={"MQ-Namespace": "shop"})
        outside = await mesh.http.request(method, f"{B}{end}")
        assert (inside.status_code, inside.json()) == (outside.status_code, outside.json())
        assert "%" not in inside.text


async def test_a_group_that_starts_with_what_comes_begins_with_the_oldest_where_its_topic_grows() -> None:
    """What was sent to the new broker group before its first receive there is newer than its begin; queues that it has begun are left alone."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        for broker in (one, other):
            broker.create_group("early")
            for group in ("late", "idle"):
                broker.create_group(group, start="latest")
            for queue in (0, 1):
                store(broker, "orders", queue, [b"x"] * 5)
        commit_offsets(one, "late", "orders", {0: 3})
        commit_offsets(one, "early", "orders", {0: 3})
        commit_offsets(other, "late", "orders", {1: 4})
        assert (await mesh.http.post(f"{B}/join")).status_code == 200
        seeks = [head for code, head in other.heads if code is RequestCode.SEEK]
        assert [(seek["group"], seek["topic"], seek["queues"], seek["to"]) for seek in seeks] == [
            ("late", "orders", [0, 2, 3], "earliest")
        ]
        assert one.asked[RequestCode.SEEK] == 0
        assert await begin_topic(mesh.proxy, "orders", "broker-b", 4) == 0
        assert (await mesh.http.put("/v1/topics/more")).status_code == 201
        store(one, "more", 0, [b"x"])
        commit_offsets(one, "late", "more", {0: 1})
        assert await begin_topic(mesh.proxy, "more", "broker-b", 4) == 4
        assert await begin_topic(mesh.proxy, "more", "broker-b", 4) == 0
        assert await begin_topic(mesh.proxy, "nope", "broker-b", 4) == 0


async def test_a_topic_that_is_placed_on_a_broker_group_is_begun_there_before_anybody_sends() -> None:
    """The new one is told of the topic, of the groups that have begun it, and then of its placement."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={}) as mesh:
        assert (await mesh.http.put("/v1/topics/orders", json={"queues": 2})).status_code == 201
        assert (await mesh.http.put("/v1/topics/orders/placement", json={"broker_groups": ["broker-a"]})).is_success
        await mesh.http.put("/v1/topics/orders/placement", json={"broker_groups": ["broker-a"]})
        for broker in (one, other):
            broker.pass_time(IDEMPOTENCY_WINDOW_MS + 1)
        await mesh.http.put("/v1/topics/orders/placement", json={"broker_groups": ["broker-a"]})
        delete_topic(other, "orders")
        await mesh.proxy.cache.refresh()
        for broker in (one, other):
            broker.create_group("late", start="latest")
        store(one, "orders", 0, [b"x"] * 5)
        commit_offsets(one, "late", "orders", {0: 3})
        other.requests.clear()
        placed = await mesh.http.put("/v1/topics/orders/placement", json={"broker_groups": ["broker-a", "broker-b"]})
        assert placed.status_code == 200, placed.text
        codes = [code for code, _ in other.heads if code in {RequestCode.CREATE_TOPIC, RequestCode.SEEK}]
        assert codes == [RequestCode.CREATE_TOPIC, RequestCode.SEEK, RequestCode.CREATE_TOPIC]


# Taken out --------------------------------------------------------------------------------------------------------
async def test_what_is_asked_of_everybody_goes_on_without_a_broker_group_that_was_taken_out() -> None:
    """Without write permission and without brokers. It counts again when one of them comes back."""
    one, other = two_groups()
    async with proxy_mesh(one, other, leader_wait_ms=50) as mesh:
        other.resign()
        await wipe(mesh)
        assert (await mesh.http.put("/v1/groups/new")).json()["code"] == "no-leader"
        mesh.name_server.brokers = [one]
        await mesh.proxy.cache.refresh()
        for method, path in (("PUT", "/v1/groups/new"), ("PUT", "/v1/producer-groups/shop"), ("GET", "/v1/groups")):
            answer = await mesh.http.request(method, path)
            assert answer.is_success, answer.text
        mesh.name_server.brokers = [one, other]
        other.lead(2)
        await mesh.proxy.cache.refresh()
        await eventually(lambda: mesh.proxy.group("broker-b").link.has_leader, "its leader")
        assert (await mesh.http.put("/v1/groups/other")).status_code == 201
        assert "other" in other.groups


async def test_a_broker_group_that_is_only_down_is_waited_for() -> None:
    """Nobody has withdrawn anything: what is declared without it would be missing there."""
    one, other = two_groups()
    async with proxy_mesh(one, other, leader_wait_ms=50) as mesh:
        other.resign()
        mesh.name_server.brokers = [one]
        await mesh.proxy.cache.refresh()
        assert (await mesh.http.put("/v1/groups/new")).json()["code"] == "no-leader"
