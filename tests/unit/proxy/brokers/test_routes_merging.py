"""How routes are merged when there are many topics: what has not changed costs nothing, and incomplete routes are soon asked for again."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import orjson
import pytest

from tern_proxy.brokers import routes_cache
from tern_proxy.brokers.routes_cache import HttpNameServers, RoutesCache
from tern_wire.errors import NoNameServer
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute, Routes, TopicRoute
from tests.support.proxy.proxy_mesh import eventually

pytestmark = pytest.mark.anyio


def routes(*topics: str, leader: str = "a-0", tag: str = "t1", warm: bool = True) -> Routes:
    """Broker group a with two nodes, led by *leader*, and these topics."""
    nodes = {name: NodeRoute(link="127.0.0.1:1", http="127.0.0.1:2") for name in ("a-0", "a-1")}
    return Routes(
        cluster="test",
        warm=warm,
        broker_groups={"a": BrokerGroupRoute(nodes=nodes, leader=leader, term=1)},
        topics={topic: {"a": TopicRoute(topic_id=1, queues=2)} for topic in topics},
        orders=dict.fromkeys(topics, "a:2"),
        topics_tag=tag,
    )


class Wire:
    """A name server behind httpx: what it answers, and the tags that it was asked with."""

    def __init__(self, said: Routes) -> None:
        self.said = said
        self.asked: list[str] = []
        self.servers = HttpNameServers(("http://one",), httpx.AsyncClient(transport=httpx.MockTransport(self._answer)))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        tag = request.url.params.get("topics_tag", "")
        self.asked.append(tag)
        said = replace(self.said, topics={}, orders={}, topics_known=True) if tag == self.said.topics_tag else self.said
        return httpx.Response(200, content=orjson.dumps(said))


@contextlib.asynccontextmanager
async def cache_of(wire: Wire) -> AsyncIterator[RoutesCache]:
    """A cache that polls when it is told to, or while routes are incomplete."""
    cache = RoutesCache(wire.servers, interval_ms=60_000, on_routes=lambda _: None)
    await cache.start()
    try:
        yield cache
    finally:
        await cache.stop()


async def test_a_new_leader_touches_no_topic() -> None:
    """They are neither sent nor merged again: the table is the same object."""
    wire = Wire(routes("orders", "bills"))
    async with cache_of(wire) as cache:
        before = cache.topics
        wire.said = routes("orders", "bills", leader="a-1")
        await cache.refresh()
        assert wire.asked == ["", "t1"]
        assert cache.routes is not None
        assert cache.routes.broker_groups["a"].leader == "a-1"
        assert cache.routes.topics.keys() == cache.routes.orders.keys() == {"orders", "bills"}
        assert cache.topics is before
        wire.said = routes("orders", tag="t2")
        await cache.refresh()
        assert cache.topics.keys() == {"orders"}
        assert cache.topics["orders"] is before["orders"]


async def test_a_leader_that_is_back_takes_topics_away_that_its_absence_had_kept() -> None:
    """The topics that the name server knows are the same as before; what has changed is that they may be believed."""
    wire = Wire(routes("orders", "bills"))
    async with cache_of(wire) as cache:
        wire.said = routes("orders", leader="", tag="t2")
        await cache.refresh()
        assert cache.topics.keys() == {"orders", "bills"}
        wire.said = routes("orders", tag="t2")
        await cache.refresh()
        assert wire.asked[-1] == "t2"
        assert cache.topics.keys() == {"orders"}


async def test_a_name_server_that_leaves_out_what_was_never_read_is_not_believed() -> None:
    """Its answer would be an empty table."""
    answer = httpx.Response(200, content=orjson.dumps(replace(routes(), topics_known=True)))
    servers = HttpNameServers(("http://one",), httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answer)))
    with pytest.raises(NoNameServer):
        await servers.fetch()


async def test_a_created_topic_touches_no_other() -> None:
    """However many there are; a later merge keeps it until the name servers know it."""
    wire = Wire(routes(*(f"t{number}" for number in range(100))))
    async with cache_of(wire) as cache:
        before = dict(cache.topics)
        cache.insert("made", "a", TopicRoute(topic_id=9, queues=3))
        cache.insert("made", "b", TopicRoute(topic_id=9, queues=2))
        assert {name: len(queues) for name, queues in cache.topics["made"].broker_groups.items()} == {"a": 3, "b": 2}
        assert {name: topic for name, topic in cache.topics.items() if name != "made"} == before
        wire.said = routes(*(f"t{number}" for number in range(100)), leader="a-1")
        await cache.refresh()
        assert {name: len(queues) for name, queues in cache.topics["made"].broker_groups.items()} == {"a": 3, "b": 2}


@pytest.mark.parametrize(
    "incomplete", [routes("orders", warm=False), routes("orders", leader="")], ids=["cold", "not led"]
)
async def test_incomplete_routes_are_soon_asked_for_again(incomplete: Routes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the interval is a minute: a proxy that starts before its brokers is ready soon after them."""
    monkeypatch.setattr(routes_cache, "INCOMPLETE_INTERVAL_S", 0.01)
    wire = Wire(incomplete)
    async with cache_of(wire) as cache:
        await eventually(lambda: len(wire.asked) > 1, "another poll")
        wire.said = routes("orders")
        await eventually(lambda: cache.routes == wire.said, "the whole of it")
