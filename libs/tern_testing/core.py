"""The inside of a TestMesh: one broker node and one proxy on a VirtualLoop, and their beginning and
end. Everything here runs in that loop.
"""

import asyncio
import secrets

from tern_client.asynchronous.admin import Admin
from tern_client.transport.exchange import Request, Response
from tern_proxy.app import build_app
from tern_proxy.auto_create import AutoCreate
from tern_proxy.proxy import Proxy
from tern_service import open_socket, serve
from tern_testing.door import Door
from tern_testing.memory_node import BROKER_GROUP, CLUSTER, MemoryNode
from tern_testing.records import DeadLetter, SentMessage, dead_letter, sent_messages
from tern_testing.virtual_loop import VirtualLoop
from tern_wire.errors import GroupNotFound

# Routes change only by what this proxy does itself, which it knows at once.
ROUTE_INTERVAL_MS = 300_000
FIRST_STEPS_S = 0.5
# At the end, requests under way have this time; and how often it is looked for their answers.
LAST_ANSWERS_S, STEP_S = 1.0, 0.001
LETTERS_PER_PAGE = 100


class _Clock:
    """Implements tern_service.Clock."""

    def __init__(self, loop: VirtualLoop, began_ms: int) -> None:
        self._loop, self._began_ms = loop, began_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._began_ms + self.mono_ms()

    def mono_ms(self) -> int:
        """Milliseconds since the begin."""
        return int(self._loop.time() * 1000)


class _Inside:
    """Implements the SDK's Transport for questions of the mesh itself, which meet no faults."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """The application's answer."""
        return await self._door.inside(request)

    async def close(self) -> None:
        """There is nothing to close."""


class Core:
    """Owner of node, proxy and door, on *loop*."""

    def __init__(self, loop: VirtualLoop, *, began_ms: int, capacity_bytes: int, retention_ms: int) -> None:
        self._loop, self._began_ms, self.clock = loop, began_ms, _Clock(loop, began_ms)
        key = secrets.token_bytes(32)
        self.node = MemoryNode(loop, key, began_ms=began_ms, capacity_bytes=capacity_bytes, retention_ms=retention_ms)
        self._proxy = Proxy(
            cluster=CLUSTER,
            cluster_key=key,
            name_servers=self.node,
            clock=self.clock,
            route_interval_ms=ROUTE_INTERVAL_MS,
            dial=self.node.dial,
            auto_create=AutoCreate(topics=True, groups=True),
            creations_per_s=0,
        )
        self.door = Door(build_app(self._proxy, now=loop.time), loop)
        # Its requests wait for nothing but the broker, unless they are parked.
        loop.is_busy = lambda: self.door.under_way > len(self._proxy.parking)
        self._admin = Admin("http://mesh", transport=_Inside(self.door), key_file="")
        self._stop: asyncio.Event | None = None
        self._serving: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Lead, and connect."""
        self.node.begin()
        await self._proxy.start()
        await self._proxy.group(BROKER_GROUP).link.find_leader(self._loop.time() + 1.0)
        # The first steps of the upkeep, after which nothing that was waited for is left.
        await self._loop.run_to(self._loop.time() + FIRST_STEPS_S)

    async def listen(self) -> int:
        """Serve HTTP on a free port of 127.0.0.1; the port."""
        sock = open_socket("127.0.0.1", 0, "TestMesh")
        port: int = sock.getsockname()[1]
        self._stop = asyncio.Event()
        self._serving = self._loop.create_task(serve(self.door, sock, stop=self._stop))
        return port

    async def end(self) -> None:
        """Answer what waits, and close everything. From here on the machine's time passes."""
        self._loop.follow_clock()
        self._proxy.stop_waiting()
        until_s = self._loop.time() + LAST_ANSWERS_S
        while self.door.under_way and self._loop.time() < until_s:  # noqa: ASYNC110  answers set no event
            await asyncio.sleep(STEP_S)
        if self._stop is not None and self._serving is not None:
            self._stop.set()
            await self._serving
        await self._proxy.stop()
        await self.node.stop()

    async def advance(self, target_ms: int) -> bool:
        """Let time pass until *target_ms* since 1970; False when somebody got an answer before."""
        # A little behind the millisecond, which the sum of two floats might just miss.
        arriving = self._loop.run_to((target_ms - self._began_ms) / 1000 + 1e-6)
        self.node.look_again()
        return await arriving

    async def quiet(self) -> int:
        """Return when nothing is left to do now: the number of requests begun and answered."""
        await self._loop.quiet()
        while self._loop.is_busy():
            # No sleep: time stands still again as soon as the last request is parked.
            await self._loop.run_to(self._loop.time() + STEP_S)
            # Also when it is over: an answer takes some turns from the proxy to the test's loop.
            await self._loop.quiet()
        return self.door.begun + self.door.answered

    async def sent(self, topic: str) -> list[SentMessage]:
        """All messages of *topic*."""
        return sent_messages(self.node.engine, topic, BROKER_GROUP)

    async def pending(self, topic: str, group: str) -> int:
        """The messages of *topic* that *group* has not acked; GroupNotFound, TopicNotFound."""
        return int((await self._admin.lag(group, topic))["lag"])

    async def dead_letters(self, group: str) -> list[DeadLetter]:
        """All dead letters of *group*, oldest first; [] without the group."""
        found: list[DeadLetter] = []
        cursor = ""
        while True:
            try:
                page = await self._admin.dead_letters(group, limit=LETTERS_PER_PAGE, cursor=cursor)
            except GroupNotFound:
                return []
            found += map(dead_letter, page["messages"])
            cursor = page.get("next_cursor", "")
            if not cursor:
                return found
