"""Routes: when a topic is not found, when nobody knows yet, when nobody answers; coalesced polls; name servers over HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest

from tern_proxy.app import build_app
from tern_proxy.brokers.routes_cache import RoutesCache
from tern_proxy.proxy import Proxy
from tern_service.cluster_key import read_cluster_key
from tern_wire.errors import NoNameServer, TernError, TopicNotFound
from tern_wire.limits import GONE_GROUP_KEPT_MS
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute, Routes, TopicRoute
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import KEY, FixedClock, proxy_mesh

pytestmark = pytest.mark.anyio
ONE, RECEIVE = "/v1/topics/orders/messages", "/v1/topics/orders/groups/billing/receive"


@pytest.mark.parametrize(
    ("is_up", "is_warm", "status", "code"),
    [
        (True, True, 404, "topic-not-found"),
        (True, False, 503, "warming-up"),
        (False, True, 503, "no-name-server"),
    ],
)
async def test_an_unknown_topic_is_not_found_only_if_a_warm_name_server_says_so(
    is_up: bool, is_warm: bool, status: int, code: str
) -> None:
    """Otherwise the answer is to come again."""
    async with proxy_mesh() as mesh:
        mesh.name_server.is_up, mesh.name_server.is_warm = is_up, is_warm
        answer = await mesh.http.post("/v1/topics/nope/messages")
        assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_proxy_that_never_reached_a_name_server_says_so_everywhere() -> None:
    """503 no-name-server for sends, receives, admin and the cluster; not ready; and it recovers by itself."""
    async with proxy_mesh(route_interval_ms=100) as mesh:
        mesh.name_server.is_up = False
        mesh.proxy.cache.routes, mesh.proxy.cache.topics = None, {}
        mesh.proxy.groups.clear()
        for method, path in (("POST", ONE), ("PUT", "/v1/topics/a"), ("PUT", "/v1/groups/a"), ("GET", "/v1/cluster")):
            answer = await mesh.http.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (503, "no-name-server"), path
            assert answer.headers["retry-after"]
        assert (await mesh.http.get("/readyz")).status_code == 503
        mesh.proxy.cache._last = b""
        mesh.name_server.is_up = True
        await eventually(lambda: mesh.proxy.readiness()[0], "readiness")
        await mesh.send()


async def test_known_topics_are_served_without_a_name_server() -> None:
    """Stale routes serve on."""
    async with proxy_mesh() as mesh:
        mesh.name_server.is_up = False
        await mesh.proxy.cache.refresh()
        await mesh.send()


async def test_a_topic_made_elsewhere_is_found_by_one_poll() -> None:
    """An unknown name asks the name server once, at once, however many ask for it."""
    async with proxy_mesh(route_interval_ms=60_000) as mesh:
        mesh.broker.create_topic("fresh", 2)
        asked = mesh.name_server.asked
        answers = await asyncio.gather(*(mesh.post("/v1/topics/fresh/messages", b"x") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {201}
        assert mesh.name_server.asked <= asked + 2


class Said:
    """Name servers that answer with the last of *answers*."""

    endpoints = "scripted"

    def __init__(self, *answers: Routes) -> None:
        self.answers = list(answers)

    async def fetch(self) -> tuple[bytes, Routes]:
        """The newest answer."""
        return repr(self.answers[-1]).encode(), self.answers[-1]


@contextlib.asynccontextmanager
async def cache_of(said: Said) -> AsyncIterator[RoutesCache]:
    """A cache that polls only when it is told to."""
    cache = RoutesCache(said, interval_ms=60_000, on_routes=lambda _: None)
    await cache.start()
    try:
        yield cache
    finally:
        await cache.stop()


def routes(*topics: str, leader: str = "a-0", warm: bool = True, broker_group: str = "a") -> Routes:
    """One broker group with these topics; without a leader it has no nodes either."""
    nodes = {leader: NodeRoute(link="127.0.0.1:1", http="127.0.0.1:2")} if leader else {}
    return Routes(
        cluster="test",
        warm=warm,
        broker_groups={broker_group: BrokerGroupRoute(nodes=nodes, leader=leader, term=0)},
        topics={topic: {broker_group: TopicRoute(topic_id=1, queues=2)} for topic in topics},
    )


async def test_a_created_topic_outlives_routes_that_do_not_know_it_yet() -> None:
    """Until they know it: then it is as any other."""
    said = Said(routes())
    async with cache_of(said) as cache:
        cache.insert("made", "a", TopicRoute(topic_id=1, queues=2))
        assert len((await cache.topic("made")).broker_groups["a"]) == 2
        await cache.refresh()
        assert "made" in cache.topics
        said.answers.append(routes("made"))
        turn = cache.topics["made"].take_turn()
        await cache.refresh()
        assert cache.topics["made"].turn == turn
        said.answers.append(routes())
        await cache.refresh()
        assert "made" not in cache.topics
        with pytest.raises(TopicNotFound):
            await cache.topic("made")


async def test_a_created_topic_whose_leader_died_before_it_told_anybody_is_remembered() -> None:
    """The routes from before its creation forget it only when somebody leads the group."""
    said = Said(routes("orders"))
    async with cache_of(said) as cache:
        cache.insert("made", "a", TopicRoute(topic_id=2, queues=2))
        cache._created.clear()  # as when its time is over
        for answer, is_known in (
            (routes("orders", leader=""), True),
            (Routes(cluster="test", warm=True), True),
            (routes("orders"), False),
        ):
            said.answers.append(answer)
            await cache.refresh()
            assert ("made" in cache.topics) is is_known
            assert "orders" in cache.topics


@pytest.mark.parametrize(
    ("answer", "is_known"),
    [
        (routes("other"), False),
        (routes("other", warm=False), True),
        (routes("other", leader=""), True),
        (routes("other", broker_group="b"), True),
        (Routes(cluster="test", warm=True), True),
    ],
    ids=["led", "cold", "leaderless", "unnamed", "empty"],
)
async def test_a_topic_goes_only_when_routes_name_its_leader_and_not_the_topic(answer: Routes, is_known: bool) -> None:
    """A name server that has just started, or lost sight of the group, forgets nothing on our behalf; also not after other answers."""
    said = Said(routes("orders"))
    async with cache_of(said) as cache:
        turn = cache.topics["orders"].take_turn()
        said.answers.append(answer)
        await cache.refresh()
        assert ("orders" in cache.topics) is is_known
        if is_known:
            assert cache.topics["orders"].turn == turn
            for following in (Routes(cluster="test", warm=False), Routes(cluster="test", warm=True)):
                said.answers.append(following)
                await cache.refresh()
                assert (await cache.topic("orders")).broker_groups.keys() == {"a"}
            said.answers.append(routes())
            await cache.refresh()
        with pytest.raises(TopicNotFound):
            await cache.topic("orders")


async def test_a_broker_group_that_no_routes_name_is_forgotten_after_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the routes do not change any more."""
    said = Said(routes("orders"))
    at_ms = 0
    monkeypatch.setattr("tern_proxy.brokers.routes_cache._now_ms", lambda: at_ms)
    async with cache_of(said) as cache:
        said.answers.append(routes("other", broker_group="b"))
        for at_ms, is_known in ((1, True), (1 + GONE_GROUP_KEPT_MS, True), (2 + GONE_GROUP_KEPT_MS, False)):  # noqa: B007 - read above
            await cache.refresh()
            assert ("orders" in cache.topics) is is_known
        assert "other" in cache.topics


