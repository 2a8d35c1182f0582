"""Routes from the name servers: polled on an interval, and at once (coalesced, at most ten times a second) when one proves wrong.

Owner of the topics and of the last routes: this object, in its event loop. Stale routes serve on while no name server answers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

import httpx

from tern_proxy.core.topic import Topic
from tern_wire.codec import read_json
from tern_wire.errors import NoNameServer, TernError, TopicNotFound, WarmingUp
from tern_wire.names import check_topic
from tern_wire.paths import ROUTES_PATH
from tern_wire.route import Routes, TopicRoute

logger = logging.getLogger(__name__)

POLL_INTERVAL_MIN_S = 0.1
NAMESRV_TIMEOUT_S = 1.0
# A topic that this proxy created is kept until the name servers know it, but not longer than this.
CREATED_KEPT_S = 30.0


class NameServers(Protocol):
    """Where routes come from."""

    endpoints: str

    async def fetch(self) -> tuple[bytes, Routes]:
        """The answer's bytes and what they say; NoNameServer when nobody answers."""
        ...


class HttpNameServers:
    """Name servers over HTTP. The one that answered last is asked first; a warm answer is preferred to a cold one."""

    def __init__(self, urls: tuple[str, ...], client: httpx.AsyncClient) -> None:
        self.endpoints = ", ".join(urls)
        self._urls = list(urls)
        self._client = client
        # The last answer of each, so that an unchanged one costs neither bytes nor parsing.
        self._answers: dict[str, tuple[str, bytes, Routes]] = {}

    async def fetch(self) -> tuple[bytes, Routes]:
        """As NameServers.fetch."""
        cold: tuple[bytes, Routes] | None = None
        for url in list(self._urls):
            try:
                data, routes = await self._ask(url)
            except (httpx.HTTPError, httpx.InvalidURL, TernError) as error:
                logger.debug("a name server does not answer", extra={"url": url, "error": repr(error)})
                continue
            if routes.warm:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return data, routes
            cold = cold or (data, routes)
        if cold is None:
            raise NoNameServer(endpoints=self.endpoints)
        return cold

    async def _ask(self, url: str) -> tuple[bytes, Routes]:
        known = self._answers.get(url)
        headers = {} if known is None else {"if-none-match": known[0]}
        answer = await self._client.get(url.rstrip("/") + ROUTES_PATH, headers=headers, timeout=NAMESRV_TIMEOUT_S)
        if answer.status_code == 304 and known is not None:
            return known[1], known[2]
        if answer.status_code != 200:
            raise NoNameServer(endpoints=url)
        routes = read_json(answer.content, Routes)
        self._answers[url] = (answer.headers.get("etag", ""), answer.content, routes)
        return answer.content, routes


class RoutesCache:
    """The topics and broker groups that this proxy knows. `on_routes` hears of every change."""

    def __init__(
        self,
        name_servers: NameServers,
        *,
        interval_ms: int,
        on_routes: Callable[[Routes], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name_servers = name_servers
        self._interval_s = interval_ms / 1_000
        self._on_routes = on_routes
        self._sleep = sleep
        self.topics: dict[str, Topic] = {}
        self.routes: Routes | None = None
        self.is_reachable = False
        self._created: dict[tuple[str, str], tuple[TopicRoute, float]] = {}
        self._last = b""
        self._wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Poll once, then go on polling in the background."""
        await self._poll()
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End polling."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def endpoints(self) -> str:
        """The name servers, for people."""
        return self._name_servers.endpoints

    def refresh_soon(self) -> None:
        """A route proved wrong: poll at once."""
        self._wanted.set()

    async def refresh(self) -> None:
        """Poll at once and wait for the answer, which is not older than this call."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wanted.set()
        await waiter

    async def topic(self, name: str) -> Topic:
        """The topic; TopicNotFound only when a warm name server says so, else WarmingUp or NoNameServer."""
        found = self.topics.get(name)
        if found is not None:
            return found
        check_topic(name)
        await self.refresh()
        found = self.topics.get(name)
        if found is not None:
            return found
        if self.routes is None or not self.is_reachable:
            raise NoNameServer(endpoints=self._name_servers.endpoints)
        if not self.routes.warm:
            raise WarmingUp()
        raise TopicNotFound(topic=name)

    def insert(self, topic: str, broker_group: str, route: TopicRoute) -> None:
        """A topic that was just created: known at once, and kept until the name servers know it too."""
        until = asyncio.get_running_loop().time() + CREATED_KEPT_S
        self._created[topic, broker_group] = (route, until)
        self._last = b""
        if self.routes is not None:
            self._take(self.routes)

    # Polling ----------------------------------------------------------------------------------------------------
    async def _run(self) -> None:
        while True:
            # Not wait_for: in Python 3.11 it can lose a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._wanted.wait()
            self._wanted.clear()
            await self._poll()
            await self._sleep(POLL_INTERVAL_MIN_S)

    async def _poll(self) -> None:
        waiters, self._waiters = self._waiters, []
        try:
            data, routes = await self._name_servers.fetch()
            if not self.is_reachable:
                logger.info("a name server answers", extra={"warm": routes.warm, "topics": len(routes.topics)})
            self.is_reachable = True
            if data != self._last or self._created:
                self._last = data
                self._take(routes)
        except NoNameServer as error:
            if self.is_reachable or self.routes is None:
                logger.warning("no name server answers", extra={"detail": error.detail})
            self.is_reachable = False
        finally:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _take(self, routes: Routes) -> None:
        now = asyncio.get_running_loop().time()
        cold = self.routes is not None and not routes.warm
        self.routes = routes
        merged = {name: dict(route) for name, route in routes.topics.items()}
        for (name, broker_group), (route, until) in list(self._created.items()):
            known = merged.get(name, {}).get(broker_group)
            if (known is not None and known.queues >= route.queues) or now > until:
                del self._created[name, broker_group]
            else:
                merged.setdefault(name, {})[broker_group] = route
        # A name server that has just started forgets nothing on our behalf.
        topics = dict(self.topics) if cold else {}
        for name, route_of in merged.items():
            old = self.topics.get(name)
            if old is not None and old.route == route_of:
                topics[name] = old
            elif route_of:
                topics[name] = Topic(name, route_of, 0 if old is None else old.turn)
        self.topics = topics
        self._on_routes(routes)
