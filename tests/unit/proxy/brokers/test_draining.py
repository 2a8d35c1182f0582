"""What is left in a broker group, at a proxy: counted and named before the broker group may be taken out."""

from dataclasses import replace
from typing import Any

import pytest

from tern_proxy.core.sending.topic import Topic
from tern_wire.link.requests import RequestCode
from tern_wire.routing.placement import Placement
from tests.support.broker.contents import (
    commit_offsets,
    declare_producers,
    store,
)
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh
from tests.support.proxy.transaction_requests import begin
from tests.support.proxy.two_groups import B, two_groups

pytestmark = pytest.mark.anyio


def place(mesh: ProxyMesh, name: str, *groups: str, before: tuple[str, ...] = ()) -> None:
    """Let the routes of *mesh* say that the topic is placed there."""
    placement = str(Placement(epoch=2, groups=groups, before=before))
    route = {each: replace(part, placement=placement) for each, part in mesh.proxy.cache.topics[name].route.items()}
    mesh.proxy.cache.topics[name] = Topic(name, route)


async def left(mesh: ProxyMesh, path: str = B) -> Any:
    """What is left in a broker group."""
    answer = await mesh.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def wipe(mesh: ProxyMesh, name: str = "broker-b") -> None:
    """Withdraw the write permission of a broker group; the proxy hears of it."""
    mesh.name_server.wiped.add(name)
    await mesh.proxy.cache.refresh()


async def leave_dead_letters(mesh: ProxyMesh, broker: MemoryBroker, count: int) -> None:
    """So many dead letters of group `payers` in namespace `shop`, from topic `bills`, at *broker*."""
    store(broker, "shop%bills", 0, [b"bad"] * count)
    path, headers = "/v1/topics/bills/groups/payers", {"MQ-Namespace": "shop"}
    found = await mesh.http.post(f"{path}/receive", json={"max_messages": count}, headers=headers)
    entries = [{"receipt_handle": each["receipt_handle"], "action": "dead_letter"} for each in found.json()["messages"]]
    settled = await mesh.http.post(f"{path}/settle", json={"entries": entries}, headers=headers)
    assert (len(entries), settled.json()["failed"]) == (count, 0)
    broker.keep_up()


# Draining ---------------------------------------------------------------------------------------------------------
async def test_what_is_left_in_a_broker_group_is_counted_and_named() -> None:
    """By topic: what its slowest group has to read, what is leased, what waits; and what no topic has."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={"orders": 2, "shop%bills": 1, "empty": 1}) as mesh:
        for broker in (one, other):
            for group in ("audit", "shop%payers"):
                broker.create_group(group)
        store(other, "orders", 0, [b"r"] * 5)
        commit_offsets(other, "audit", "orders", {0: 0})
        handles = [each["receipt_handle"] for each in (await mesh.receive(max_messages=4)).json()["messages"]]
        ack = {"receipt_handles": handles[:2]}
        assert (await mesh.http.post("/v1/topics/orders/groups/billing/ack", json=ack)).status_code == 200
        await leave_dead_letters(mesh, other, 6)
        for _ in range(4):
            later = await mesh.post("/v1/topics/bills/messages?queue=broker-b:0&delay=1h", b"x", MQ_Namespace="shop")
            assert later.status_code == 201
        declare_producers(other, ["shop"])
        for _ in range(2):
            assert (await begin(mesh, MQ_Queue="broker-b:0")).status_code == 201
        place(mesh, "orders", "broker-a")
        place(mesh, "shop%bills", "broker-a", before=("broker-a", "broker-b"))
        place(mesh, "empty", "broker-a", "broker-b", before=("broker-b",))
        found = await left(mesh)
        assert (found["broker_group"], found["writable"], found["leader"]) == ("broker-b", True, "broker-b-0")
        assert (found["topics"], found["placed"], found["moving"]) == (3, 1, 1)
        assert (found["unread"], found["in_flight"], found["scheduled"], found["unclaimed"]) == (5, 2, 4, 0)
        assert (found["transactions"], found["dead_letters"], found["is_drained"]) == (2, 6, False)
        rows = {(row["namespace"], row["topic"]): row for row in found["topics_left"]}
        assert {place: row["why"] for place, row in rows.items()} == {
            ("", "empty"): ["placed"],
            ("", "orders"): ["unread"],
            ("shop", "bills"): ["moving", "scheduled"],
        }
        behind = [{"group": "audit", "unread": 5}, {"group": "billing", "unread": 3}]
        assert rows["", "orders"]["groups"] == behind
        assert found["dead_letters_left"] == [{"namespace": "shop", "group": "payers", "dead_letters": 6}]


async def test_a_broker_group_without_permission_and_without_anything_left_is_drained() -> None:
    """What no group reads keeps nobody, and is told; with write permission it could get more at any time."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        store(other, "orders", 0, [b"r"] * 7)
        place(mesh, "orders", "broker-a")
        assert not (await left(mesh))["is_drained"]
        await wipe(mesh)
        place(mesh, "orders", "broker-a")
        found = await left(mesh)
        assert (found["is_drained"], found["unclaimed"], found["topics_left"]) == (True, 7, [])