async def test_a_broker_group_that_only_the_name_server_lost_is_served_and_a_dead_one_is_waited_for() -> None:
    """Links outlive routes; without them the answer is to come again, and never that the topic does not exist."""
    async with proxy_mesh(leader_wait_ms=10) as mesh:
        link = mesh.proxy.groups["broker-a"].link
        await eventually(lambda: link.has_leader, "a link to the leader")
        mesh.name_server.brokers = []
        await mesh.proxy.cache.refresh()
        await mesh.send()
        await mesh.broker.server.stop()
        await eventually(lambda: not link.has_leader, "the loss of the leader")
        for method, path in (("POST", ONE), ("POST", RECEIVE), ("GET", "/v1/topics/orders/offsets")):
            answer = await mesh.http.request(method, path)
            assert (answer.status_code, answer.json()["code"]) == (503, "no-leader"), path
            assert int(answer.headers["retry-after"]) >= 1


async def test_a_proxy_that_starts_while_a_broker_group_is_gone_says_that_nobody_leads_it() -> None:
    """The name server remembers its topics; nodes that register are dialled then."""
    async with proxy_mesh(leader_wait_ms=10) as other:
        said = Said(routes("orders", leader="", broker_group="broker-a"))
        proxy = Proxy(
            cluster_key=KEY, name_servers=said, clock=FixedClock(), leader_wait_ms=10, route_interval_ms=60_000
        )
        transport = httpx.ASGITransport(app=build_app(proxy))
        await proxy.start()
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as http:
                answer = await http.post(ONE, content=b"x")
                assert (answer.status_code, answer.json()["code"]) == (503, "no-leader")
                assert int(answer.headers["retry-after"]) >= 1
                assert (await http.post("/v1/topics/nope/messages", content=b"x")).status_code == 404
                said.answers.append((await other.name_server.fetch())[1])
                await proxy.cache.refresh()
                link = proxy.groups["broker-a"].link
                await eventually(lambda: link.has_leader, "a link to the leader")
                assert (await http.post(ONE, content=b"x")).status_code == 201
                said.answers.append(said.answers[0])
                await proxy.cache.refresh()
                assert link.has_leader, "gone for the name server, and still there for this proxy"
        finally:
            await proxy.stop()


