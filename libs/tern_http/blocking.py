"""http.client with a pool, for threads: connections by URL, kept while they live.

Measured in the design notes of `tern_client`: http.client costs a quarter of httpx's CPU, and 80 ms less at start-up.
"""

import http.client
import ssl
import threading
from urllib.parse import urlsplit

_ASIDE = (BlockingIOError, ssl.SSLWantReadError)


def connection_to(url: str, *, timeout_s: float, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection to the host and port of *url* that opens with its first request, or by `connect`. *tls*: for https, None for what
    the machine trusts. *timeout_s*: of each wait for its socket. ValueError when *url* has no such port."""
    place = urlsplit(url)
    host = place.hostname or ""
    if place.scheme == "https":
        return http.client.HTTPSConnection(host, place.port or 443, timeout=timeout_s, context=tls)
    return http.client.HTTPConnection(host, place.port or 80, timeout=timeout_s)


class BlockingPool:
    """Idle connections by URL. Owner of those: the pool; any thread may take and keep. The lock guards the lists only."""

    __slots__ = ("_idle", "_is_closed", "_lock", "_tls")

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._idle: dict[str, list[http.client.HTTPConnection]] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def take(self, url: str, timeout_s: float) -> http.client.HTTPConnection:
        """One that is open, or a new one, whose `sock` is None. It is the caller's, who keeps or closes it."""
        while True:
            with self._lock:
                idle = self._idle.get(url)
                connection = idle.pop() if idle else None
            if connection is None:
                return connection_to(url, timeout_s=timeout_s, tls=self._tls)
            if connection.sock is not None and not _is_cut(connection):
                connection.sock.settimeout(timeout_s)
                return connection

    def keep(self, url: str, connection: http.client.HTTPConnection) -> None:
        """An answer was read from it to the end. It is closed when the pool was closed in the meantime."""
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(url, []).append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all connections; one in use is closed when its answer has come."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()


def read_body(answer: http.client.HTTPResponse, *, size_max_bytes: int) -> bytearray:
    """The body of *answer*, received into one buffer of its announced size. ValueError when it announces none, or more than
    *size_max_bytes*, or ends before."""
    size_bytes = int(answer.headers.get("content-length", "-1"))
    if not 0 <= size_bytes <= size_max_bytes:
        raise ValueError(f"an answer of {size_bytes} bytes")
    body = bytearray(size_bytes)
    view, at = memoryview(body), 0
    while at < size_bytes:
        count = answer.readinto(view[at:])
        if not count:
            raise ValueError(f"an answer that ends after {at} of {size_bytes} bytes")
        at += count
    answer.read()
    return body


def _is_cut(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed an idle connection: there is something to read where nothing was asked. Closes it then."""
    sock = connection.sock
    sock.settimeout(0)
    try:
        sock.recv(1)
    except _ASIDE:
        return False
    except OSError:
        pass
    connection.close()
    return True
