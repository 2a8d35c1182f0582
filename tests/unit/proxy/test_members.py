"""Members, assignments and locks at a proxy in front of two broker groups: who is told what, and what an absent one changes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tern_wire.errors import GroupNotFound
from tern_wire.link.requests import RequestCode
from tests.support.broker.contents import delete_group
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh, proxy_mesh

pytestmark = pytest.mark.anyio
QUEUES = [f"{group}:{number}" for group in ("broker-a", "broker-b") for number in range(4)]


@asynccontextmanager
async def two_groups() -> AsyncIterator[ProxyMesh]:
    """broker-a and broker-b, each with four queues of `orders`."""
    brokers = (
        MemoryBroker(KEY, broker_group="broker-a", node="broker-a-0"),
        MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0"),
    )
    async with proxy_mesh(*brokers, leader_wait_ms=50) as mesh:
        # So short a wait is for a leader that is gone: on a busy machine the first links take longer.
        groups = mesh.proxy.groups
        await eventually(lambda: len(groups) == 2 and all(each.link.has_leader for each in groups.values()), "links")
        yield mesh


async def beat(mesh: ProxyMesh, member: str, filter_text: str = "*", **more: Any) -> dict[str, Any]:
    """A heartbeat of *member*, which consumes `orders`; the answer."""
    document = {"member": member, "subscriptions": {"orders": filter_text}, **more}
    answer = await mesh.http.post("/v1/groups/billing/members/heartbeat", json=document)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def assigned(mesh: ProxyMesh, query: str = "") -> dict[str, Any]:
    """Who reads what of `orders`."""
    found: dict[str, Any] = (await mesh.http.get(f"/v1/groups/billing/assignments?topic=orders{query}")).json()
    return found


async def test_a_heartbeat_goes_to_every_broker_group_and_the_queues_of_all_are_divided_once() -> None:
    """Two members, eight queues in two groups: four each, not two of each group."""
    async with two_groups() as mesh:
        assert (await beat(mesh, "m1"))["joined"]
        second = await beat(mesh, "m2")
        assert (second["members"], second["missed"], second["subscription_conflict"]) == (2, {}, [])
        for broker in mesh.brokers:
            assert broker.asked[RequestCode.MEMBERS] == 2
        found = await assigned(mesh)
        assert found["assignments"] == {"m1": QUEUES[:4], "m2": QUEUES[4:]}
        assert (found["strategy"], found["unassigned"]) == ("averagely", [])
        assert found["generation"] == second["generation"]
        circle = await assigned(mesh, "&strategy=averagely-by-circle&member=m1")
        assert circle["assignments"] == {"m1": QUEUES[::2]}


async def test_a_broker_group_without_a_leader_is_missed_and_the_other_one_answers() -> None:
    """Whichever is asked first: heartbeats, members and assignments go on; locks of its queues do not."""
    for gone in (0, 1):
        async with two_groups() as mesh:
            await beat(mesh, "m1")
            mesh.brokers[gone].resign()
            name = mesh.brokers[gone].broker_group
            assert (await beat(mesh, "m1"))["missed"] == {name: "no-leader"}
            assert (await assigned(mesh))["assignments"] == {"m1": QUEUES}
            members = (await mesh.http.get("/v1/groups/billing/members")).json()
            assert [member["member"] for member in members["members"]] == ["m1"]
            locks = await mesh.http.post(
                "/v1/groups/billing/locks", json={"topic": "orders", "member": "m1", "queues": QUEUES}
            )
            assert set(locks.json()["missed"]) == {queue for queue in QUEUES if queue.startswith(name)}
            assert set(locks.json()["locked"]) == {queue for queue in QUEUES if not queue.startswith(name)}


async def test_when_no_broker_group_takes_it_the_error_is_the_answer() -> None:
    """503 while there is no leader, 404 when nobody has the group; one group that lacks it is only missed."""
    async with two_groups() as mesh:
        for broker in mesh.brokers:
            delete_group(broker, "billing")
        answer = await mesh.http.post("/v1/groups/billing/members/heartbeat", json={"member": "m1"})
        assert (answer.status_code, answer.json()["code"]) == (404, "group-not-found")
        assert (await mesh.http.get("/v1/groups/billing/assignments?topic=orders")).status_code == 404
        mesh.brokers[0].create_group("billing")
        assert (await beat(mesh, "m1"))["missed"] == {"broker-b": GroupNotFound.code}
        for broker in mesh.brokers:
            broker.resign()
        answer = await mesh.http.post("/v1/groups/billing/members/heartbeat", json={"member": "m1"})
        assert (answer.status_code, answer.json()["code"]) == (503, "no-leader")
        assert "retry-after" in answer.headers


async def test_filters_that_mean_the_same_are_no_conflict() -> None:
    """Order, repeats and blanks of tags; the prefix `tags:`; spaces in SQL. Another filter is one, and it is told who says what."""
    async with two_groups() as mesh:
        await beat(mesh, "m1", "B||A || A")
        assert (await beat(mesh, "m2", "tags:A || B"))["subscription_conflict"] == []
        assert (await beat(mesh, "m3", "sql:price>5"))["subscription_conflict"] == ["orders"]
        members = (await mesh.http.get("/v1/groups/billing/members")).json()
        (conflict,) = members["subscription_conflict"]
        assert [said["members"] for said in conflict["filters"]] == [["m1", "m2"], ["m3"]]
        assert members["members"][0]["subscriptions"] == {"orders": "tags:A || B"}
        await beat(mesh, "m1", "sql:  price > 5 ")
        gone = await mesh.http.delete("/v1/groups/billing/members/m2")
        assert gone.json() == {"group": "billing", "member": "m2", "left": True, "missed": {}}
        members = (await mesh.http.get("/v1/groups/billing/members")).json()
        assert members["subscription_conflict"] == []


async def test_producers_need_no_group_to_be_declared() -> None:
    """A producer group is whoever says so."""
    async with two_groups() as mesh:
        answer = await mesh.http.post(
            "/v1/groups/shop/members/heartbeat",
            json={"member": "p1", "role": "producer", "subscriptions": {"orders": "*"}},
        )
        assert answer.json()["role"] == "producer"
        members = (await mesh.http.get("/v1/groups/shop/members?role=producer")).json()["members"]
        assert [member["member"] for member in members] == ["p1"]
        assert (await mesh.http.delete("/v1/groups/shop/members/p1?role=producer")).json()["left"]
        assert not (await mesh.http.delete("/v1/groups/shop/members/p1?role=producer")).json()["left"]


async def test_locks_are_taken_where_the_queues_are_and_told_apart() -> None:
    """Locked, held by another, shown, given up; by default all of the topic."""
    async with two_groups() as mesh:
        await beat(mesh, "m1")
        await beat(mesh, "m2")
        path = "/v1/groups/billing/locks"
        first = await mesh.http.post(
            path, json={"topic": "orders", "member": "m1", "queues": ["broker-a:0", "broker-b:3"]}
        )
        assert set(first.json()["locked"]) == {"broker-a:0", "broker-b:3"}
        second = (
            await mesh.http.post(path, json={"topic": "orders", "member": "m2", "queues": ["broker-b:3", "broker-b:2"]})
        ).json()
        assert (second["held"], set(second["locked"])) == ({"broker-b:3": "m1"}, {"broker-b:2"})
        shown = (await mesh.http.get(f"{path}?topic=orders")).json()["locks"]
        assert {queue: lock["member"] for queue, lock in shown.items()} == {
            "broker-a:0": "m1",
            "broker-b:2": "m2",
            "broker-b:3": "m1",
        }
        one = await mesh.http.delete(f"{path}?topic=orders&member=m1&queues=broker-b:3,broker-b:2")
        assert one.json()["unlocked"] == ["broker-b:3"]
        rest = await mesh.http.delete(f"{path}?topic=orders&member=m1")
        assert rest.json()["unlocked"] == ["broker-a:0"]
        await mesh.http.delete("/v1/groups/billing/members/m2")
        assert (await mesh.http.get(f"{path}?topic=orders")).json()["locks"] == {}


@pytest.mark.parametrize(
    ("method", "path", "document", "status", "code"),
    [
        ("POST", "billing/members/heartbeat", {}, 400, "invalid-field"),
        ("POST", "billing/members/heartbeat", {"member": "no spaces"}, 400, "illegal-member"),
        ("POST", "billing/members/heartbeat", {"member": "m", "role": "king"}, 400, "invalid-field"),
        ("POST", "billing/members/heartbeat", {"member": "m", "strategy": "by-luck"}, 400, "invalid-field"),
        ("POST", "billing/members/heartbeat", {"member": "m", "room": "a--b"}, 400, "invalid-field"),
        ("POST", "billing/members/heartbeat", {"member": "m", "version": "v" * 65}, 400, "invalid-field"),
        ("POST", "billing/members/heartbeat", {"member": "m", "colour": "red"}, 400, "unknown-field"),
        ("POST", "billing/members/heartbeat", {"member": "m", "subscriptions": {"a.b": "*"}}, 400, "illegal-topic"),
        ("POST", "billing/members/heartbeat", {"member": "m", "subscriptions": {"t": 3}}, 400, "invalid-field"),
        ("POST", "billing/members/heartbeat", {"member": "m", "subscriptions": {"t": "a|b"}}, 400, "illegal-filter"),
        (
            "POST",
            "billing/members/heartbeat",
            {"member": "m", "subscriptions": {"t": "sql:a >"}},
            400,
            "illegal-filter",
        ),
        ("POST", "billing/members/heartbeat", {"member": "m", "queues": {"t": ["first"]}}, 404, "queue-not-found"),
        (
            "POST",
            "billing/members/heartbeat",
            {"member": "m", "subscriptions": {f"t{number}": "*" for number in range(65)}},
            400,
            "invalid-field",
        ),
        (
            "POST",
            "billing/members/heartbeat",
            {"member": "m", "subscriptions": {f"t{number}": "t" * 255 + " || " + "u" * 255 for number in range(64)}},
            400,
            "invalid-field",
        ),
        ("POST", "a b/members/heartbeat", {"member": "m"}, 400, "illegal-group"),
        ("GET", "billing/members?role=king", None, 400, "invalid-field"),
        ("GET", "none/members", None, 404, "group-not-found"),
        ("DELETE", "billing/members/no%20spaces", None, 400, "illegal-member"),
        ("GET", "billing/assignments", None, 400, "invalid-field"),
        ("GET", "billing/assignments?topic=none", None, 404, "topic-not-found"),
        ("GET", "billing/assignments?topic=orders&strategy=by-luck", None, 400, "invalid-field"),
        ("GET", "billing/assignments?topic=orders&member=nobody", None, 404, "member-not-found"),
        ("POST", "billing/locks", {"topic": "orders", "member": "m1", "queues": []}, 400, "invalid-field"),
        (
            "POST",
            "billing/locks",
            {"topic": "orders", "member": "m1", "queues": ["broker-a:9"]},
            404,
            "queue-not-found",
        ),
        ("POST", "billing/locks", {"topic": "none", "member": "m1", "queues": ["broker-a:0"]}, 404, "topic-not-found"),
        (
            "POST",
            "billing/locks",
            {"topic": "orders", "member": "nobody", "queues": ["broker-a:0"]},
            404,
            "member-not-found",
        ),
        ("POST", "none/locks", {"topic": "orders", "member": "m1", "queues": ["broker-a:0"]}, 404, "group-not-found"),
        ("DELETE", "billing/locks?topic=orders", None, 400, "invalid-field"),
        ("DELETE", "billing/locks?topic=orders&member=m1&queues=", None, 404, "queue-not-found"),
    ],
)
async def test_bad_input_is_refused_and_changes_nothing(
    method: str, path: str, document: dict[str, Any] | None, status: int, code: str
) -> None:
    """A problem with a stable code; the members and locks stay as they were."""
    async with two_groups() as mesh:
        await beat(mesh, "m1")
        before = [broker.engine.state.clients.pack() for broker in mesh.brokers]
        answer = await mesh.http.request(method, f"/v1/groups/{path}", json=document)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert len(answer.json()["detail"]) > 20
        assert [broker.engine.state.clients.pack() for broker in mesh.brokers] == before
