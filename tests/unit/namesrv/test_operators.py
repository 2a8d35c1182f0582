"""What operators and route queries get over HTTP: configuration, write permission, one topic's route; and what outlives a restart."""

import dataclasses
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tern_broker.config import BrokerConfig
from tern_namesrv import NamesrvSettings, create_app
from tern_namesrv.app import PRINTED_MAX, print_configuration
from tern_namesrv.core import Configuration
from tern_proxy.config import ProxySettings
from tern_wire.limits import KV_VALUE_SIZE_MAX_BYTES
from tern_wire.link.codec import read_json
from tern_wire.paths import CLUSTER_PATH, REGISTER_PATH, ROUTES_PATH, kv_path, topic_route_path, write_permission_path
from tern_wire.routing.route import Registration, Routes, TopicRoute
from tern_wire.routing.route_document import TopicRouteDocument

LEADER = Registration(
    cluster="dev",
    broker_group="broker-a",
    node="n1",
    link="127.0.0.1:10911",
    http="127.0.0.1:10913",
    is_leader=True,
    term=3,
    data_version=1,
    topics={"orders": TopicRoute(topic_id=1, queues=8, type="FIFO")},
)
WARM = NamesrvSettings(warm_up_ms=0)
ORDER = kv_path("ORDER_TOPIC_CONFIG", "orders")
PERMISSION = write_permission_path("broker-a")


@pytest.fixture
def anyio_backend() -> str:
    """asyncio, as in production."""
    return "asyncio"


class StandingClock:
    """A clock that stands."""

    def now_ms(self) -> int:
        """Wall time."""
        return 1_000_000

    def mono_ms(self) -> int:
        """The same."""
        return 1_000_000


@asynccontextmanager
async def namesrv(data_dir: str = "") -> AsyncIterator[httpx.AsyncClient]:
    """A client of one running instance, which is warm."""
    app = create_app(dataclasses.replace(WARM, data_dir=data_dir), clock=StandingClock())
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://mesh") as client,
    ):
        yield client


async def register(client: httpx.AsyncClient, registration: Registration = LEADER) -> dict[str, Any]:
    """One heartbeat; the reply."""
    answer = await client.post(REGISTER_PATH, json=dataclasses.asdict(registration))
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def test_a_name_server_asks_for_topics_that_it_does_not_have() -> None:
    """Left out until then, and ever after."""
    short = dataclasses.replace(LEADER, topics={}, has_topics=False)
    async with namesrv() as client:
        assert [(await register(client, sent))["wants_topics"] for sent in (short, LEADER, short)] == [
            True,
            False,
            False,
        ]
        assert set((await client.get(ROUTES_PATH)).json()["topics"]) == {"orders"}


async def test_a_field_that_no_topic_has_is_refused_with_its_place() -> None:
    """Among any number of topics that are well."""
    topics = {name: {"topic_id": 1, "queues": 1} for name in ("a", "b", "c")}
    topics["b"]["qeues"] = 1
    async with namesrv() as client:
        answer = await client.post(REGISTER_PATH, json=dataclasses.asdict(LEADER) | {"topics": topics})
        assert (answer.status_code, answer.json()["code"]) == (400, "unknown-field")
        assert answer.json()["pointer"] == "/topics/b/qeues"


async def test_routes_leave_topics_out_for_a_reader_that_has_them() -> None:
    """Whoever leads or may be written changes the document and not its topics."""
    async with namesrv() as client:
        await register(client)
        whole = read_json((await client.get(ROUTES_PATH)).content, Routes)
        assert (set(whole.topics), whole.topics_known) == ({"orders"}, False)
        await register(client, dataclasses.replace(LEADER, node="n2", term=4))
        short = read_json((await client.get(ROUTES_PATH, params={"topics_tag": whole.topics_tag})).content, Routes)
        assert (short.topics, short.topics_known, short.topics_tag) == ({}, True, whole.topics_tag)
        assert short.broker_groups["broker-a"].leader == "n2"
        for tag in ("", "x"):
            assert (await client.get(ROUTES_PATH, params={"topics_tag": tag})).json()["topics"].keys() == {"orders"}
        changed = dataclasses.replace(LEADER, node="n2", term=4, data_version=9, topics={})
        await register(client, changed)
        other = read_json((await client.get(ROUTES_PATH, params={"topics_tag": whole.topics_tag})).content, Routes)
        assert (other.topics, other.topics_known) == ({}, False)
        assert other.topics_tag != whole.topics_tag


