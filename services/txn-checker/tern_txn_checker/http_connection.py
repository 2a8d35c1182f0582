"""One HTTP/1.1 connection as a client: one request at a time, bounded answers, no redirects, no cookies, nothing from the environment.

Owner: whoever connected it, in its event loop. Law: whatever the peer sends, an answer takes a bounded number of bytes, and the connection is
used again only after an answer that was complete, well-formed, and followed by nothing.
Why not httpx: see DESIGN.md beside this package.
"""

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any, cast

import httptools

# As our own servers take; a producer's answer has a few short headers.
HEAD_SIZE_MAX_BYTES = 16 * 1024


class AnswerTooLarge(Exception):
    """The answer's head or body is longer than its bound."""


class NoHttp(Exception):
    """The peer's bytes are no HTTP answer."""


class BrokenOff(Exception):
    """The connection ended before the answer did. *is_stale*: before anything of it came, so that a used one may just have been closed."""

    def __init__(self, *, is_stale: bool) -> None:
        super().__init__("the connection was closed")
        self.is_stale = is_stale


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Status, headers (lower case; of a repeated one the last), body."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpConnection(asyncio.Protocol):
    """Made by `connect`. *body_size_max_bytes*: of one answer."""

    def __init__(self, body_size_max_bytes: int) -> None:
        self._body_size_max_bytes = body_size_max_bytes
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._parser: Any = None
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size_bytes = self._body_size_bytes = 0
        self._is_in_body = self._is_complete = False
        self.is_reusable = False

    async def ask(self, request: bytes) -> HttpAnswer:
        """Send *request*, whole, and wait for its answer. AnswerTooLarge, NoHttp, BrokenOff; a cancelled wait closes the connection."""
        if self._transport is None or self._transport.is_closing():
            raise BrokenOff(is_stale=True)
        self._parser = httptools.HttpResponseParser(self)
        self._headers, self._body = {}, []
        self._size_bytes = self._body_size_bytes = 0
        self._is_in_body = self._is_complete = self.is_reusable = False
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close at once. Safe to repeat."""
        self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio ----------------------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not derive from asyncio's

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # an answer to nothing: out of step
            return
        # Counted as they come, since the parser gathers a header until it is whole, and a body in tiny chunks has headers behind it, too.
        self._size_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(NoHttp("an upgrade that nobody asked for"))
        except httptools.HttpParserError as error:
            self._fail(NoHttp(str(error)))
        else:
            limit = HEAD_SIZE_MAX_BYTES + (2 * self._body_size_max_bytes if self._is_in_body else 0)
            if self._size_bytes > limit and not self._is_complete:
                self._fail(AnswerTooLarge(f"an answer of more than {limit} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_reusable = False
        answer = self._answer
        if answer is None or answer.done():
            return
        is_framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if exc is None and self._is_in_body and not is_framed:
            self._finish()  # a body that ends with its connection
            return
        self._fail(BrokenOff(is_stale=not self._size_bytes))

    # httptools --------------------------------------------------------------------------------------------------
    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_body = True
        if self._parser.get_status_code() < 200:
            self._fail(NoHttp("an interim answer that nobody asked for"))

    def on_body(self, data: bytes) -> None:
        """A part of the body."""
        self._body_size_bytes += len(data)
        if self._body_size_bytes > self._body_size_max_bytes:
            self._fail(AnswerTooLarge(f"a body of more than {self._body_size_max_bytes} bytes"))
        else:
            self._body.append(data)

    def on_message_begin(self) -> None:
        """An answer begins: a second one has no question."""
        if self._is_complete:
            self.close()

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if not self._is_complete:
            self._is_complete = True
            self.is_reusable = bool(self._parser.should_keep_alive())
            self._finish()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            status = self._parser.get_status_code()
            self._answer.set_result(HttpAnswer(status, self._headers, b"".join(self._body)))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()


async def connect(
    address: str, port: int, *, server_name: str, tls: ssl.SSLContext | None, body_size_max_bytes: int
) -> HttpConnection:
    """A connection to exactly *address*, an IP address. With *tls* the peer must show a certificate of *server_name*, a name or an address.

    OSError (ssl.SSLError among them) when there is none.
    """
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: HttpConnection(body_size_max_bytes),
        address,
        port,
        ssl=tls,
        server_hostname=server_name if tls is not None else None,
    )
    return connection
