"""The name server over ASGI: its HTTP, two instances side by side, and the scan."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tern_namesrv import NamesrvSettings, create_app
from tern_wire.link.codec import read_json
from tern_wire.paths import CLUSTER_PATH, REGISTER_PATH, ROUTES_PATH, UNREGISTER_PATH
from tern_wire.routing.route import NodeRoute, Registration, Routes, TopicRoute

LEADER = Registration(
    cluster="dev",
    broker_group="broker-a",
    node="n1",
    link="127.0.0.1:10911",
    http="127.0.0.1:10913",
    is_leader=True,
    term=3,
    data_version=1,
    topics={"orders": TopicRoute(topic_id=1, queues=8)},
)


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now_ms(self) -> int:
        """Wall time."""
        return self.at_ms

    def mono_ms(self) -> int:
        """The same."""
        return self.at_ms


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


@asynccontextmanager
async def namesrv(clock: HandClock, settings: NamesrvSettings | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """A client of one running instance."""
    app = create_app(settings or NamesrvSettings(scan_interval_ms=10), clock=clock)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://mesh") as client,
    ):
        yield client


async def register(client: httpx.AsyncClient, registration: Registration = LEADER) -> httpx.Response:
    """One heartbeat."""
    return await client.post(REGISTER_PATH, json=dataclasses.asdict(registration))


async def routes_of(client: httpx.AsyncClient) -> Routes:
    """The routes as a proxy reads them."""
    return read_json((await client.get(ROUTES_PATH)).content, Routes)


async def nodes_of(client: httpx.AsyncClient) -> dict[str, NodeRoute]:
    """The living nodes of broker-a."""
    return (await routes_of(client)).broker_groups["broker-a"].nodes


async def test_what_a_broker_registers_a_proxy_reads() -> None:
    """The document is tern_wire's Routes."""
    async with namesrv(HandClock()) as client:
        answer = await register(client)
        assert (answer.status_code, answer.json()["warm"]) == (200, False)
        routes = await routes_of(client)
    assert routes.broker_groups["broker-a"].leader == "n1"
    assert routes.topics["orders"]["broker-a"] == LEADER.topics["orders"]


async def test_a_poll_with_the_current_tag_is_a_304() -> None:
    """Until a broker, a topic or the warm-up changes the document."""
    clock = HandClock()
    async with namesrv(clock) as client:
        await register(client)
        tag = (await client.get(ROUTES_PATH)).headers["etag"]
        for given in (tag, f"W/{tag}", f'"x", {tag}'):
            same = await client.get(ROUTES_PATH, headers={"if-none-match": given})
            assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        await register(client)
        assert (await client.get(ROUTES_PATH, headers={"if-none-match": tag})).status_code == 304
        clock.at_ms += 35_000
        warm = await client.get(ROUTES_PATH, headers={"if-none-match": tag})
        assert (warm.status_code, warm.json()["warm"]) == (200, True)
        await register(client, dataclasses.replace(LEADER, node="n2", is_leader=False))
        changed = await client.get(ROUTES_PATH, headers={"if-none-match": warm.headers["etag"]})
        assert changed.status_code == 200


async def test_two_instances_know_only_what_they_were_told_and_share_no_tag() -> None:
    """No replication; a proxy that switches between them never takes a 304 for the other's document."""
    clock = HandClock()
    async with namesrv(clock) as one, namesrv(clock) as two:
        await register(one)
        assert set((await routes_of(one)).topics) == {"orders"}
        assert (await routes_of(two)).topics == {}
        await register(two)
        tag = (await one.get(ROUTES_PATH)).headers["etag"]
        assert (await two.get(ROUTES_PATH, headers={"if-none-match": tag})).status_code == 200


async def test_a_topic_is_found_warming_up_or_not_found() -> None:
    """503 with a pause until brokers have told what they host, 404 with the fix later."""
    clock = HandClock()
    async with namesrv(clock) as client:
        for _ in range(2):
            cold = await client.get("/v1/topics/orders/route")
            assert (cold.status_code, cold.json()["code"], cold.headers["retry-after"]) == (503, "warming-up", "1")
            clock.at_ms += 35_000
        await register(client)
        found = read_json((await client.get("/v1/topics/orders/route")).content, Routes)
        assert set(found.topics) == {"orders"}
        warm = await client.get("/v1/topics/nope/route")
        assert (warm.status_code, warm.json()["code"]) == (404, "topic-not-found")
        assert "PUT /v1/topics/nope" in warm.json()["detail"]
        assert (await client.get("/v1/topics/a.b/route")).json()["code"] == "illegal-topic"