async def test_routes_carry_the_ordered_configurations_with_the_topics() -> None:
    """A change of one changes the document and the tag of its topics; other configuration changes neither."""
    async with namesrv() as client:
        await register(client)
        first = await client.get(ROUTES_PATH)
        await client.put(kv_path("NS", "key"), json={"value": "v"})
        unchanged = await client.get(ROUTES_PATH, headers={"if-none-match": first.headers["etag"]})
        assert unchanged.status_code == 304
        await client.put(ORDER, json={"value": "broker-a:8"})
        tag = read_json(first.content, Routes).topics_tag
        changed = await client.get(
            ROUTES_PATH, params={"topics_tag": tag}, headers={"if-none-match": first.headers["etag"]}
        )
        routes = read_json(changed.content, Routes)
        assert (routes.orders, set(routes.topics), routes.topics_known) == ({"orders": "broker-a:8"}, {"orders"}, False)
        short = read_json((await client.get(ROUTES_PATH, params={"topics_tag": routes.topics_tag})).content, Routes)
        assert (short.orders, short.topics_known) == ({}, True)


async def test_configuration_is_put_read_listed_and_removed() -> None:
    """By namespace and key; what is not there is said so, with the command that puts it."""
    async with namesrv() as client:
        missing = await client.get(ORDER)
        assert (missing.status_code, missing.json()["code"]) == (404, "configuration-not-found")
        assert "ternmq namesrv kv put" in missing.json()["detail"]
        put = await client.put(ORDER, json={"value": "broker-a:8"})
        assert (put.status_code, (await client.get(ORDER)).json()) == (200, put.json())
        assert put.json() == {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders", "value": "broker-a:8"}
        await client.put("/v1/kv/NS/%25RETRY%25x", json={"value": "ü"})
        assert (await client.get("/v1/kv")).json() == {"namespaces": {"NS": 1, "ORDER_TOPIC_CONFIG": 1}}
        assert (await client.get("/v1/kv/NS")).json() == {"namespace": "NS", "entries": {"%RETRY%x": "ü"}}
        assert [(await client.delete(ORDER)).json()["removed"] for _ in range(2)] == [True, False]
        assert (await client.get("/v1/kv")).json() == {"namespaces": {"NS": 1}}
        assert (await client.get("/v1/kv/none")).json() == {"namespace": "none", "entries": {}}


@pytest.mark.parametrize(
    ("path", "body", "code", "pointer"),
    [
        (ORDER, b'{"value":1}', "invalid-field", "/value"),
        (ORDER, b'{"value":"broker-a"}', "invalid-field", "/value"),
        (ORDER, b'{"value":"a:1","more":1}', "unknown-field", "/more"),
        (ORDER, b"{}", "invalid-field", "/"),
        (ORDER, b"", "malformed-body", "/"),
        ("/v1/kv/NS/k%20k", b'{"value":"v"}', "invalid-field", "/key"),
        ("/v1/kv/a%00b/k", b'{"value":"v"}', "invalid-field", "/namespace"),
        (kv_path("NS", "k"), b'{"value":"' + b"v" * (KV_VALUE_SIZE_MAX_BYTES + 1) + b'"}', "invalid-field", "/value"),
        (kv_path("ORDER_TOPIC_CONFIG", "%25"), b'{"value":"a:1"}', "illegal-topic", None),
    ],
)
async def test_wrong_configuration_is_a_400_that_says_where(
    path: str, body: bytes, code: str, pointer: str | None
) -> None:
    """And nothing is kept."""
    async with namesrv() as client:
        answer = await client.put(path, content=body)
        assert (answer.status_code, answer.json()["code"], answer.json().get("pointer")) == (400, code, pointer)
        assert (await client.get("/v1/kv")).json() == {"namespaces": {}}


async def test_a_route_query_tells_what_rocketmqs_does() -> None:
    """Queues to read and to write, permission, nodes, leader, ordered configuration; and it still reads as routes."""
    async with namesrv() as client:
        await register(client)
        await register(client, dataclasses.replace(LEADER, broker_group="broker-b", node="m1"))
        await client.put(ORDER, json={"value": "broker-a:8;broker-b:8"})
        await client.post(PERMISSION, json={"writable": False})
        content = (await client.get(topic_route_path("orders"))).content
        missing = await client.get(topic_route_path("nope"))
    route = read_json(content, TopicRouteDocument)
    assert (route.topic, route.cluster, route.warm, route.order) == ("orders", "dev", True, "broker-a:8;broker-b:8")
    rows = [(row.broker_group, row.read_queues, row.write_queues, row.perm) for row in route.queue_data]
    assert rows == [("broker-a", 8, 8, 4), ("broker-b", 8, 8, 6)]
    assert {name: (group.leader, group.writable) for name, group in route.broker_groups.items()} == {
        "broker-a": ("n1", False),
        "broker-b": ("m1", True),
    }
    assert read_json(content, Routes).topics["orders"]["broker-a"].type == "FIFO"
    assert (missing.status_code, missing.json()["code"]) == (404, "topic-not-found")
    assert "ternmq topic create nope" in missing.json()["detail"]


async def test_a_withdrawn_write_permission_is_in_every_route_until_it_is_restored() -> None:
    """Whatever the brokers say meanwhile. A group that nobody knows is a 404 with those that are known."""
    async with namesrv() as client:
        await register(client)
        answer = await client.post(PERMISSION, json={"writable": False})
        assert (answer.status_code, answer.json()) == (
            200,
            {"broker_group": "broker-a", "writable": False, "topics": 1},
        )
        await register(client, dataclasses.replace(LEADER, node="n2", term=4, data_version=5))
        page = (await client.get(CLUSTER_PATH)).json()
        assert (page["wiped"], page["broker_groups"]["broker-a"]["writable"]) == (["broker-a"], False)
        assert page["clusters"] == {"dev": ["broker-a"]}
        await client.post(PERMISSION, json={"writable": True})
        routes = read_json((await client.get(ROUTES_PATH)).content, Routes)
        assert routes.broker_groups["broker-a"].writable
        unknown = await client.post(write_permission_path("broker-z"), json={"writable": False})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "broker-group-not-found")
        assert "known: broker-a" in unknown.json()["detail"]
        wrong = await client.post(PERMISSION, json={"writable": "no"})
        assert (wrong.status_code, wrong.json()["pointer"]) == (400, "/writable")


