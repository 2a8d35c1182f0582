"""A proxy in this process, in front of scripted brokers and a scripted name server, reached through its ASGI application."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tern_proxy.app import build_app
from tern_proxy.proxy import Proxy
from tern_wire.errors import NoNameServer
from tern_wire.route import BrokerGroupRoute, NodeRoute, Routes, TopicRoute
from tests.support.scripted_broker import ScriptedBroker

KEY = bytes(range(32))
NOW_MS = 1_700_000_000_000


class FixedClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        """Wall time in milliseconds."""
        return self.ms

    def mono_ms(self) -> int:
        """Monotonic time in milliseconds."""
        return self.ms


class ScriptedNameServer:
    """Routes made from brokers as they are now. `is_up` False: nobody answers."""

    endpoints = "http://127.0.0.1:9876"

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        self.brokers = brokers
        self.is_up, self.is_warm = True, True
        self.asked = 0
        self.version = 0

    async def fetch(self) -> tuple[bytes, Routes]:
        """The routes, and bytes that differ whenever they do."""
        self.asked += 1
        if not self.is_up:
            raise NoNameServer(endpoints=self.endpoints)
        groups: dict[str, BrokerGroupRoute] = {}
        topics: dict[str, dict[str, TopicRoute]] = {}
        for broker in self.brokers:
            old = groups.get(broker.broker_group)
            nodes = dict(old.nodes) if old else {}
            nodes[broker.node] = NodeRoute(link=f"127.0.0.1:{broker.server.port}", http="127.0.0.1:1")
            leader, term = (broker.node, broker.term) if broker.leads else (old.leader, old.term) if old else ("", 0)
            groups[broker.broker_group] = BrokerGroupRoute(nodes=nodes, leader=leader, term=term)
            for name, (topic_id, logs) in broker.topics.items():
                topics.setdefault(name, {})[broker.broker_group] = TopicRoute(topic_id=topic_id, queues=len(logs))
        routes = Routes(cluster="test", warm=self.is_warm, broker_groups=groups, topics=topics)
        return repr(routes).encode(), routes


class ProxyMesh:
    """What a test holds: the proxy, its peers, and an HTTP client in front."""

    def __init__(self, proxy: Proxy, brokers: list[ScriptedBroker], name_server: ScriptedNameServer, app: Any) -> None:
        self.proxy, self.brokers, self.name_server, self.app = proxy, brokers, name_server, app
        self.broker = brokers[0]
        transport = httpx.ASGITransport(app=app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://proxy", timeout=30)


@contextlib.asynccontextmanager
async def proxy_mesh(*brokers: ScriptedBroker, topics: dict[str, int] | None = None, **settings: Any) -> AsyncIterator[ProxyMesh]:
    """A running proxy. *brokers*: by default one, which leads broker-a; *topics*: name to number of queues in each."""
    nodes = list(brokers) or [ScriptedBroker(KEY)]
    for broker in nodes:
        await broker.server.start()
        for name, queues in (topics if topics is not None else {"orders": 4}).items():
            broker.create_topic(name, queues)
        broker.groups["billing"] = 1
    name_server = ScriptedNameServer(nodes)
    proxy = Proxy(cluster_key=KEY, name_servers=name_server, clock=FixedClock(), **settings)
    app = build_app(proxy)
    await proxy.start()
    mesh = ProxyMesh(proxy, nodes, name_server, app)
    try:
        yield mesh
    finally:
        await mesh.http.aclose()
        await proxy.stop()
        for broker in nodes:
            await broker.server.stop()