async def test_a_poll_asks_broker_groups_that_have_a_leader_first() -> None:
    """What they have does not wait for a group that is gone."""
    brokers = [MemoryBroker(KEY), MemoryBroker(KEY, broker_group="broker-b", node="broker-b-0")]
    async with proxy_mesh(*brokers) as mesh:
        groups = mesh.proxy.groups
        await eventually(lambda: all(group.link.has_leader for group in groups.values()), "both leaders")
        topic = await mesh.proxy.topic("orders")
        first = {mesh.proxy.rotated(topic)[0].link.broker_group for _ in range(2)}
        assert first == {"broker-a", "broker-b"}
        await brokers[0].server.stop()
        await eventually(lambda: not groups["broker-a"].link.has_leader, "the loss of a leader")
        for _ in range(2):
            assert [group.link.broker_group for group in mesh.proxy.rotated(topic)] == ["broker-b", "broker-a"]


async def test_stopping_while_a_poll_is_wanted_does_not_hang() -> None:
    """A cancellation that comes together with the wish for a poll is not lost."""
    for _ in range(50):
        async with proxy_mesh(topics={}) as mesh:
            mesh.proxy.cache.refresh_soon()


def test_the_cluster_key_must_be_private_and_whole(tmp_path: object) -> None:
    """Each refusal names the file and the fix."""
    path = tmp_path / "key"  # type: ignore[operator]
    with pytest.raises(ValueError, match="cannot be read"):
        read_cluster_key(path)
    path.write_bytes(bytes(31))
    path.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        read_cluster_key(path)
    path.chmod(0o600)
    with pytest.raises(ValueError, match="31 bytes"):
        read_cluster_key(path)
    path.write_bytes(bytes(32))
    assert read_cluster_key(path) == bytes(32)
    assert issubclass(NoNameServer, TernError)
