"""http.client with a pool, for threads: connections by URL, kept while they are open.

Measured in the design notes of `tern_client`: http.client costs a quarter of httpx's CPU, and 80 ms
less at start-up.
"""

import http.client
import ssl
import threading
from urllib.parse import urlsplit

_ASIDE = (BlockingIOError, ssl.SSLWantReadError)


def connection_to(url: str, *, timeout_s: float, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection to *url*'s host and port, opened by its first request or by `connect`.
    *tls*: for https, None for the machine's trust store. *timeout_s*: of each wait for its socket.
    ValueError if *url* has no valid port.
    """
    place = urlsplit(url)
    host = place.hostname or ""
    if place.scheme == "https":
        return http.client.HTTPSConnection(host, place.port or 443, timeout=timeout_s, context=tls)
    return http.client.HTTPConnection(host, place.port or 80, timeout=timeout_s)


class BlockingPool:
    """Idle connections by URL. Owner: the pool; any thread may take and keep.
    The lock guards the lists.
    """

    __slots__ = ("_idle", "_is_closed", "_lock", "_tls")

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._idle: dict[str, list[http.client.HTTPConnection]] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    def take(self, url: str, timeout_s: float) -> http.client.HTTPConnection:
        """Take an open connection, or a new one, whose `sock` is None; the caller keeps or closes
        it.
        """
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
        """Return a connection whose answer was fully read. Closes it if the pool is closed."""
        with self._lock:
            if not self._is_closed:
                self._idle.setdefault(url, []).append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close all connections; one in use is closed after its answer."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()


def read_body(answer: http.client.HTTPResponse, *, size_max_bytes: int) -> bytearray:
    """The body of *answer*, received into one buffer of its announced size.
    ValueError if the size is missing or above *size_max_bytes*, or the body ends early.
    """
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
    """Whether the server has closed an idle connection: it is readable without a request.
    Closes it.
    """
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
