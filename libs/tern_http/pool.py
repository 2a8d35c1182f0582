"""Idle connections by origin: kept after an answer and reused, the last one first.

Owner of the idle connections: the pool, in its event loop. A connection in use belongs to its
exchange.
"""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Hashable

from tern_http.connection import HttpConnection
from tern_http.exchange import BrokenOff, HttpAnswer


class Pool:
    """Idle connections to any number of origins, which are the owner's keys."""

    __slots__ = ("_count", "_idle", "_idle_max", "_idle_s", "_is_aging", "_is_closed", "_life_s", "_sweep")

    def __init__(self, *, idle_max: int = sys.maxsize, idle_s: float = math.inf, life_s: float = math.inf) -> None:
        """*idle_max*: connections of all origins.
        *idle_s*, *life_s*: limits of idle time and of age.
        """
        self._idle: dict[Hashable, list[HttpConnection]] = {}
        self._idle_max, self._idle_s, self._life_s = idle_max, idle_s, life_s
        self._is_aging = min(idle_s, life_s) < math.inf
        self._count = 0
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def take(self, origin: Hashable) -> HttpConnection | None:
        """Take the connection used last, None if there is none; unusable ones are closed."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            self._count -= 1
            if connection.is_reusable and (not self._is_aging or self._is_young(connection)):
                return connection
            connection.close()
        return None

    def keep(self, origin: Hashable, connection: HttpConnection) -> None:
        """Return a connection after its answer. It is closed if unusable or without room."""
        if not connection.is_reusable or self._is_closed or self._count >= self._idle_max:
            connection.close()
            return
        idle = self._idle.get(origin)
        if idle is None:
            idle = self._idle[origin] = []
        idle.append(connection)
        self._count += 1
        if self._is_aging:
            connection.idle_since_s = asyncio.get_running_loop().time()
            if self._sweep is None:
                self._sweep_later()

    async def exchange(
        self,
        origin: Hashable,
        request: bytes,
        connect: Callable[[], Awaitable[HttpConnection]],
        *,
        silence_max_s: float | None = None,
    ) -> HttpAnswer:
        """The answer to *request* on an idle connection, or on a new one of *connect*.
        Errors of HttpConnection.ask. Only for repeatable requests: on a connection that its peer
        has closed meanwhile, the request fails and is sent once more.
        """
        while (idle := self.take(origin)) is not None:
            try:
                return await self._ask(origin, idle, request, silence_max_s)
            except BrokenOff as error:
                if not error.is_stale:
                    raise
        return await self._ask(origin, await connect(), request, silence_max_s)

    def close(self) -> None:
        """Close all idle connections; one in use is closed after its answer."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()
        self._count = 0

    async def _ask(
        self, origin: Hashable, connection: HttpConnection, request: bytes, silence_max_s: float | None
    ) -> HttpAnswer:
        answer = await connection.ask(request, silence_max_s=silence_max_s)
        self.keep(origin, connection)
        return answer

    def _is_young(self, connection: HttpConnection) -> bool:
        now_s = asyncio.get_running_loop().time()
        return now_s - connection.made_s < self._life_s and now_s - connection.idle_since_s < self._idle_s

    def _close_stale(self) -> None:
        """Close connections that were idle for too long; repeated while there are any."""
        for origin, idle in list(self._idle.items()):
            kept = [connection for connection in idle if connection.is_reusable and self._is_young(connection)]
            for connection in idle:
                if connection not in kept:
                    connection.close()
            self._count -= len(idle) - len(kept)
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]
        self._sweep = None
        if self._idle:
            self._sweep_later()

    def _sweep_later(self) -> None:
        after_s = min(self._idle_s, self._life_s)
        self._sweep = asyncio.get_running_loop().call_later(after_s, self._close_stale)
