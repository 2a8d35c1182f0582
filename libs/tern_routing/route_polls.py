"""Polling of routes: on an interval, and at once when a route proves wrong.

Immediate polls are coalesced, at most ten a second. While routes are incomplete (no answer, a cold
one, a group with nodes and no leader) the interval is a fraction of a second at first, since a mesh
that starts is soon complete, and grows to one second. Routes that take long to apply, for tens of
thousands of topics, are polled less often. Owner of the task: this object, in its event
loop. Stale routes stay in use while no name server answers.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Generic

from tern_remoting import problem_of
from tern_routing.name_servers import R, Routing
from tern_tasks import keep_running
from tern_wire.errors import NoNameServer

logger = logging.getLogger(__name__)

POLL_INTERVAL_MIN_S = 0.1
# The interval for incomplete routes: the first one, its growth from poll to poll, the longest.
INCOMPLETE_FIRST_S, INCOMPLETE_GROWTH, INCOMPLETE_INTERVAL_S = 0.02, 1.5, 1.0
# The pause after applying routes, as a multiple of that time: reading takes as long again, so
# polling uses a tenth of the time.
POLL_PACE = 20


class RoutePolls(Generic[R]):
    """Polls one source. *on_routes* receives every answer, with its mark.
    `is_reachable`: whether a name server answered the last poll.
    """

    def __init__(
        self,
        routing: Routing[R],
        *,
        interval_ms: int,
        on_routes: Callable[[bytes, R], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.routing = routing
        self.is_reachable = False
        self._interval_s = interval_ms / 1_000
        self._on_routes, self._sleep = on_routes, sleep
        self._last: R | None = None
        self._is_told_down = False
        self._incomplete_s = INCOMPLETE_FIRST_S
        self._following_s = 0.0
        self._wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Poll once, then continue in the background."""
        await self._poll()
        self._task = keep_running("routes", self._run)

    async def stop(self) -> None:
        """End polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def refresh_soon(self) -> None:
        """Poll at once: a route proved wrong."""
        self._wanted.set()

    async def refresh(self) -> None:
        """Poll at once and wait for an answer that is not older than this call."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wanted.set()
        await waiter

    async def _run(self) -> None:
        while True:
            # Not wait_for: in Python 3.11 it can lose a cancellation that coincides with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._next_interval_s()):
                    await self._wanted.wait()
            self._wanted.clear()
            await self._poll()
            await self._sleep(max(POLL_INTERVAL_MIN_S, POLL_PACE * self._following_s))

    def _next_interval_s(self) -> float:
        if self._is_complete():
            self._incomplete_s = INCOMPLETE_FIRST_S
            return self._interval_s
        interval_s = min(self._interval_s, self._incomplete_s, INCOMPLETE_INTERVAL_S)
        self._incomplete_s = min(INCOMPLETE_INTERVAL_S, self._incomplete_s * INCOMPLETE_GROWTH)
        return interval_s

    def _is_complete(self) -> bool:
        """Whether the last poll named a leader for every broker group with nodes."""
        if self._last is None or not self.is_reachable or not self._last.warm:
            return False
        led = [bool(group.leader) for group in self._last.broker_groups.values() if group.nodes]
        return bool(led) and all(led)

    async def _poll(self) -> None:
        waiters, self._waiters = self._waiters, []
        self._following_s = 0.0
        now = asyncio.get_running_loop().time
        try:
            mark, routes = await self.routing.fetch()
            if not self.is_reachable:
                logger.info("a name server answers", extra={"warm": routes.warm})
            self.is_reachable, self._is_told_down, self._last = True, False, routes
            began_s = now()
            self._on_routes(mark, routes)
            self._following_s = now() - began_s
        except NoNameServer as error:
            if not self._is_told_down:
                logger.warning("no name server answers", extra={"detail": error.detail})
            self.is_reachable, self._is_told_down = False, True
        except Exception as error:
            # A bug: the waiters receive it, and the next poll follows as usual.
            logger.exception("routes cannot be followed")
            problem = problem_of(error)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(problem)
        finally:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
