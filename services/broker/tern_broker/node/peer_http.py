"""GET from another node, on threads with plain sockets: a gibibyte through httpx costs five seconds of a core that the group needs.

The body is received straight into one buffer of its announced size.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
from collections import defaultdict
from dataclasses import dataclass
from urllib.parse import urlsplit

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
        self._timeout_s, self._tls = timeout_s, tls
        self._idle: dict[str, list[http.client.HTTPConnection]] = defaultdict(list)

    async def get(self, url: str, target: str, headers: dict[str, str] | None = None) -> Reply:
        """GET *target* of the node at *url* (http://host:port, or https with TLS); PeerUnreachable."""
        idle = self._idle[url]
        # One that was kept may have been closed by its peer meanwhile: then a new one is tried, once.
        while idle:
            try:
                return await self._ask(url, idle.pop(), target, headers or {})
            except PeerUnreachable:
                continue
        place = urlsplit(url)
        host, port, timeout_s = place.hostname or "", place.port, self._timeout_s
        fresh = (
            http.client.HTTPConnection(host, port, timeout=timeout_s)
            if self._tls is None
            else http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        )
        return await self._ask(url, fresh, target, headers or {})

    def close(self) -> None:
        """Close what is idle."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
            idle.clear()

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
        self._idle[url].append(connection)
        return reply


def _exchange(connection: http.client.HTTPConnection, target: str, headers: dict[str, str]) -> Reply:
    connection.request("GET", target, headers=headers)
    reply = connection.getresponse()
    size = int(reply.headers.get("content-length", "-1"))
    if not 0 <= size <= BODY_SIZE_MAX_BYTES:
        raise ValueError(f"an answer of {size} bytes")
    content = bytearray(size)
    view, at = memoryview(content), 0
    while at < size:
        count = reply.readinto(view[at:])
        if not count:
            raise ValueError(f"an answer that ends after {at} of {size} bytes")
        at += count
    reply.read()
    return Reply(reply.status, {name.lower(): value for name, value in reply.headers.items()}, content)


def _abandon(work: "asyncio.Future[Reply]", connection: http.client.HTTPConnection) -> None:
    """Nobody waits for *work*, which has ended."""
    if not work.cancelled():
        work.exception()
    connection.close()
