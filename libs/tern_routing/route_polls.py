"""When name servers are asked for routes: on an interval, and at once (coalesced, at most ten times a second) when one proves wrong.

While routes are incomplete (no answer, a cold one, a group with nodes and no leader) they are asked for every second, whatever the
interval. What takes long to follow, because there are tens of thousands of topics, is followed less often.
Owner of the task: this object, in its event loop. Stale routes serve on while no name server answers.
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
# How often incomplete routes are asked for.
INCOMPLETE_INTERVAL_S = 1.0
# After routes were followed, so many times as long before the next poll: reading them takes as long again, so this is a tenth of the time.
POLL_PACE = 20


class RoutePolls(Generic[R]):
    """*on_routes* hears of every answer, with its mark. `is_reachable`: whether a name server answered the last poll."""

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
        self._following_s = 0.0
        self._wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Poll once, then go on polling in the background."""
        await self._poll()
        self._task = keep_running("routes", self._run)

    async def stop(self) -> None:
        """End polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def refresh_soon(self) -> None:
        """A route proved wrong: poll at once."""
        self._wanted.set()

    async def refresh(self) -> None:
        """Poll at once and wait for the answer, which is not older than this call."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wanted.set()
        await waiter

    async def _run(self) -> None:
        while True:
            # Not wait_for: in Python 3.11 it can lose a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    self._interval_s if self._is_complete() else min(self._interval_s, INCOMPLETE_INTERVAL_S)
                ):
                    await self._wanted.wait()
            self._wanted.clear()
            await self._poll()
            await self._sleep(max(POLL_INTERVAL_MIN_S, POLL_PACE * self._following_s))

    def _is_complete(self) -> bool:
        """Whether the last poll told who leads every broker group that lives."""
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
            # A bug: those who wait hear of it, and the next poll comes all the same.
            logger.exception("routes cannot be followed")
            problem = problem_of(error)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(problem)
        finally:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