async def test_what_operators_told_outlives_the_process_and_what_brokers_told_does_not(tmp_path: Path) -> None:
    """The directory is free again, and the permission is withdrawn before a broker has registered."""
    directory = str(tmp_path / "namesrv")
    async with namesrv(directory) as client:
        await register(client)
        await client.put(ORDER, json={"value": "broker-a:8"})
        await client.post(PERMISSION, json={"writable": False})
    async with namesrv(directory) as client:
        assert (await client.get(ORDER)).json()["value"] == "broker-a:8"
        page = (await client.get(CLUSTER_PATH)).json()
        assert (page["topics"], page["configurations"], page["wiped"]) == (0, 1, ["broker-a"])
        await register(client)
        assert not read_json((await client.get(ROUTES_PATH)).content, Routes).broker_groups["broker-a"].writable
        metrics = (await client.get("/metrics")).text
        assert "ternmq_namesrv_configurations 1.0" in metrics
        assert "ternmq_namesrv_wiped_broker_groups 1.0" in metrics
    async with namesrv() as client:
        assert (await client.get("/v1/kv")).json() == {"namespaces": {}}


def test_the_configuration_is_printed_line_by_line(caplog: pytest.LogCaptureFixture) -> None:
    """For people who look for what was set when; bounded."""
    held = Configuration().put("NS", "key", "value")
    for number in range(PRINTED_MAX + 5):
        held = held.put("OTHER", f"k{number}", "v")
    with caplog.at_level(logging.DEBUG, "tern_namesrv.app"):
        print_configuration(held)
    lines = [vars(record) for record in caplog.records]
    assert (lines[0]["namespace"], lines[0]["key"], lines[0]["value"]) == ("NS", "key", "value")
    assert len(lines) == PRINTED_MAX + 1
    assert (lines[-1]["keys"], lines[-1]["printed"]) == (PRINTED_MAX + 6, PRINTED_MAX)


def test_the_pace_of_production_is_rocketmqs() -> None:
    """Heartbeats every 30 s, gone after 120 s without one, looked for every 5 s, routes polled every 30 s; cold for one heartbeat."""
    found: dict[tuple[str, str], Any] = {
        (kind.__name__, field.name): field.default
        for kind in (NamesrvSettings, BrokerConfig, ProxySettings)
        for field in dataclasses.fields(kind)
    }
    assert found["NamesrvSettings", "expiry_ms"] == 120_000
    assert found["NamesrvSettings", "scan_interval_ms"] == 5_000
    assert found["NamesrvSettings", "print_interval_ms"] == 600_000
    assert found["BrokerConfig", "heartbeat_interval_ms"] == 30_000
    assert found["ProxySettings", "route_interval_ms"] == 30_000
    assert 30_000 < found["NamesrvSettings", "warm_up_ms"] < 60_000
