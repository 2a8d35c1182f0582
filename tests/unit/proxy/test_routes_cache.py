"""Routes: when a topic is not found, when nobody knows yet, when nobody answers; coalesced polls; name servers over HTTP."""

import asyncio

import httpx
import orjson
import pytest

from tern_proxy.config import read_cluster_key
from tern_proxy.routes_cache import HttpNameServers, RoutesCache
from tern_wire.errors import NoNameServer, TernError
from tern_wire.route import BrokerGroupRoute, Routes, TopicRoute
from tests.support.proxy_mesh import eventually, proxy_mesh

pytestmark = pytest.mark.anyio
ONE = "/v1/topics/orders/messages"


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


async def test_a_created_topic_outlives_routes_that_do_not_know_it_yet() -> None:
    """And a cold name server's empty table removes nothing."""
    answers = [Routes(cluster="t", warm=True, broker_groups={"a": _group()})]

    class Scripted:
        endpoints = "scripted"

        async def fetch(self) -> tuple[bytes, Routes]:
            """The newest answer."""
            return repr(answers[-1]).encode(), answers[-1]

    heard: list[Routes] = []
    cache = RoutesCache(Scripted(), interval_ms=60_000, on_routes=heard.append)
    await cache.start()
    try:
        cache.insert("made", "a", TopicRoute(topic_id=1, queues=2))
        assert len((await cache.topic("made")).broker_groups["a"]) == 2
        await cache.refresh()
        assert "made" in cache.topics
        known = {"made": {"a": TopicRoute(topic_id=1, queues=2)}}
        answers.append(Routes(cluster="t", warm=True, broker_groups={"a": _group()}, topics=known))
        turn = cache.topics["made"].take_turn()
        await cache.refresh()
        assert cache.topics["made"].turn == turn
        answers.append(Routes(cluster="t", warm=False, broker_groups={"a": _group()}))
        await cache.refresh()
        assert "made" in cache.topics
        answers.append(Routes(cluster="t", warm=True, broker_groups={"a": _group()}))
        await cache.refresh()
        assert "made" not in cache.topics
    finally:
        await cache.stop()


def _group() -> BrokerGroupRoute:
    return BrokerGroupRoute(nodes={}, leader="", term=0)


async def test_stopping_while_a_poll_is_wanted_does_not_hang() -> None:
    """A cancellation that comes together with the wish for a poll is not lost."""
    for _ in range(50):
        async with proxy_mesh(topics={}) as mesh:
            mesh.proxy.cache.refresh_soon()


# Over HTTP --------------------------------------------------------------------------------------------------------
def routes_json(warm: bool) -> bytes:
    """A routes document as a name server writes it."""
    return orjson.dumps(
        {
            "cluster": "t",
            "warm": warm,
            "broker_groups": {"a": {"nodes": {"a-0": {"link": "h:1", "http": "h:2"}}, "leader": "a-0", "term": 3}},
            "topics": {"orders": {"a": {"topic_id": 1, "queues": 4}}},
        }
    )


def name_servers(answers: dict[str, httpx.Response | Exception], log: list[httpx.Request]) -> HttpNameServers:
    """Name servers by host that answer so."""

    def handle(request: httpx.Request) -> httpx.Response:
        log.append(request)
        answer = answers[request.url.host]
        if isinstance(answer, Exception):
            raise answer
        return answer

    client = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    return HttpNameServers(tuple(f"http://{host}/" for host in answers), client)


async def test_the_first_warm_name_server_is_asked_first_from_then_on() -> None:
    """Dead, broken and cold ones are passed over."""
    log: list[httpx.Request] = []
    servers = name_servers(
        {
            "dead": httpx.ConnectError("refused"),
            "broken": httpx.Response(200, content=b"<html>"),
            "failing": httpx.Response(500),
            "cold": httpx.Response(200, content=routes_json(False)),
            "warm": httpx.Response(200, content=routes_json(True)),
        },
        log,
    )
    _, routes = await servers.fetch()
    assert (routes.warm, routes.topics["orders"]["a"].queues) == (True, 4)
    assert [request.url.host for request in log] == ["dead", "broken", "failing", "cold", "warm"]
    await servers.fetch()
    assert log[-1].url.host == "warm"


async def test_a_cold_answer_is_better_than_none_and_none_is_an_error() -> None:
    """Warm False is passed on; NoNameServer names them all."""
    _, routes = await name_servers({"cold": httpx.Response(200, content=routes_json(False))}, []).fetch()
    assert not routes.warm
    with pytest.raises(NoNameServer) as caught:
        await name_servers({"one": httpx.ConnectError("x"), "two": httpx.ReadTimeout("x")}, []).fetch()
    assert "http://one/, http://two/" in caught.value.detail


async def test_an_unchanged_answer_is_not_sent_again() -> None:
    """If-None-Match carries the tag, and 304 stands for the answer before."""
    log: list[httpx.Request] = []
    answers: dict[str, httpx.Response | Exception] = {
        "one": httpx.Response(200, content=routes_json(True), headers={"etag": '"v1"'})
    }
    servers = name_servers(answers, log)
    first = await servers.fetch()
    answers["one"] = httpx.Response(304)
    assert await servers.fetch() == first
    assert log[-1].headers["if-none-match"] == '"v1"'


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
