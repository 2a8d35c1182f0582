# Made by `make blocking` from the file of this name in asynchronous/. Change that one.
"""The parts that all clients share: their connections, the calls over them, and their end.

    open --close()--> closed: nothing new begins; the rest is sent (`_finish`)
             --> connections closed --> over

Law: a closed client refuses every call at once with ClientClosed. It never opens a connection
again, since nothing would close that one.
"""

from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Self, TypeVar

from tern_client.closing import BlockingClosing, ClientClosed
from tern_client.transport.blocking_transport import BlockingCaller, BlockingTransport
from tern_client.transport.calling import Course, Outcome, Step, call
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.exchange import Request, Response
from tern_client.transport.retrying import RetryPolicy

T = TypeVar("T")


class BlockingClient:
    """A client for threads, which may share it. Owner of its connections."""

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
        """*namespace*: all topics and groups of this client's calls are in it. InvalidField,
        EndpointMalformed.
        """
        self._caller = BlockingCaller(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._is_closed = False
        self._first_close = BlockingClosing()

    @property
    def is_closed(self) -> bool:
        """Whether `close` has begun."""
        return self._is_closed

    def close(self) -> None:
        """Send what waits and close all connections, once.

        In asyncio a second `close` returns when the first is done. Between threads it returns at
        once, and calls of other threads may fail.
        """
        if self._is_closed:
            self._first_close.wait()
            return
        self._is_closed = True
        try:
            try:
                self._finish()
            finally:
                self._caller.close()
        finally:
            self._first_close.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _finish(self) -> None:
        """Do the rest of a client's work after its last call."""

    @property
    def _course(self) -> Course:
        return self._caller.course

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(client=type(self).__name__)

    def _drive(self, steps: Generator[Step, Outcome, T]) -> T:
        """Drive *steps* while the client is open; ClientClosed."""
        self._check_open()
        return self._caller.drive(steps)

    def _call(self, request: Request) -> Response:
        return self._drive(call(self._course, request, now_ms()))
