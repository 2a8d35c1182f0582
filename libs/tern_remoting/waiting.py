"""Requests that wait for their reply on one link. Owner: that link, in its loop's thread.

Law: a timeout costs no loop timer. One timer serves them all; it is set to the earliest deadline,
rounded up to the sweep interval, and most replies arrive long before it fires.
"""

import asyncio
import math
from collections.abc import Callable

from tern_remoting.errors import LinkError, LinkTimeout
from tern_remoting.frames import Frame

# The largest delay of a timeout; also the shortest time between two sweeps.
SWEEP_INTERVAL_S = 0.05


class Waiting:
    """Futures by opaque, with their deadlines."""

    __slots__ = ("_loop", "_replies", "_sweep_at", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._replies: dict[int, tuple[asyncio.Future[Frame], float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_at = math.inf

    def __len__(self) -> int:
        return len(self._replies)

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._replies

    def add(self, opaque: int, timeout_s: float) -> asyncio.Future[Frame]:
        """The future of *opaque*'s reply; LinkTimeout at most one sweep after *timeout_s*."""
        future: asyncio.Future[Frame] = self._loop.create_future()
        deadline = self._loop.time() + timeout_s
        self._replies[opaque] = (future, deadline)
        if deadline < self._sweep_at:
            self._arm(deadline)
        return future

    def discard(self, opaque: int) -> None:
        """Drop the wait for *opaque*."""
        self._replies.pop(opaque, None)

    def resolve(self, frame: Frame) -> None:
        """Complete a request; a reply without one came too late and is dropped."""
        entry = self._replies.pop(frame.opaque, None)
        if entry is not None and not entry[0].done():
            entry[0].set_result(frame)

    def fail(self, error: Callable[[], LinkError]) -> None:
        """End every wait with an error of its own, and the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        replies, self._replies = self._replies, {}
        for future, _ in replies.values():
            if not future.done():
                future.set_exception(error())

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._sweep_at = math.ceil(deadline / SWEEP_INTERVAL_S) * SWEEP_INTERVAL_S
        self._timer = self._loop.call_at(self._sweep_at, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        self._timer = None
        self._sweep_at = math.inf
        late = sorted((deadline, opaque) for opaque, (_, deadline) in self._replies.items() if deadline <= now)
        for _, opaque in late:
            future, _ = self._replies.pop(opaque)
            if not future.done():
                future.set_exception(LinkTimeout("no reply in time"))
        if self._replies:
            self._arm(max(now + SWEEP_INTERVAL_S / 2, min(deadline for _, deadline in self._replies.values())))


class PendingReply:
    """A request under way.
    `wait` is awaited once and ends its place among the requests in flight.
    """

    __slots__ = ("_future", "_opaque", "_waiting")

    def __init__(self, waiting: Waiting, opaque: int, timeout_s: float) -> None:
        self._waiting, self._opaque = waiting, opaque
        self._future = waiting.add(opaque, timeout_s)

    async def wait(self) -> Frame:
        """The reply; LinkTimeout, LinkClosed, or the error of `give_up`."""
        try:
            return await self._future
        finally:
            self._waiting.discard(self._opaque)

    def give_up(self, error: LinkError) -> None:
        """End the wait with *error* unless the reply arrives in this turn of the loop.
        Frames of two links that are read in one turn come in any order.
        """
        self._future.get_loop().call_soon(self._end, error)

    def _end(self, error: LinkError) -> None:
        if not self._future.done():
            self._future.set_exception(error)
