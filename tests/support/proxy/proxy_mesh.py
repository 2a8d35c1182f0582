"""A proxy in this process, in front of brokers in memory and a scripted name server, reached through its ASGI application."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from tern_proxy.app import build_app
from tern_proxy.proxy import Proxy
from tern_wire.errors import NoNameServer
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute, Routes, TopicRoute
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.loops import eventually
from tests.support.proxy.documented import check_documented
from tests.support.proxy.whole_transport import WholeTransport

KEY = bytes(range(32))
# For what certainly comes, on however slow a machine.
PATIENT_MS = 10_000


async def leaders_found(proxy: Proxy, leaders: list[MemoryBroker]) -> None:
    """Wait until *proxy* can ask all of *leaders*: a first dial takes as long as the machine likes."""
    wanted = {broker.broker_group for broker in leaders}
    await eventually(lambda: all(proxy.groups[name].link.has_leader for name in wanted), f"links to {wanted}")


class RawExchange:
    """One request at the ASGI application itself: its body comes in pieces, and its client may go away."""

    def __init__(self, app: Any, method: str, path: str, headers: dict[str, str] | None = None) -> None:
        path, _, query = path.partition("?")
        self._scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "client": ("127.0.0.1", 50_000),
        }
        self._app = app
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.taken = 0
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async def receive() -> dict[str, Any]:
            message = await self._inbox.get()
            self.taken += 1
            return message

        async def send(message: dict[str, Any]) -> None:
            self.sent.append(message)

        await self._app(self._scope, receive, send)

    def push(self, body: bytes, *, more: bool = False) -> None:
        """One piece of the request's body."""
        self._inbox.put_nowait({"type": "http.request", "body": body, "more_body": more})

    def hang_up(self) -> None:
        """The client closes its connection."""
        self._inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        """The answer's status; 0 while there is none."""
        return int(self.sent[0]["status"]) if self.sent else 0

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The answer's headers."""
        return dict(self.sent[0]["headers"])


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
    """Routes made from brokers as they are now. `is_up` False: nobody answers. `wiped`: groups without write permission."""

    endpoints = "http://127.0.0.1:9876"

    def __init__(self, brokers: list[MemoryBroker]) -> None:
        self.brokers = brokers
        self.is_up, self.is_warm = True, True
        self.asked = 0
        self.version = 0
        self.wiped: set[str] = set()
        # Routes by topic and broker group, whatever brokers have: those of a name server that is behind.
        self.forced: dict[tuple[str, str], TopicRoute] = {}

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
            writable = broker.broker_group not in self.wiped
            groups[broker.broker_group] = BrokerGroupRoute(nodes=nodes, leader=leader, term=term, writable=writable)
            for name, topic in broker.topics.items():
                part = TopicRoute(
                    topic_id=topic.topic_id,
                    queues=topic.queues,
                    type=topic.kind,
                    perm=topic.perm,
                    placement=topic.placement_text,
                )
                topics.setdefault(name, {})[broker.broker_group] = part
        for (name, broker_group), part in self.forced.items():
            topics.setdefault(name, {})[broker_group] = part
        routes = Routes(cluster="test", warm=self.is_warm, broker_groups=groups, topics=topics)
        return repr(routes).encode(), routes


async def _documented(response: httpx.Response) -> None:
    """Whatever a test asks for, the answer is in the API document."""
    body, request = await response.aread(), response.request
    content_type = response.headers.get("content-type", "")
    check_documented(request.method, request.url.path, response.status_code, content_type, body)


class ProxyMesh:
    """What a test holds: the proxy, its peers, and an HTTP client in front."""

    def __init__(self, proxy: Proxy, brokers: list[MemoryBroker], name_server: ScriptedNameServer, app: Any) -> None:
        self.proxy, self.brokers, self.name_server, self.app = proxy, brokers, name_server, app
        self.broker = brokers[0]
        self.transport = WholeTransport(app)
        hooks = {"response": [_documented]}
        self.http = httpx.AsyncClient(transport=self.transport, base_url="http://proxy", timeout=30, event_hooks=hooks)

    async def post(self, path: str, content: Any = b"", **headers: str) -> httpx.Response:
        """POST bytes; header names are written with `_` for `-`."""
        return await self.http.post(
            path, content=content, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    async def send(self, topic: str = "orders", count: int = 1) -> list[dict[str, Any]]:
        """Store *count* small messages one by one; their receipts."""
        answers = [await self.post(f"/v1/topics/{topic}/messages", b"m%d" % number) for number in range(count)]
        assert {answer.status_code for answer in answers} == {201}, [answer.text for answer in answers]
        return [answer.json() for answer in answers]

    async def receive(self, query: str = "", topic: str = "orders", **fields: Any) -> httpx.Response:
        """Receive as group billing."""
        path = f"/v1/topics/{topic}/groups/billing/receive{query}"
        return await self.http.post(path, json=fields) if fields else await self.http.post(path)

    def raw(self, method: str, path: str, headers: dict[str, str] | None = None) -> RawExchange:
        """A request whose body and end the test controls."""
        return RawExchange(self.app, method, path, headers)


@contextlib.asynccontextmanager
async def proxy_mesh(
    *brokers: MemoryBroker, topics: dict[str, int] | None = None, **settings: Any
) -> AsyncIterator[ProxyMesh]:
    """A running proxy that has found all leaders. *brokers*: by default one, which leads broker-a; *topics*: name to number of queues in each.

    It looks for a leader as long as a slow machine may need; a test of what happens without one says *leader_wait_ms*.
    """
    nodes = list(brokers) or [MemoryBroker(KEY)]
    for broker in nodes:
        for name, queues in (topics if topics is not None else {"orders": 4}).items():
            broker.create_topic(name, queues)
        broker.create_group("billing")
        await broker.start()
    name_server = ScriptedNameServer(nodes)
    settings.setdefault("leader_wait_ms", PATIENT_MS)
    proxy = Proxy(cluster_key=KEY, name_servers=name_server, clock=FixedClock(), **settings)
    app = build_app(proxy)
    await proxy.start()
    await leaders_found(proxy, [broker for broker in nodes if broker.leads])
    mesh = ProxyMesh(proxy, nodes, name_server, app)
    try:
        yield mesh
    finally:
        await mesh.http.aclose()
        await proxy.stop()
        for broker in nodes:
            await broker.stop()
