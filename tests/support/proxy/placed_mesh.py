"""Proxies in front of broker groups in memory, in time that costs nothing: the real routes cache, sending, creation and moves of the proxy.

Everything follows from the seed: how long each request takes, who is down, what a proxy's name server says and how old that is, when a proxy dies.
"""

import asyncio
import contextlib
import random
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from tern_proxy.auto_create import AutoCreate
from tern_proxy.brokers.lanes import EndLane, SendLane, SettleLane
from tern_proxy.core.documents.sends import PackedMessage
from tern_proxy.core.transactions.begins import Begin, HalfMessage
from tern_proxy.proxy import BrokerGroup, Proxy
from tern_proxy.routes.messages import sends
from tern_proxy.routes.transactions import begins as transactions
from tern_proxy.sending import store_messages
from tern_proxy.waiting.reading_turns import ReadingTurns
from tern_wire.errors import NoLeader, TernError
from tern_wire.link.heads import LinkRequest, R, head_parts, read_head
from tern_wire.link.requests import Parts, RequestCode, body_parts, read_body
from tern_wire.records.hosts import host_bytes
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute, Routes, TopicRoute
from tests.support.proxy.placed_brokers import PlacedBroker

START_MS = 1_700_000_000_000
HOST = host_bytes("", 0)
BORN_ROUTE = ("topic_id", "queues", "type", "perm", "placement")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps to whatever is due next."""

    def __init__(self) -> None:
        self._now_s = 0.0
        loop = self

        class Jumping(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> Any:
                assert timeout is not None, "everybody waits, and nothing is due"
                loop._now_s += max(timeout, 0.0)
                return super().select(0)

        super().__init__(Jumping())

    def time(self) -> float:
        """Seconds since the begin."""
        return self._now_s


def now_ms() -> int:
    """Everybody's clock."""
    return START_MS + int(asyncio.get_running_loop().time() * 1_000)


async def pass_time(seconds: float) -> None:
    """Let it pass, which costs nothing in a virtual loop."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, passed.set)
    await passed.wait()


class View:
    """What one proxy's name server says. *hidden*: broker groups that it has lost sight of; *age_s*: how old its news is."""

    endpoints = "a name server"

    def __init__(self, mesh: "PlacedMesh") -> None:
        self._mesh = mesh
        self.hidden: frozenset[str] = frozenset()
        self.age_s, self.is_warm = 0.0, True

    async def fetch(self) -> tuple[bytes, Routes]:
        """As NameServers.fetch."""
        history = self._mesh.history
        then = asyncio.get_running_loop().time() - self.age_s
        said = (
            next(said for at_s, said in reversed(history) if at_s <= max(then, 0.0))
            if self.age_s
            else self._mesh.said()
        )
        nodes = {"n-0": NodeRoute(link="127.0.0.1:1", http="127.0.0.1:2")}
        groups = {
            name: BrokerGroupRoute(nodes=nodes, leader="n-0", term=1)
            for name in self._mesh.brokers
            if name not in self.hidden
        }
        topics: dict[str, dict[str, TopicRoute]] = {}
        for name in groups:
            for topic, part in said[name].items():
                topics.setdefault(topic, {})[name] = part
        routes = Routes(cluster="m", warm=self.is_warm, broker_groups=groups, topics=topics)
        return repr(routes).encode(), routes


class Link:
    """The way from one proxy to one broker group: every request and every answer takes its time, and ends with the proxy."""

    def __init__(self, mesh: "PlacedMesh", broker: PlacedBroker) -> None:
        self._mesh, self._broker = mesh, broker
        self.is_cut = False

    @property
    def has_leader(self) -> bool:
        """As GroupLink."""
        return not self._broker.is_down

    async def request(
        self, code: RequestCode, parts: Parts, *, is_repeatable: bool, deadline_ms: int = 0
    ) -> tuple[dict[str, Any], memoryview]:
        """As GroupLink."""
        assert is_repeatable or code == RequestCode.SEND or not deadline_ms
        await pass_time(self._mesh.rng.uniform(0.0, 0.02))
        if self._broker.is_down:
            raise NoLeader(broker_group=self._broker.name)
        # What was sent before the proxy died may arrive still.
        if self.is_cut and self._mesh.rng.random() < 0.5:
            await asyncio.Event().wait()
        head, raw = read_body(memoryview(b"".join(bytes(part) for part in parts)))
        answer, data = self._broker.answer(code, head, raw)
        self._mesh.note()
        await pass_time(self._mesh.rng.uniform(0.0, 0.02))
        if self.is_cut:
            await asyncio.Event().wait()
        return answer, memoryview(data)

    def flush(self) -> None:
        """Nothing waits for the end of a turn."""

    async def ask(
        self,
        request: LinkRequest[R],
        raw: Sequence[bytes | bytearray | memoryview] = (),
        *,
        is_repeatable: bool,
        deadline_ms: int = 0,
    ) -> tuple[R, memoryview]:
        """As GroupLink."""
        parts = head_parts(request, raw)
        head, data = await self.request(request.code, parts, is_repeatable=is_repeatable, deadline_ms=deadline_ms)
        return cast("tuple[R, memoryview]", read_head(request.reply, b"".join(body_parts(head, [data]))))