async def test_a_deposed_leader_gets_a_409() -> None:
    """With both terms in the problem."""
    async with namesrv(HandClock()) as client:
        await register(client, dataclasses.replace(LEADER, term=4, node="n2"))
        answer = await register(client)
        assert (answer.status_code, answer.json()["code"]) == (409, "stale-registration")
        assert (answer.json()["actual"], answer.json()["term"]) == (4, 3)
        assert 'registrations_total{outcome="stale-registration"} 1.0' in (await client.get("/metrics")).text


async def test_an_unregistered_node_is_gone_at_once() -> None:
    """With its leadership, not with its topics; and again is no error."""
    leaving = {"cluster": "dev", "broker_group": "broker-a", "node": "n1"}
    async with namesrv(HandClock()) as client:
        await register(client)
        assert (await client.post(UNREGISTER_PATH, json=leaving)).json() == {"removed": True}
        assert await nodes_of(client) == {}
        found = read_json((await client.get("/v1/topics/orders/route")).content, Routes)
        assert (found.broker_groups["broker-a"].leader, set(found.topics["orders"])) == ("", {"broker-a"})
        assert (await client.post(UNREGISTER_PATH, json=leaving)).json() == {"removed": False}
        wrong = await client.post(UNREGISTER_PATH, json=leaving | {"cluster": "prod"})
        assert (wrong.status_code, wrong.json()["pointer"]) == (400, "/cluster")


async def test_the_scan_removes_silent_brokers() -> None:
    """Polled with a deadline; the time of silence is the clock's."""
    clock = HandClock()
    async with namesrv(clock) as client:
        await register(client)
        clock.at_ms += 120_001
        async with asyncio.timeout(30):
            while await nodes_of(client):
                await asyncio.sleep(0.01)
        assert (await client.get("/readyz")).json() == {"ready": True, "warm": True, "nodes": 0}
        metrics = (await client.get("/metrics")).text
        assert "ternmq_namesrv_gone_broker_groups 1.0" in metrics
        assert "ternmq_namesrv_known_topics 1.0" in metrics
        page = (await client.get(CLUSTER_PATH)).json()
        assert (page["broker_groups"]["broker-a"]["leader"], page["broker_groups"]["broker-a"]["nodes"]) == ("", {})


async def test_the_cluster_page_says_who_lives_and_who_is_silent() -> None:
    """For people."""
    clock = HandClock()
    async with namesrv(clock) as client:
        await register(client)
        clock.at_ms += 1_500
        page = (await client.get(CLUSTER_PATH)).json()
    assert page["broker_groups"]["broker-a"]["leader"] == "n1"
    assert page["broker_groups"]["broker-a"]["nodes"]["n1"]["silent_ms"] == 1_500
    assert (page["cluster"], page["topics"]) == ("dev", 1)


@pytest.mark.parametrize(
    ("change", "code"),
    [({"cluster": "prod"}, "invalid-field"), ({"extra": 1}, "unknown-field"), ({"term": None}, "invalid-field")],
)
async def test_a_wrong_registration_is_a_400(change: dict[str, object], code: str) -> None:
    """And nothing is registered."""
    async with namesrv(HandClock()) as client:
        answer = await client.post(REGISTER_PATH, json=dataclasses.asdict(LEADER) | change)
        assert (answer.status_code, answer.json()["code"]) == (400, code)
        assert (await routes_of(client)).broker_groups == {}


async def test_every_route_is_in_the_openapi_document() -> None:
    """It is the reference that errors point to."""
    async with namesrv(HandClock()) as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
    assert {REGISTER_PATH, UNREGISTER_PATH, ROUTES_PATH, CLUSTER_PATH, "/v1/topics/{topic}/route"} <= set(paths)
    assert {"/healthz", "/readyz", "/metrics"} <= set(paths)