@pytest.mark.parametrize("what", ["placed", "moving", "unread", "scheduled", "transactions", "dead letters"])
async def test_whatever_is_left_keeps_the_broker_group(what: str) -> None:
    """Each of them alone."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={"orders": 1, "shop%bills": 1}) as mesh:
        match what:
            case "unread":
                store(other, "orders", 0, [b"r"])
                commit_offsets(other, "billing", "orders", {0: 0})
            case "scheduled":
                later = await mesh.post("/v1/topics/orders/messages?queue=broker-b:0&delay=1h", b"x")
                assert later.status_code == 201
            case "transactions":
                declare_producers(other, ["shop"])
                assert (await begin(mesh, MQ_Queue="broker-b:0")).status_code == 201
            case "dead letters":
                for broker in (one, other):
                    broker.create_group("shop%payers")
                await leave_dead_letters(mesh, other, 1)
        await wipe(mesh)
        place(mesh, "shop%bills", "broker-a")
        before = ("broker-b",) if what == "moving" else ()
        place(mesh, "orders", "broker-b" if what == "placed" else "broker-a", before=before)
        assert not (await left(mesh))["is_drained"]


async def test_a_group_that_reads_the_topic_elsewhere_has_everything_of_it_to_read_here() -> None:
    """It has not come by since the topic grew; what is here was sent for it, too."""
    one, other = two_groups()
    async with proxy_mesh(one, other) as mesh:
        await wipe(mesh)
        store(other, "orders", 0, [b"r"] * 7)
        store(one, "orders", 0, [b"r"])
        commit_offsets(one, "billing", "orders", {0: 1})
        place(mesh, "orders", "broker-a")
        found = await left(mesh)
        assert (found["unread"], found["in_flight"], found["unclaimed"], found["is_drained"]) == (7, 0, 0, False)
        assert found["topics_left"][0]["groups"] == [{"group": "billing", "unread": 7}]


async def test_another_broker_group_is_asked_only_where_it_has_the_same_topics() -> None:
    """One that is without a leader does not keep the others from being drained of what it never had; of what it has, nobody can tell."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={}, leader_wait_ms=50) as mesh:
        other.create_topic("mine", 1)
        store(other, "mine", 0, [b"r"])
        await mesh.proxy.cache.refresh()
        await left(mesh)
        assert one.asked[RequestCode.HOSTED] == 0
        one.create_topic("mine", 1)
        await mesh.proxy.cache.refresh()
        await left(mesh)
        assert one.asked[RequestCode.HOSTED] == 1
        one.resign()
        assert (await mesh.http.get(B)).json()["code"] == "no-leader"


async def test_a_topic_that_says_nothing_of_a_placement_is_placed_wherever_it_is() -> None:
    """As topics of before there were placements."""
    async with proxy_mesh(*two_groups()) as mesh:
        found = await left(mesh)
        assert (found["placed"], found["topics_left"][0]["why"]) == (1, ["placed"])


async def test_a_long_list_of_what_is_left_is_cut_and_still_counted() -> None:
    """A hundred names."""
    topics = {f"t{number:03}": 1 for number in range(120)}
    async with proxy_mesh(*two_groups(), topics=topics) as mesh:
        found = await left(mesh)
        assert (found["placed"], len(found["topics_left"])) == (120, 100)


async def test_topics_are_listed_by_where_they_are() -> None:
    """Those of every namespace that are here, or elsewhere, page by page."""
    one, other = two_groups()
    async with proxy_mesh(one, other, topics={"both": 1, "shop%both": 1}) as mesh:
        one.create_topic("there", 1)
        await mesh.proxy.cache.refresh()
        place(mesh, "both", "broker-a", before=("broker-a", "broker-b"))
        first = (await mesh.http.get(f"{B}/topics?limit=1")).json()
        assert first["topics"] == [
            {
                "namespace": "",
                "topic": "both",
                "broker_groups": ["broker-a"],
                "before": ["broker-a", "broker-b"],
                "hosts": ["broker-a", "broker-b"],
            }
        ]
        second = (await mesh.http.get(f"{B}/topics", params={"cursor": first["next_cursor"]})).json()
        assert [(row["namespace"], row["topic"]) for row in second["topics"]] == [("shop", "both")]
        assert second["next_cursor"] == ""
        others = (await mesh.http.get(f"{B}/topics?which=elsewhere")).json()["topics"]
        assert [row["topic"] for row in others] == ["there"]
        assert (await mesh.http.get(f"{B}/topics?which=all")).json()["code"] == "invalid-field"
