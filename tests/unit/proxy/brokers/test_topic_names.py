"""Ids of topics as verdicts carry them, turned into names: by the routes as they are now, with one look at all of them at most."""

import pytest

from tern_wire.routing.route import TopicRoute
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

pytestmark = pytest.mark.anyio


async def test_a_name_follows_the_routes() -> None:
    """Found in each broker group by its own id; a topic that came is found, one that was deleted is not, nor one under another id."""
    brokers = MemoryBroker(KEY), MemoryBroker(KEY, node="broker-b-0", broker_group="broker-b")
    async with proxy_mesh(*brokers, topics={"orders": 4, "bills": 1}, route_interval_ms=300_000) as mesh:
        names = mesh.proxy.topic_names
        mesh.name_server.forced["bills", "broker-b"] = TopicRoute(topic_id=9, queues=1)
        await mesh.proxy.cache.refresh()
        assert [names.find("broker-a", 1), names.find("broker-a", 2), names.find("broker-b", 9)] == [
            *("orders", "bills", "bills"),
        ]
        assert [names.find("broker-b", 2), names.find("broker-z", 1)] == ["", ""]
        await mesh.http.put("/v1/topics/late")
        topic_id = brokers[0].topics["late"].topic_id
        assert names.find("broker-a", topic_id) == "late"
        mesh.name_server.forced["orders", "broker-a"] = TopicRoute(topic_id=77, queues=4)
        await mesh.proxy.cache.refresh()
        assert [names.find("broker-a", 1), names.find("broker-a", 77)] == ["", "orders"]


async def test_an_id_that_nobody_knows_asks_for_routes_and_costs_no_second_look() -> None:
    """A commit's answer goes without the name; the routes are asked for."""
    async with proxy_mesh(route_interval_ms=300_000) as mesh:
        asked = mesh.name_server.asked
        assert [mesh.proxy.topic_names.find("broker-a", 5) for _ in range(3)] == ["", "", ""]
        await eventually(lambda: mesh.name_server.asked > asked, "the routes are asked for")
        assert mesh.proxy.topic_names.find("broker-a", 1) == "orders"
