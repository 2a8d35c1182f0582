"""A raw HTTP/1.1 keep-alive client for benchmarks: one request at a time on each connection.

A small request costs about 30 us. A general client costs milliseconds per request under load and
would measure itself. This client accepts only what our servers send: a status line, a
Content-Length, no chunks. Anything else is an error, never a guess. Reference: RFC 9112.
"""

import asyncio
import ssl
from typing import Self, cast

# Up to this size one joined write is cheaper than a vector.
JOIN_SIZE_MAX_BYTES = 64 * 1024
HEAD_SIZE_MAX_BYTES = 64 * 1024
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length:"
# Statuses that never have a body.
_BODILESS = frozenset({204, 304})


class HttpError(ConnectionError):
    """The connection ended, or the answer is not of the form that our servers send."""


def content_length(head: bytes) -> int:
    """Return the Content-Length in *head*; -1 without one. Raises HttpError.

    *head* extends from its first line to before the empty line.
    """
    lowered = head.lower()
    at = lowered.find(_LENGTH)
    if at < 0:
        return -1
    at += len(_LENGTH)
    end = lowered.find(b"\r\n", at)
    value = lowered[at : end if end >= 0 else len(lowered)].strip()
    if not value.isdigit():
        raise HttpError(f"Content-Length {value!r} is no number")
    return int(value)


class MessageReader:
    """Cuts a byte stream into HTTP messages, requests or answers.

    Owns at most one unfinished message.
    """

    __slots__ = ("_body_missing", "_chunks", "_head", "_started")

    def __init__(self) -> None:
        # The start of a message whose head is not complete.
        self._started = b""
        # A complete head, the parts of its body so far, and the number of missing bytes.
        self._head = b""
        self._chunks: list[bytes] = []
        self._body_missing = 0

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return head and body of each message that *data* completes. Raises HttpError."""
        messages: list[tuple[bytes, bytes]] = []
        if self._body_missing:
            taken = data[: self._body_missing]
            self._chunks.append(taken)
            self._body_missing -= len(taken)
            if self._body_missing:
                return messages
            messages.append((self._head, b"".join(self._chunks)))
            data = data[len(taken) :]
        elif self._started:
            data = self._started + data
        self._started = b""
        while data:
            head_end = data.find(_HEAD_END)
            if head_end < 0:
                if len(data) > HEAD_SIZE_MAX_BYTES:
                    raise HttpError(f"a head of more than {HEAD_SIZE_MAX_BYTES} bytes")
                self._started = data
                break
            head = data[:head_end]
            body_at = head_end + len(_HEAD_END)
            size = self._body_size(head)
            body = data[body_at : body_at + size]
            if len(body) < size:
                self._head, self._chunks, self._body_missing = head, [body], size - len(body)
                break
            messages.append((head, body))
            data = data[body_at + size :]
        return messages

    @staticmethod
    def _body_size(head: bytes) -> int:
        size = content_length(head)
        if size >= 0:
            return size
        if head.startswith(b"HTTP/") and int(head[9:12]) not in _BODILESS:
            raise HttpError("a response without Content-Length; this client reads no chunks")
        return 0


class HttpConnection(asyncio.Protocol):
    """One keep-alive connection.

    Owner: one task, which awaits each reply before its next request.
    """

    def __init__(self, authority: str) -> None:
        # The head of the last reply, for callers that need a header.
        self.reply_head = b""
        self._authority = authority
        self._transport: asyncio.Transport | None = None
        self._reader = MessageReader()
        self._reply: asyncio.Future[tuple[int, bytes]] | None = None
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, host: str, port: int, context: ssl.SSLContext | None = None) -> Self:
        """Return a connection to *host*:*port*, over TLS with *context*. Raises OSError."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: cls(f"{host}:{port}"), host, port, ssl=context)
        return connection

    @property
    def closed(self) -> bool:
        """Whether the next request needs a new connection."""
        return self._transport is None or self._transport.is_closing()

    async def request(self, method: str, path: str, headers: bytes = b"", body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of the reply. Raises HttpError.

        *headers* are whole lines, each with its CR LF. There is no timeout here: a hanging
        benchmark should be visible, or be bounded as a whole.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise HttpError("the connection is closed")
        if self._reply is not None:
            raise HttpError("a request is under way on this connection")
        line = f"{method} {path} HTTP/1.1\r\nhost: {self._authority}\r\ncontent-length: {len(body)}\r\n"
        head = line.encode() + headers + b"\r\n"
        reply: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        self._reply = reply
        if len(body) <= JOIN_SIZE_MAX_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        try:
            return await reply
        except asyncio.CancelledError:
            # Its reply would be taken for that of the next request.
            transport.abort()
            raise
        finally:
            self._reply = None

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Complete the request under way."""
        try:
            for head, body in self._reader.feed(data):
                if self._reply is None or self._reply.done():
                    raise HttpError("a reply to no request")
                self.reply_head = head
                self._reply.set_result((int(head[9:12]), body))
        except (HttpError, ValueError) as error:
            self._fail(HttpError(f"not an HTTP reply of ours: {error}"))
            if self._transport is not None:
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request under way."""
        self._transport = None
        self._fail(HttpError("the server closed the connection"))

    def _fail(self, error: HttpError) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)