class ModelProxy(Proxy):
    """A proxy whose links lead to the broker groups of *mesh*. Owner: the mesh, which may let it die at any moment."""

    def __init__(self, mesh: "PlacedMesh", view: View) -> None:
        clock = SimpleNamespace(now_ms=now_ms, mono_ms=now_ms)
        self._mesh, self.view = mesh, view
        self.tasks: set[asyncio.Task[Any]] = set()
        super().__init__(
            cluster_key=bytes(32),
            name_servers=view,
            clock=cast(Any, clock),
            route_interval_ms=10_000,
            auto_create=AutoCreate(topics=True),
            id_prefix="0123456789ABCDEF0123",
        )

    def _follow(self, routes: Routes) -> None:
        for name in routes.broker_groups:
            if name not in self.groups:
                link = cast(Any, Link(self._mesh, self._mesh.brokers[name]))
                sends = SendLane(link)
                lanes = (sends, SettleLane(link), EndLane(link), ReadingTurns(sends))
                self.groups[name] = BrokerGroup(link, *lanes)

    async def attempt(self, what: Coroutine[Any, Any, Any]) -> Any:
        """What becomes of *what*: its value, the TernError that it met, or None when this proxy dies meanwhile."""
        task = asyncio.create_task(what)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        await asyncio.wait([task])
        if task.cancelled():
            return None
        error = task.exception()
        if error is not None and not isinstance(error, TernError):
            raise error
        return error if error is not None else task.result()

    async def die(self) -> None:
        """Whoever waits for it hears nothing."""
        for group in self.groups.values():
            cast(Any, group.link).is_cut = True
        for task in [*self.tasks, *self.auto_create._under_way.values()]:
            task.cancel()
        await self.cache.stop()

    async def send(self, topic: str, message: PackedMessage) -> Any:
        """Send one message; its receipt, or raises what it was refused with."""
        found = await sends.topic_to_send(self, topic, cast(Any, self._mesh.asking))
        sent = await store_messages(self, found, [message], born_ms=now_ms(), born_host=HOST, at="")
        if sent.errors:
            raise sent.errors[0]
        return sent.entries[0]

    async def begin(self, topics: tuple[str, ...], key: str) -> Any:
        """Begin a transaction with one message for each of *topics*; raises what it was refused with."""
        found = [await sends.topic_to_send(self, name, cast(Any, self._mesh.asking)) for name in topics]
        halves = [HalfMessage(topic=each, message=PackedMessage(body=b"half"), at="") for each in found]
        begin = Begin(producer_group="p", check_after_ms=0, key=key, halves=halves)
        request = cast(Any, SimpleNamespace(scope={}))
        encoded, outcome = await transactions._send_where_it_belongs(self, request, begin, now_ms())
        if outcome.error is not None:
            raise outcome.error
        return encoded


class PlacedMesh:
    """Some broker groups and two proxies. Owner: one run."""

    def __init__(self, rng: random.Random, brokers: Mapping[str, PlacedBroker]) -> None:
        self.rng, self.brokers = rng, brokers
        self.asking = SimpleNamespace(scope={})
        # What all have said, and since when.
        self.history = [(0.0, self.said())]
        self.proxies: list[ModelProxy] = []

    def said(self) -> dict[str, dict[str, TopicRoute]]:
        """What each broker group says of its topics now."""
        return {
            name: {
                topic: TopicRoute(**{each: part[each] for each in BORN_ROUTE})
                for topic, part in broker.routes().items()
            }
            for name, broker in self.brokers.items()
        }

    def note(self) -> None:
        """Remember what is said now, if it is news."""
        if (said := self.said()) != self.history[-1][1]:
            self.history.append((asyncio.get_running_loop().time(), said))

    async def add_proxy(self, view: View) -> ModelProxy:
        """One more, which knows nothing yet."""
        proxy = ModelProxy(self, view)
        await proxy.cache.start()
        return proxy

    async def restart(self, number: int) -> None:
        """A proxy dies, and another one takes its place: it knows what the name server says now."""
        old = self.proxies[number]
        await old.die()
        self.proxies[number] = await self.add_proxy(old.view)


@contextlib.asynccontextmanager
async def placed_mesh(
    rng: random.Random, brokers: Mapping[str, PlacedBroker], proxies: int = 2
) -> AsyncIterator[PlacedMesh]:
    """A mesh that has begun."""
    mesh = PlacedMesh(rng, brokers)
    for _ in range(proxies):
        mesh.proxies.append(await mesh.add_proxy(View(mesh)))
    yield mesh
    for proxy in mesh.proxies:
        await proxy.die()


def run_virtually(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run *main* in an event loop whose time costs nothing."""
    failures: list[str] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        # What a proxy that has died still waits for is no failure.
        runner.get_loop().set_exception_handler(
            lambda _, context: failures.append(repr(context)) if "exception" in context else None
        )
        runner.run(main())
    assert not failures, failures[:3]
