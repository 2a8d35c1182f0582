"""What all clients share: their connections, the calls over them, and how they end. One shell for asyncio, one for threads.

      open --close()--> closed: nothing new begins; what waits is sent (`_finish`) --> connections closed --> over

Law: a closed client refuses at once, with an error that says what to do. It never opens a connection again, since nobody would
close that one.
"""

import asyncio
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import ClassVar, Self, TypeVar

from tern_client.transport.blocking_transport import BlockingCaller, BlockingTransport
from tern_client.transport.calling import Course, Outcome, Step, call
from tern_client.transport.credentials import FileName
from tern_client.transport.exchange import Request, Response
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import AsyncCaller, Transport, now_ms
from tern_wire.errors import TernError

T = TypeVar("T")


class ClientClosed(TernError):
    """The client was closed before, or while this waited; nothing was sent for it. Never on the wire."""

    code: ClassVar[str] = "client-closed"
    status: ClassVar[int] = 409
    title: ClassVar[str] = "The client is closed"
    fix: ClassVar[str] = (
        "This {client} is closed. Make a new one, or close this one only after its last use, such as at the end of a `with`."
    )


class AsyncClient:
    """A client for one event loop. Owner of its connections."""

    __slots__ = ("_caller", "_is_closed", "_is_over")

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
        """*namespace*: all topics and groups that this client names are in it. InvalidField, EndpointMalformed."""
        self._caller = AsyncCaller(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._is_closed = False
        self._is_over = asyncio.Event()

    async def close(self) -> None:
        """Finish what waits and close all connections. Once: whoever closes again returns when the first is done."""
        if self._is_closed:
            await self._is_over.wait()
            return
        self._is_closed = True
        try:
            try:
                await self._finish()
            finally:
                await self._caller.close()
        finally:
            self._is_over.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _finish(self) -> None:
        """What a client still has to do when nothing new may begin."""

    @property
    def _course(self) -> Course:
        return self._caller.course

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(client=type(self).__name__)

    async def _drive(self, steps: Generator[Step, Outcome, T]) -> T:
        """As AsyncCaller.drive, while this is open."""
        self._check_open()
        return await self._caller.drive(steps)

    async def _call(self, request: Request) -> Response:
        return await self._drive(call(self._course, request, now_ms()))


class BlockingClient:
    """A client for threads; may be shared between them unless a subclass says otherwise. Owner of its connections."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        """As AsyncClient."""
        self._caller = BlockingCaller(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._is_closed = False

    def close(self) -> None:
        """Finish what waits and close all connections. Closing again does nothing; calls of other threads end as they may."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._finish()
        finally:
            self._caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _finish(self) -> None:
        """What a client still has to do when nothing new may begin."""

    @property
    def _course(self) -> Course:
        return self._caller.course

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(client=type(self).__name__)

    def _drive(self, steps: Generator[Step, Outcome, T]) -> T:
        """As BlockingCaller.drive, while this is open."""
        self._check_open()
        return self._caller.drive(steps)

    def _call(self, request: Request) -> Response:
        return self._drive(call(self._course, request, now_ms()))
