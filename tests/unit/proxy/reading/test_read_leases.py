"""Read leases through the whole proxy: one lease over several broker groups, renewals, ends, and who may do what."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tern_broker.core.feature_level import READ_LEASES_LEVEL
from tern_wire.errors import OffsetExpired, StorageDamaged
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode
from tern_wire.paths import READ_LEASES_PATH, read_lease_path
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import ProxyMesh, proxy_mesh
from tests.support.proxy.two_groups import two_groups

HOUR_MS = 3_600_000
TOPICS = {"orders": 2, "payments": 1}


@asynccontextmanager
async def lease_mesh(
    *brokers: MemoryBroker, level: int = READ_LEASES_LEVEL, **settings: Any
) -> AsyncIterator[ProxyMesh]:
    """A proxy in front of broker groups whose members all know leases."""
    async with proxy_mesh(*brokers, **{"topics": TOPICS, **settings}) as mesh:
        for broker in mesh.brokers:
            broker.propose(CommandKind.RAISE, {"level": level})
        yield mesh


async def take(mesh: ProxyMesh, *topics: dict[str, Any], **fields: Any) -> httpx.Response:
    """Take a lease of *topics*, orders by default."""
    return await mesh.http.post(READ_LEASES_PATH, json={"topics": list(topics) or [{"topic": "orders"}], **fields})


async def renew(mesh: ProxyMesh, lease: str, **fields: Any) -> httpx.Response:
    """Renew a lease."""
    return await mesh.http.put(read_lease_path(lease), json=fields)


async def leases(mesh: ProxyMesh) -> list[dict[str, Any]]:
    """All that are listed."""
    answer = await mesh.http.get(READ_LEASES_PATH)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["leases"])


def held(broker: MemoryBroker) -> list[str]:
    """The leases of one broker group."""
    return list(broker.engine.state.read_leases.leases)


def drop(broker: MemoryBroker, topic: str, mins: list[int]) -> None:
    """What retention does on a full disk."""
    topic_id = broker.topics[topic].topic_id
    fields = {"index": 1, "position": 1, "term": 1, "crc": 1}
    broker.submit(CommandKind.TRIM, encode_msgpack({**fields, "mins": [[topic_id, mins]]}))


async def test_a_lease_has_a_part_in_each_broker_group_and_one_name() -> None:
    """With the ranges that are kept, and a time."""
    async with lease_mesh(*two_groups()) as mesh:
        for queue in ("broker-a:1", "broker-b:0"):
            await mesh.post(f"/v1/topics/orders/messages?queue={queue}", b"x")
        answer = await take(mesh, {"topic": "orders"}, {"topic": "payments"}, **{"for": "2h"})
        assert answer.status_code == 201, answer.text
        document = answer.json()
        assert answer.headers["location"] == read_lease_path(document["lease"])
        assert document["lease"].endswith(".broker-a.broker-b")
        assert document["leased_until"] - document["taken_at"] == 2 * HOUR_MS
        orders, payments = document["topics"]
        assert [(row["queue"], row["begin"], row["end"]) for row in orders["queues"]] == [
            ("broker-a:0", 0, 0),
            ("broker-a:1", 0, 1),
            ("broker-b:0", 0, 1),
            ("broker-b:1", 0, 0),
        ]
        assert [row["queue"] for row in payments["queues"]] == ["broker-a:0", "broker-b:0"]
        assert held(mesh.brokers[0]) == held(mesh.brokers[1]) == [document["lease"]]
        (row,) = await leases(mesh)
        assert (row["lease"], row["owner"], row["broken_by"]) == (document["lease"], "", "")
        assert row["topics"] == [
            {"topic": "orders", "queues": 4, "messages": 2},
            {"topic": "payments", "queues": 2, "messages": 0},
        ]


async def test_only_the_broker_groups_of_named_queues_take_part() -> None:
    """The others are not asked, then or later."""
    async with lease_mesh(*two_groups()) as mesh:
        answer = await take(mesh, {"topic": "orders", "begin": {"broker-b:0": 0}, "end": {"broker-b:0": 5}})
        lease = answer.json()["lease"]
        assert answer.json()["topics"] == [
            {"topic": "orders", "queues": [{"queue": "broker-b:0", "begin": 0, "end": 5}]}
        ]
        assert (held(mesh.brokers[0]), held(mesh.brokers[1])) == ([], [lease])
        assert (await renew(mesh, lease)).status_code == 200
        assert mesh.brokers[0].asked[RequestCode.RENEW_READ_LEASE] == 0


async def test_a_lease_is_renewed_and_ended() -> None:
    """After its end it is unknown, in all broker groups."""
    async with lease_mesh(*two_groups()) as mesh:
        lease = (await take(mesh, **{"for": "10m"})).json()["lease"]
        for broker in mesh.brokers:
            broker.pass_time(5 * 60_000)
        renewed = (await renew(mesh, lease, **{"for": 600_000})).json()
        assert renewed["leased_until"] - renewed["taken_at"] == 900_000
        assert (await mesh.http.delete(read_lease_path(lease))).status_code == 204
        assert held(mesh.brokers[0]) == held(mesh.brokers[1]) == []
        for again in (await renew(mesh, lease), await mesh.http.delete(read_lease_path(lease))):
            assert (again.status_code, again.json()["code"]) == (404, "read-lease-not-found")


async def test_a_lease_is_over_at_its_time() -> None:
    """By the clock of the log."""
    async with lease_mesh() as mesh:
        lease = (await take(mesh)).json()["lease"]
        mesh.broker.pass_time(HOUR_MS + 1)
        assert (await renew(mesh, lease)).json()["code"] == "read-lease-not-found"
        assert await leases(mesh) == []


async def test_a_lease_that_lost_messages_in_one_broker_group_is_broken() -> None:
    """The renewal says where; the list as well."""
    async with lease_mesh(*two_groups()) as mesh:
        await mesh.post("/v1/topics/orders/messages?queue=broker-b:0", b"x")
        lease = (await take(mesh)).json()["lease"]
        drop(mesh.brokers[1], "orders", [1, 0])
        broken = await renew(mesh, lease)
        assert (broken.status_code, broken.json()["code"]) == (410, "read-lease-broken")
        assert "queue 0 of topic 'orders'" in broken.json()["detail"]
        (row,) = await leases(mesh)
        assert "retention has dropped" in row["broken_by"]


async def test_what_retention_has_overtaken_already_cannot_be_leased() -> None:
    """The other broker group keeps nothing for it."""
    async with lease_mesh(*two_groups()) as mesh:
        for _ in range(3):
            await mesh.post("/v1/topics/orders/messages?queue=broker-b:0", b"x")
        drop(mesh.brokers[1], "orders", [2, 0])
        late = await take(mesh, {"topic": "orders", "begin": {"broker-a:0": 0, "broker-b:0": 1}})
        assert (late.status_code, late.json()["code"]) == (410, OffsetExpired.code)
        assert late.json()["min_offset"] == 2
        assert held(mesh.brokers[0]) == held(mesh.brokers[1]) == []


async def test_a_failed_lease_leaves_no_part_behind() -> None:
    """It would hold segments for an hour that nobody reads."""
    async with lease_mesh(*two_groups()) as mesh:
        mesh.brokers[1].script(RequestCode.TAKE_READ_LEASE, StorageDamaged(node="broker-b-0", broker_group="broker-b"))
        assert (await take(mesh)).json()["code"] == "storage-damaged"
        assert held(mesh.brokers[0]) == []


async def test_a_lease_outlives_its_proxy_and_its_leader() -> None:
    """Another proxy renews it: everything that it needs is in the name."""
    brokers = two_groups()
    async with lease_mesh(*brokers) as mesh:
        lease = (await take(mesh)).json()["lease"]
        mesh.brokers[0].resign()
        mesh.brokers[0].lead()
        async with lease_mesh(topics={}) as other:
            assert (await renew(other, lease)).json()["code"] == "read-lease-not-found", "another cluster"
        assert (await renew(mesh, lease)).status_code == 200


async def test_while_a_group_is_upgraded_leases_wait() -> None:
    """A member of the release before could not apply them."""
    async with lease_mesh() as mesh:
        mesh.broker.stay_at_level(1)
        answer = await take(mesh)
        assert (answer.status_code, answer.json()["code"]) == (503, "upgrade-unfinished")
        assert "broker-a" in answer.json()["detail"]


async def test_namespaces_do_not_see_each_others_leases() -> None:
    """Nor can one renew another's by its name."""
    async with lease_mesh() as mesh:
        mesh.broker.create_topic("shop%orders", 1)
        await mesh.proxy.cache.refresh()
        shop = {"MQ-Namespace": "shop"}
        body = {"topics": [{"topic": "orders"}]}
        own = (await mesh.http.post(READ_LEASES_PATH, json=body, headers=shop)).json()
        assert [topic["topic"] for topic in own["topics"]] == ["orders"]
        assert await leases(mesh) == []
        assert len((await mesh.http.get(READ_LEASES_PATH, headers=shop)).json()["leases"]) == 1
        assert (await renew(mesh, own["lease"])).json()["code"] == "read-lease-not-found"
        assert (await mesh.http.put(read_lease_path(own["lease"]), json={}, headers=shop)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({"topics": []}, "invalid-field", "/topics"),
        ({"topics": [{"topic": "orders"}, {"topic": "orders"}]}, "invalid-field", "/topics/1"),
        ({"topics": [{"topic": "nowhere"}]}, "topic-not-found", ""),
        ({"topics": [{"topic": "orders", "begin": {"broker-a:7": 0}}]}, "queue-not-found", ""),
        (
            {"topics": [{"topic": "orders", "begin": {"broker-a:0": 5}, "end": {"broker-a:0": 4}}]},
            "invalid-field",
            "/topics/0/end/broker-a:0",
        ),
        ({"topics": [{"topic": "orders"}], "for": "25h"}, "invalid-field", "/for"),
        ({"topics": [{"topic": "orders"}], "for": 999}, "invalid-field", "/for"),
        ({"topics": [{"topic": "orders"}], "for": "soon"}, "invalid-field", "/for"),
        ({"topics": [{"topic": "orders"}], "duration": "1h"}, "unknown-field", ""),
    ],
)
async def test_what_is_no_lease_is_refused(fields: dict[str, Any], code: str, pointer: str) -> None:
    """With the place of the fault."""
    async with lease_mesh() as mesh:
        answer = await mesh.http.post(READ_LEASES_PATH, json=fields)
        assert answer.json()["code"] == code, answer.text
        assert not pointer or answer.json()["pointer"] == pointer
        assert held(mesh.broker) == []


@pytest.mark.parametrize("lease", ["x", "5b1f0c9a7e2d4c3b8a190f6e", "5b1f0c9a7e2d4c3b8a190f6e.broker-z", "a" * 300])
async def test_a_name_that_is_none_is_unknown(lease: str) -> None:
    """Whatever broker groups it names."""
    async with lease_mesh(leader_wait_ms=50) as mesh:
        assert (await renew(mesh, lease)).json()["code"] == "read-lease-not-found"


async def test_times_are_those_of_the_group() -> None:
    """A reader renews by what the answer says."""
    async with lease_mesh() as mesh:
        document = (await take(mesh)).json()
        assert abs(document["taken_at"] - NOW_MS) < 1_000
