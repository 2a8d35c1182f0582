"""GET from another node, on threads with plain sockets: a gibibyte through httpx costs five seconds
of a core that the group needs.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
from dataclasses import dataclass

from tern_http.blocking import BlockingPool, read_body

# The largest accepted reply: a piece of a file, or a manifest.
BODY_SIZE_MAX_BYTES = 8 << 20


class PeerUnreachable(Exception):
    """No answer, or an unreadable one."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, the headers in lower case, the whole body."""

    status: int
    headers: dict[str, str]
    content: bytearray


class PeerHttp:
    """Connections to peers, kept open. Owner: one task; a connection carries one request at a
    time.
    """

    def __init__(self, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self._timeout_s = timeout_s
        self._pool = BlockingPool(tls)

    async def get(self, url: str, target: str, headers: dict[str, str] | None = None) -> Reply:
        """GET *target* of the node at *url* (http://host:port, or https with TLS);
        PeerUnreachable.
        """
        while True:
            connection = self._pool.take(url, self._timeout_s)
            is_new = connection.sock is None
            try:
                return await self._ask(url, connection, target, headers or {})
            except PeerUnreachable:
                # The peer may have closed a kept connection at this very moment: then another one
                # is tried.
                if is_new:
                    raise

    def close(self) -> None:
        """Close the idle connections."""
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
            # The thread may still read from it: shut the connection down, so that the thread ends,
            # and close it then.
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
    """Consume the result of *work*, which has ended after its caller was cancelled."""
    if not work.cancelled():
        work.exception()
    connection.close()
