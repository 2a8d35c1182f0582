"""A topic's route at the proxy: as the name servers told it, with leaders as links know them, and also while all name servers are away."""

import pytest

from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

pytestmark = pytest.mark.anyio
ROUTE = "/v1/topics/orders/route"


async def test_a_route_tells_queues_nodes_leaders_and_permission_of_every_group() -> None:
    """Write permission that an operator has withdrawn is not in `perm`; JSON and MessagePack say the same."""
    brokers = [MemoryBroker(KEY), MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0")]
    async with proxy_mesh(*brokers) as mesh:
        mesh.name_server.wiped = {"broker-b"}
        await mesh.proxy.cache.refresh()
        answer = await mesh.http.get(ROUTE)
        assert answer.status_code == 200, answer.text
        route = answer.json()
        assert (route["topic"], route["warm"], route["order"]) == ("orders", True, "")
        rows = [tuple(row.values()) for row in route["queue_data"]]
        assert rows == [("broker-a", 4, 4, 6), ("broker-b", 4, 4, 4)]
        groups = {name: (group["leader"], group["writable"]) for name, group in route["broker_groups"].items()}
        assert groups == {"broker-a": ("broker-a-0", True), "broker-b": ("broker-b-0", False)}
        assert route["topics"]["orders"].keys() == {"broker-a", "broker-b"}


async def test_a_route_is_known_while_all_name_servers_are_away() -> None:
    """A topic that nobody knows is not denied then; when they are back it is, with how to create it."""
    async with proxy_mesh(leader_wait_ms=10) as mesh:
        await eventually(lambda: mesh.proxy.groups["broker-a"].link.has_leader, "the leader")
        mesh.name_server.is_up = False
        known, unknown = await mesh.http.get(ROUTE), await mesh.http.get("/v1/topics/nope/route")
        assert (known.status_code, known.json()["broker_groups"]["broker-a"]["leader"]) == (200, "broker-a-0")
        assert (unknown.status_code, unknown.json()["code"]) == (503, "no-name-server")
        mesh.name_server.is_up = True
        denied = await mesh.http.get("/v1/topics/nope/route")
        assert (denied.status_code, denied.json()["code"]) == (404, "topic-not-found")
        assert "ternmq topic create nope" in denied.json()["detail"]
        assert (await mesh.http.get(f"{ROUTE}?x=1")).json()["code"] == "unknown-parameter"
