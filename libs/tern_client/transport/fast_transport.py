"""HTTP/1.1 over asyncio protocols with keep-alive: what the SDK uses where no forward proxy is in between. Needs httptools (llhttp), which every service has.

Measured against httpx in DESIGN.md beside this file. One request at a time per connection, no pipelining, no redirects, no cookies.
"""

import asyncio
import ssl
from collections import defaultdict
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from tern_client.transport.endpoints import path_prefix
from tern_client.transport.exchange import CONNECTIONS_MAX, Request, Response, lost_connection, unreachable

CONNECT_TIMEOUT_S = 3.0
# A page of records is the largest answer; anything near this is not from our proxy.
RESPONSE_SIZE_MAX_BYTES = 64 * 1024 * 1024


class Connection(asyncio.Protocol):
    """One connection and the request in flight on it. Owned by the transport's pool or by one exchange."""

    __slots__ = ("_answer", "_body", "_headers", "_parser", "_size_bytes", "_socket", "is_open", "is_reusable")

    def __init__(self) -> None:
        self._socket: asyncio.Transport | None = None
        self._answer: asyncio.Future[Response] | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size_bytes = 0
        self.is_open = False
        self.is_reusable = False

    def ask(self, head: bytes, body: bytes) -> "asyncio.Future[Response]":
        """Send a request; its response comes as the future's result, a lost connection as its ConnectionError."""
        assert self._socket
        self._answer = asyncio.get_running_loop().create_future()
        self.is_reusable = False
        if len(body) < 65_536:
            self._socket.write(head + body)
        else:
            self._socket.write(head)
            self._socket.write(body)
        return self._answer

    def expire(self) -> None:
        """The answer did not come in time."""
        self._fail(ConnectionError("no answer in time"))

    def close(self) -> None:
        """Drop the connection, with whatever is in flight."""
        self.is_open = self.is_reusable = False
        if self._socket:
            self._socket.abort()

    # asyncio.Protocol
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        self._socket = cast(asyncio.Transport, transport)  # uvloop's own class does not derive from asyncio's
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes of the answer."""
        if self._answer is None:
            self.close()  # an answer to nothing: out of step, not to be used again
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"no HTTP response: {error}"))

    def eof_received(self) -> None:
        """asyncio: the proxy will send no more."""
        self.is_reusable = False

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone, and what was in flight with it."""
        self.is_open = self.is_reusable = False
        self._fail(ConnectionError(str(exc) if exc else "the proxy closed the connection"))

    # httptools
    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        """httptools: a part of the body."""
        self._size_bytes += len(data)
        if self._size_bytes > RESPONSE_SIZE_MAX_BYTES:
            self._fail(ConnectionError(f"a response of more than {RESPONSE_SIZE_MAX_BYTES} bytes"))
            return
        self._body.append(data)

    def on_message_complete(self) -> None:
        """httptools: the answer is whole."""
        answer, self._answer = self._answer, None
        status = self._parser.get_status_code()
        response = Response(status, self._headers, self._body[0] if len(self._body) == 1 else b"".join(self._body))
        self._headers, self._body, self._size_bytes = {}, [], 0
        self.is_reusable = self.is_open and bool(self._parser.should_keep_alive())
        if answer and not answer.done():
            answer.set_result(response)

    def _fail(self, error: ConnectionError) -> None:
        answer, self._answer = self._answer, None
        if answer and not answer.done():
            answer.set_exception(error)
        self.close()


class FastTransport:
    """A pool of connections per endpoint. Owns them all; at most *connections_max* per endpoint, others wait their turn."""

    __slots__ = ("_heads", "_idle", "_is_closed", "_tls", "_turns")

    def __init__(self, connections_max: int = CONNECTIONS_MAX, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)
        self._turns = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(connections_max))
        self._heads: dict[str, str] = {}
        self._is_closed = False

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """As the protocol of transports says."""
        async with self._turns[endpoint]:
            connection = self._take_idle(endpoint) or await self._connect(endpoint, timeout_ms)
            answer = connection.ask(self._head(endpoint, request), request.body)
            # A timer instead of wait_for: no extra task or cancel scope on the path of every message.
            timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, connection.expire)
            try:
                response = await answer
            except ConnectionError as error:
                raise lost_connection(endpoint, error) from error
            except asyncio.CancelledError:
                connection.close()
                raise
            finally:
                timer.cancel()
            if connection.is_reusable and not self._is_closed:
                self._idle[endpoint].append(connection)
            else:
                connection.close()
            return response

    def _take_idle(self, endpoint: str) -> Connection | None:
        idle = self._idle[endpoint]
        while idle:
            connection = idle.pop()
            if connection.is_reusable:
                return connection
            connection.close()
        return None

    async def _connect(self, endpoint: str, timeout_ms: float) -> Connection:
        address = urlsplit(endpoint)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(min(timeout_ms / 1000, CONNECT_TIMEOUT_S)):
                tls = self._tls if address.scheme == "https" else None
                port = address.port or (443 if tls else 80)
                _, connection = await loop.create_connection(Connection, address.hostname or "", port, ssl=tls)
        except (OSError, TimeoutError) as error:
            raise unreachable(endpoint, error) from error
        return connection

    def _head(self, endpoint: str, request: Request) -> bytes:
        host = self._heads.get(endpoint)
        if host is None:
            host = self._heads[endpoint] = f" HTTP/1.1\r\nHost: {urlsplit(endpoint).netloc}\r\nContent-Length: "
        fields = "".join([f"{name}: {value}\r\n" for name, value in request.headers])
        return (
            f"{request.method} {path_prefix(endpoint)}{request.path}{host}{len(request.body)}\r\n{fields}\r\n".encode(
                "ascii"
            )
        )

    async def close(self) -> None:
        """Close all connections; one in use is closed when its answer has come."""
        self._is_closed = True
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # one turn of the loop, in which the sockets are closed
