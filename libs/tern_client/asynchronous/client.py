"""The parts that all clients share: their connections, the calls over them, and their end.

    open --close()--> closed: nothing new begins; the rest is sent (`_finish`)
             --> connections closed --> over

Law: a closed client refuses every call at once with ClientClosed. It never opens a connection
again, since nothing would close that one.
"""

from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from tern_client.closing import ClientClosed, Closing
from tern_client.transport.calling import Course, Outcome, Step, call
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.exchange import Request, Response
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import AsyncCaller, Transport

T = TypeVar("T")


class AsyncClient:
    """A client for one event loop. Owner of its connections."""

    __slots__ = ("_caller", "_first_close", "_is_closed")

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: Transport | None = None,
    ) -> None:
        """*namespace*: all topics and groups of this client's calls are in it. InvalidField,
        EndpointMalformed.
        """
        self._caller = AsyncCaller(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._is_closed = False
        self._first_close = Closing()

    @property
    def is_closed(self) -> bool:
        """Whether `close` has begun."""
        return self._is_closed

    async def close(self) -> None:
        """Send what waits and close all connections, once.

        In asyncio a second `close` returns when the first is done. Between threads it returns at
        once, and calls of other threads may fail.
        """
        if self._is_closed:
            await self._first_close.wait()
            return
        self._is_closed = True
        try:
            try:
                await self._finish()
            finally:
                await self._caller.close()
        finally:
            self._first_close.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _finish(self) -> None:
        """Do the rest of a client's work after its last call."""

    @property
    def _course(self) -> Course:
        return self._caller.course

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(client=type(self).__name__)

    async def _drive(self, steps: Generator[Step, Outcome, T]) -> T:
        """Drive *steps* while the client is open; ClientClosed."""
        self._check_open()
        return await self._caller.drive(steps)

    async def _call(self, request: Request) -> Response:
        return await self._drive(call(self._course, request, now_ms()))
