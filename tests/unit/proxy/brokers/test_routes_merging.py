"""How routes are merged when there are many topics: what has not changed costs nothing, and incomplete routes are soon asked for again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest

from tern_proxy.brokers.routes_cache import RoutesCache, read_routes
from tern_routing import name_servers, route_polls
from tern_routing.name_servers import NameServers
from tern_wire.errors import NoNameServer
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute, Routes, TopicRoute
from tests.support.checker.scripted_producer import Asked, ScriptedProducer, answers
from tests.support.loops import eventually

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
    """A name server: what it answers, and the tags that it was asked with."""

    def __init__(self, said: Routes) -> None:
        self.said = said
        self.asked: list[str] = []
        self.server = ScriptedProducer(self._answer)

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        tag = asked.path.partition("topics_tag=")[2]
        self.asked.append(tag)
        said = replace(self.said, topics={}, orders={}, topics_known=True) if tag == self.said.topics_tag else self.said
        return await answers(200, orjson.dumps(said))(asked, writer)


@contextlib.asynccontextmanager
async def servers_of(server: ScriptedProducer) -> AsyncIterator[NameServers[Routes]]:
    """What asks *server*, as a proxy does."""
    await server.start()
    servers = NameServers((f"http://127.0.0.1:{server.port}",), read_routes)
    try:
        yield servers
    finally:
        servers.close()
        await server.stop()


@contextlib.asynccontextmanager
async def cache_of(wire: Wire) -> AsyncIterator[RoutesCache]:
    """A cache that polls when it is told to, or while routes are incomplete."""
    async with servers_of(wire.server) as servers:
        cache = RoutesCache(servers, interval_ms=60_000, on_routes=lambda _: None)
        await cache.start()
        try:
            yield cache
        finally:
            await cache.stop()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers is waited for, on however slow a machine."""
    monkeypatch.setattr(name_servers, "TIMEOUT_S", 30)
    monkeypatch.setattr(name_servers, "ANSWER_TIMEOUT_S", 60)


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
    answer = answers(200, orjson.dumps(replace(routes(), topics_known=True)))
    async with servers_of(ScriptedProducer(answer)) as servers:
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
    monkeypatch.setattr(route_polls, "INCOMPLETE_INTERVAL_S", 0.01)
    wire = Wire(incomplete)
    async with cache_of(wire) as cache:
        await eventually(lambda: len(wire.asked) > 1, "another poll")
        wire.said = routes("orders")
        await eventually(lambda: cache.routes == wire.said, "the whole of it")
