"""One run of a worker, from its first receive to its last settlement.

    running --stop--> stopping: nothing begins, what runs may finish within `grace`
       |                 |--all ended--> settled --> closed
       '---- force ------'--force, cancellation, end of grace--> handlers ended --> closed

Law: whichever way a run ends, what no handler has seen is released first.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence

from tern_client.worker.broadcast import Broadcast
from tern_client.worker.subscription import Subscription
from tern_wire.times import duration_text

logger = logging.getLogger("tern_client.worker")
# The most time that a forced end takes for handlers that clean up, and for the last settles.
LAST_MOMENT_S = 2.0


class WorkerRun:
    """Owner of the subscriptions of one run."""

    __slots__ = ("_force", "_grace_ms", "_stop", "_subscriptions", "state")

    def __init__(self, subscriptions: Sequence[Subscription | Broadcast], grace_ms: int) -> None:
        self._subscriptions = subscriptions
        self._grace_ms = grace_ms
        self._stop, self._force = asyncio.Event(), asyncio.Event()
        self.state = "running"

    def stop(self) -> None:
        """Stop in order."""
        self._stop.set()

    def force(self) -> None:
        """Stop at once."""
        self._force.set()
        self._stop.set()

    @property
    def problem(self) -> str:
        """Why a subscription cannot receive; "" while all can."""
        return next((each.problem for each in self._subscriptions if each.problem), "")

    async def run(self) -> None:
        """Run until `stop`. Raises the error of a subscription that can never receive. A
        cancellation forces the end.
        """
        tasks = [each.start() for each in self._subscriptions]
        stopping = asyncio.get_running_loop().create_task(self._stop.wait())
        try:
            await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._force.set()
            raise
        finally:
            stopping.cancel()
            self._stop.set()
            self.state = "stopping"
            await self._end()
            self.state = "stopped"
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _end(self) -> None:
        """End in a task of its own: a cancellation is a usual reason, and must not cut it."""
        ending = asyncio.get_running_loop().create_task(self._end_in_order())
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                if ending.cancelled():
                    raise
                self._force.set()

    async def _end_in_order(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._grace_ms / 1000
        try:
            stopped = loop.create_task(self._all(each.stop_receiving() for each in self._subscriptions))
            await self._within(stopped, until_s - loop.time())
            await self._last_moment(stopped)
            drained = loop.create_task(self._all(each.drain() for each in self._subscriptions))
            await self._within(drained, until_s - loop.time())
            if self._is_busy:
                if not self._force.is_set():
                    logger.warning("handlers still run after %s and are ended", duration_text(self._grace_ms))
                for each in self._subscriptions:
                    each.force()
            await self._last_moment(drained)
        finally:
            await self._last_moment(loop.create_task(self._all(each.close() for each in self._subscriptions)))

    @property
    def _is_busy(self) -> bool:
        return any(each.is_busy for each in self._subscriptions)

    @staticmethod
    async def _all(works: Iterable[Coroutine[None, None, None]]) -> None:
        await asyncio.gather(*works)

    async def _within(self, work: asyncio.Task[None], limit_s: float) -> None:
        """Wait until *work* is done, the time is over, or the end is forced."""
        forced = asyncio.get_running_loop().create_task(self._force.wait())
        await asyncio.wait({work, forced}, timeout=max(limit_s, 0), return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()

    @staticmethod
    async def _last_moment(work: asyncio.Task[None]) -> None:
        """Wait for *work* a moment, then end it. Its error is raised."""
        await asyncio.wait({work}, timeout=LAST_MOMENT_S)
        if work.done():
            work.result()
        else:
            work.cancel()
            await asyncio.wait({work}, timeout=LAST_MOMENT_S)
