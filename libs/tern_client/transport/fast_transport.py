"""HTTP/1.1 over asyncio with keep-alive, for connections without a forward proxy.

Measured against httpx in DESIGN.md of the folder above. One request at a time per connection, no
pipelining, no redirects, no cookies.
"""

import asyncio
import ssl
from collections import defaultdict
from urllib.parse import urlsplit

from tern_client.transport.endpoints import path_prefix
from tern_client.transport.exchange import CONNECTIONS_MAX, Request, Response, lost_connection, unreachable
from tern_http.connection import HttpConnection, connect
from tern_http.exchange import BrokenOff, ExchangeFailed
from tern_http.pool import Pool
from tern_wire.errors import OutcomeUnknown

CONNECT_TIMEOUT_S = 3.0
# A page of records is the largest answer. An answer near this size is not from a TernMQ proxy.
RESPONSE_SIZE_MAX_BYTES = 64 * 1024 * 1024


class FastTransport:
    """A pool of connections per endpoint. At most *connections_max* are in use per endpoint;
    further requests wait.
    """

    __slots__ = ("_heads", "_pool", "_tls", "_turns")

    def __init__(self, connections_max: int = CONNECTIONS_MAX, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._pool = Pool()
        self._turns = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(connections_max))
        self._heads: dict[str, str] = {}

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """Send *request* and return the whole response; ProxyUnreachable, OutcomeUnknown."""
        async with self._turns[endpoint]:
            connection = self._pool.take(endpoint) or await self._connect(endpoint, timeout_ms)
            answer = connection.begin(self._head(endpoint, request), request.body)
            # A timer instead of wait_for: no extra task or cancel scope on the path of every
            # message.
            timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, connection.expire)
            try:
                response = await answer
            except ExchangeFailed as error:
                raise _lost(endpoint, error) from error
            except asyncio.CancelledError:
                connection.close()
                raise
            finally:
                timer.cancel()
            self._pool.keep(endpoint, connection)
            return response

    async def _connect(self, endpoint: str, timeout_ms: float) -> HttpConnection:
        address = urlsplit(endpoint)
        host, tls = address.hostname or "", self._tls if address.scheme == "https" else None
        try:
            async with asyncio.timeout(min(timeout_ms / 1000, CONNECT_TIMEOUT_S)):
                return await connect(
                    host,
                    address.port or (443 if tls else 80),
                    server_name=host,
                    tls=tls,
                    body_size_max_bytes=RESPONSE_SIZE_MAX_BYTES,
                    # A message's properties are headers.
                    head_size_max_bytes=RESPONSE_SIZE_MAX_BYTES,
                    # Proxies always send the length of an answer. An answer that ends without one
                    # was cut off.
                    may_end_by_closing=False,
                )
        except (OSError, TimeoutError) as error:
            raise unreachable(endpoint, error) from error

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
        """Close all connections; a connection in use is closed when its answer has come."""
        self._pool.close()
        await asyncio.sleep(0)  # one turn of the loop, in which the sockets are closed


def _lost(endpoint: str, error: ExchangeFailed) -> OutcomeUnknown:
    if isinstance(error, BrokenOff):
        return lost_connection(endpoint, error.__cause__ or "the proxy closed the connection")
    return lost_connection(endpoint, error)
