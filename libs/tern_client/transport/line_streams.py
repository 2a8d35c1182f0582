"""Answers that come line by line and have no end of their own, over asyncio and in threads.

Each has a connection of its own, which ends with it. A line is bounded, and so is the silence
between two pieces. Connections are direct: a forward proxy of the environment is not asked.
"""

import asyncio
import contextlib
import http.client
import socket
import ssl
from urllib.parse import urlsplit

from tern_client.transport.endpoints import path_prefix
from tern_client.transport.exchange import Request, Response, error_of, lost_connection, unreachable
from tern_http.blocking import connection_to
from tern_http.exchange import request_head
from tern_wire.errors import TernError
from tern_wire.limits import MIB

CONNECT_TIMEOUT_S = 3.0
# The largest message as base64, with all its properties, in JSON.
LINE_SIZE_MAX_BYTES = 8 * MIB
_HEAD_SIZE_MAX_BYTES = 64 * 1024
# Of an answer that is a problem.
_BODY_SIZE_MAX_BYTES = 1 * MIB


class LineStream:
    """One answer over asyncio. Owner: the task that opened it; another one may close it."""

    __slots__ = ("_buffer", "_endpoint", "_reader", "_silence_max_s", "_writer")

    def __init__(
        self, endpoint: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence_max_ms: int
    ) -> None:
        self._endpoint, self._reader, self._writer = endpoint, reader, writer
        self._silence_max_s = silence_max_ms / 1_000
        self._buffer = bytearray()

    @classmethod
    async def open(
        cls, endpoint: str, request: Request, tls: ssl.SSLContext | None, *, silence_max_ms: int
    ) -> "LineStream":
        """Send *request* and return its answer. Raise ProxyUnreachable, OutcomeUnknown, and the
        error that is the answer.
        """
        address = urlsplit(endpoint)
        secure = tls if address.scheme == "https" else None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(
                    address.hostname, address.port or (443 if secure else 80), ssl=secure, limit=_HEAD_SIZE_MAX_BYTES
                )
        except (OSError, TimeoutError) as error:
            raise unreachable(endpoint, error) from error
        stream = cls(endpoint, reader, writer, silence_max_ms)
        try:
            writer.write(request_head(request.method, endpoint, request.path, request.headers))
            async with asyncio.timeout(stream._silence_max_s):
                status, headers = await stream._head()
                if status >= 400:
                    body = await reader.readexactly(min(int(headers["content-length"]), _BODY_SIZE_MAX_BYTES))
                    raise error_of(Response(status, headers, body), endpoint) or TernError()
            if headers.get("transfer-encoding") != "chunked":
                raise ValueError("the answer is no stream")
        except _BROKEN as error:
            await stream.close()
            raise lost_connection(endpoint, error) from error
        except BaseException:
            await stream.close()
            raise
        return stream

    async def line(self) -> bytes:
        """Return the next line without its end; b"" at the end of the answer. Raise
        OutcomeUnknown when the connection is lost, or silent for too long.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            try:
                async with asyncio.timeout(self._silence_max_s):
                    piece = await self._piece()
            except _BROKEN as error:
                raise lost_connection(self._endpoint, error) from error
            if not piece:
                return b""
            self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    async def close(self) -> None:
        """Close the connection. Safe to repeat."""
        self._writer.transport.abort()
        await asyncio.sleep(0)

    async def _head(self) -> tuple[int, dict[str, str]]:
        first, *fields = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        named = (field.partition(":") for field in fields if field)
        return int(first.split(" ")[1]), {name.strip().lower(): value.strip() for name, _, value in named}

    async def _piece(self) -> bytes:
        """Return the next chunk; b"" for the last one."""
        size = int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if len(self._buffer) > LINE_SIZE_MAX_BYTES or size > 4 * LINE_SIZE_MAX_BYTES:
            raise ValueError(f"a line of more than {LINE_SIZE_MAX_BYTES} bytes")
        data = await self._reader.readexactly(size)
        await self._reader.readuntil(b"\r\n")
        return data


class BlockingLineStream:
    """One answer in threads. Owner: the thread that opened it; any thread may close it."""

    __slots__ = ("_answer", "_connection", "_endpoint")

    def __init__(self, endpoint: str, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self._endpoint, self._connection, self._answer = endpoint, connection, answer

    @classmethod
    def open(
        cls, endpoint: str, request: Request, tls: ssl.SSLContext | None, *, silence_max_ms: int
    ) -> "BlockingLineStream":
        """As LineStream.open."""
        connection = connection_to(endpoint, timeout_s=CONNECT_TIMEOUT_S, tls=tls)
        try:
            connection.connect()
        except OSError as error:
            raise unreachable(endpoint, error) from error
        try:
            connection.sock.settimeout(silence_max_ms / 1_000)
            connection.putrequest(request.method, path_prefix(endpoint) + request.path, skip_accept_encoding=True)
            for name, value in request.headers:
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            if answer.status >= 400:
                headers = {name.lower(): value for name, value in answer.getheaders()}
                body = answer.read(_BODY_SIZE_MAX_BYTES)
                raise error_of(Response(answer.status, headers, body), endpoint) or TernError()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise lost_connection(endpoint, error) from error
        except BaseException:
            connection.close()
            raise
        return cls(endpoint, connection, answer)

    def line(self) -> bytes:
        """As LineStream.line."""
        try:
            line = self._answer.readline(LINE_SIZE_MAX_BYTES)
        except (OSError, ValueError, AttributeError, http.client.HTTPException) as error:
            raise lost_connection(self._endpoint, error) from error
        if not line.endswith(b"\n"):
            if line:
                raise lost_connection(self._endpoint, "a line was cut off")
            return b""
        return line[:-1]

    def close(self) -> None:
        """Close the connection; a thread that waits for a line finds the end."""
        with contextlib.suppress(OSError, AttributeError):  # closed already
            socket.socket.shutdown(self._connection.sock, socket.SHUT_RDWR)
        self._connection.close()


_BROKEN = (
    OSError,
    TimeoutError,
    ValueError,
    KeyError,
    IndexError,
    asyncio.IncompleteReadError,
    asyncio.LimitOverrunError,
)
