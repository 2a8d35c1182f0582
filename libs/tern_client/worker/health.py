"""The worker's HTTP port: `/health` and `/metrics`. Two paths, GET only, one answer a connection.

Bounded: a request's head of 8 KiB, 32 connections, 5 s each.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from tern_client.worker.stats import WorkerStats, prometheus_text

_HEAD_SIZE_MAX_BYTES, _CONNECTIONS_MAX, _DEADLINE_S = 8 * 1024, 32, 5.0
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def health_answer(stats: WorkerStats) -> tuple[HTTPStatus, str]:
    """Return 200 while the worker receives or is able to, otherwise 503 and the reason."""
    if stats.state != "running":
        return HTTPStatus.SERVICE_UNAVAILABLE, f"the worker is {stats.state}\n"
    if stats.problem:
        return HTTPStatus.SERVICE_UNAVAILABLE, f"{stats.problem}\n"
    return HTTPStatus.OK, "ok\n"


def answer(method: str, path: str, stats: WorkerStats) -> bytes:
    """Return the whole response to one request."""
    if method not in {"GET", "HEAD"}:
        status, text = HTTPStatus.METHOD_NOT_ALLOWED, "use GET\n"
    elif path.partition("?")[0] == "/health":
        status, text = health_answer(stats)
    elif path.partition("?")[0] == "/metrics":
        status, text = HTTPStatus.OK, prometheus_text(stats)
    else:
        status, text = HTTPStatus.NOT_FOUND, "there are /health and /metrics\n"
    body = text.encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {_TEXT}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + (b"" if method == "HEAD" else body)


class HealthPort:
    """Owner of the listener."""

    __slots__ = ("_connections", "_server", "_stats")

    def __init__(self, stats: Callable[[], WorkerStats]) -> None:
        self._stats = stats
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def open(self, host: str, port: int) -> int:
        """Listen at *host* and *port* (0: any), and return the port. OSError when it is taken."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_HEAD_SIZE_MAX_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections > _CONNECTIONS_MAX:
                return
            async with asyncio.timeout(_DEADLINE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.decode("latin-1").split("\r\n", 1)[0].split(" ")
                if len(words) == 3:
                    writer.write(answer(words[0], words[1], self._stats()))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # a client that is slow, gone, or no client of HTTP
        finally:
            self._connections -= 1
            writer.close()
