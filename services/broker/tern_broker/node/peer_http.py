"""GET from another node, on threads with plain sockets: a gibibyte through httpx costs five seconds of a core that the group needs."""

import asyncio
import contextlib
import http.client
import socket
import ssl
from dataclasses import dataclass

from tern_http.blocking import BlockingPool, read_body

# The greatest reply that is believed: a piece of a file, or a manifest.
BODY_SIZE_MAX_BYTES = 8 << 20


class PeerUnreachable(Exception):
    """No answer, or none that can be read."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, the headers in lower case, the whole body."""

    status: int
    headers: dict[str, str]
    content: bytearray


class PeerHttp:
    """Connections to peers, kept while they live. Owner: one task; a request at a time uses a connection."""

    def __init__(self, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._timeout_s = timeout_s
        self._pool = BlockingPool(tls)

    async def get(self, url: str, target: str, headers: dict[str, str] | None = None) -> Reply:
        """GET *target* of the node at *url* (http://host:port, or https with TLS); PeerUnreachable."""
        while True:
            connection = self._pool.take(url, self._timeout_s)
            is_new = connection.sock is None
            try:
                return await self._ask(url, connection, target, headers or {})
            except PeerUnreachable:
                # One that was kept may have been closed by its peer in this very moment: then another one is tried.
                if is_new:
                    raise

    def close(self) -> None:
        """Close what is idle."""
        self._pool.close()

    async def _ask(
        self, url: str, connection: http.client.HTTPConnection, target: str, headers: dict[str, str]
    ) -> Reply:
        work = asyncio.get_running_loop().run_in_executor(None, _exchange, connection, target, headers)
        try:
            reply = await asyncio.shield(work)
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise PeerUnreachable(f"{url}: {error or type(error).__name__}") from error
        except asyncio.CancelledError:
            # The thread may still read from it: shut down, so that it ends, and closed when it has.
            if connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
            work.add_done_callback(lambda done: _abandon(done, connection))
            raise
        self._pool.keep(url, connection)
        return reply


def _exchange(connection: http.client.HTTPConnection, target: str, headers: dict[str, str]) -> Reply:
    connection.request("GET", target, headers=headers)
    reply = connection.getresponse()
    content = read_body(reply, size_max_bytes=BODY_SIZE_MAX_BYTES)
    return Reply(reply.status, {name.lower(): value for name, value in reply.headers.items()}, content)


def _abandon(work: "asyncio.Future[Reply]", connection: http.client.HTTPConnection) -> None:
    """Nobody waits for *work*, which has ended."""
    if not work.cancelled():
        work.exception()
    connection.close()
