"""One HTTP/1.1 connection as a client: one request at a time, bounded answers, no redirects.

No cookies, and nothing from the environment. Owner: the caller that connected it, in its event
loop. Law: whatever the peer sends, an answer takes a bounded number of bytes, and the connection is
reused only after an answer that was complete, well-formed, and followed by nothing. httpx costs
forty times the CPU with 16 requests in flight (measured in the design notes of `tern_client`).
"""

import asyncio
import ssl
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from tern_http.exchange import AnswerTooLarge, BrokenOff, ExchangeFailed, HttpAnswer, NoHttp, TooSlow

# The limit of our own servers; most answers have a few short headers.
HEAD_SIZE_MAX_BYTES = 16 * 1024
# Up to this size one joined write costs less than two.
JOINED_SIZE_MAX_BYTES = 64 * 1024


class HttpConnection(asyncio.Protocol):
    """Made by `connect`. At most one request is under way."""

    __slots__ = (
        "_answer",
        "_body",
        "_body_size_bytes",
        "_body_size_max_bytes",
        "_head_size_max_bytes",
        "_headers",
        "_is_in_body",
        "_is_open",
        "_loop",
        "_may_end_by_closing",
        "_parser",
        "_size_bytes",
        "_transport",
        "_watch",
        "idle_since_s",
        "is_reusable",
        "made_s",
    )

    def __init__(
        self,
        body_size_max_bytes: int,
        head_size_max_bytes: int = HEAD_SIZE_MAX_BYTES,
        *,
        may_end_by_closing: bool = True,
    ) -> None:
        """*body_size_max_bytes*, *head_size_max_bytes*: of one answer.
        *may_end_by_closing*: whether a body without a length ends with its connection, as in RFC
        9112; False: it was broken off.
        """
        self._loop = asyncio.get_running_loop()
        self._body_size_max_bytes, self._head_size_max_bytes = body_size_max_bytes, head_size_max_bytes
        self._may_end_by_closing = may_end_by_closing
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[HttpAnswer] | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size_bytes = self._body_size_bytes = 0
        self._is_in_body = self._is_open = False
        self._watch: asyncio.TimerHandle | None = None
        # Whether the next request may use it.
        self.is_reusable = False
        # Loop times: of the connection, and of the begin of its idleness, set by its pool.
        self.made_s = self.idle_since_s = 0.0

    def begin(self, head: bytes, body: bytes = b"") -> "asyncio.Future[HttpAnswer]":
        """Send a request.
        The future gets its answer or ExchangeFailed; cancelling closes the connection.
        """
        answer: asyncio.Future[HttpAnswer] = self._loop.create_future()
        self.is_reusable = self._is_in_body = False
        self._size_bytes = self._body_size_bytes = 0
        if self._transport is None or not self._is_open:
            answer.set_exception(BrokenOff(is_stale=True))
            return answer
        self._answer = answer
        if len(body) < JOINED_SIZE_MAX_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        return answer

    async def ask(self, head: bytes, body: bytes = b"", *, silence_max_s: float | None = None) -> HttpAnswer:
        """Send a request and wait for its answer. AnswerTooLarge, NoHttp, BrokenOff.
        A failed wait closes the connection. *silence_max_s*: TooSlow when nothing came for so long,
        or for up to twice as long after the answer's first bytes; None: no bound.
        """
        answer = self.begin(head, body)
        if silence_max_s is not None:
            self._watch = self._loop.call_later(silence_max_s, self._look, silence_max_s, 0)
        try:
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            if self._watch is not None:
                self._watch.cancel()
                self._watch = None

    def expire(self) -> None:
        """Fail with TooSlow: the answer did not come in time."""
        self._fail(TooSlow("no answer in time"))

    def close(self) -> None:
        """Close at once, with any request under way. Safe to repeat."""
        self._is_open = self.is_reusable = False
        if self._transport is not None:
            self._transport.abort()

    # asyncio --------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class does not derive from asyncio's
        self._is_open, self.made_s = True, self._loop.time()

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # an answer without a request: out of step
            return
        # Counted on arrival: the parser gathers a header until it is whole, and a body in tiny
        # chunks has headers behind it, too.
        self._size_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(NoHttp("an upgrade that nobody asked for"))
        except httptools.HttpParserError as error:
            self._fail(NoHttp(f"no HTTP response: {error}"))
        else:
            if self._size_bytes > self._head_size_max_bytes:
                self._check_size()

    def eof_received(self) -> None:
        self.is_reusable = False

    def connection_lost(self, exc: Exception | None) -> None:
        was_open, self._is_open, self.is_reusable = self._is_open, False, False
        answer = self._answer
        if answer is None:
            return
        is_framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if exc is None and was_open and self._is_in_body and self._may_end_by_closing and not is_framed:
            self._finish(answer)
            return
        failure = BrokenOff(is_stale=not self._size_bytes)
        failure.__cause__ = exc
        self._fail(failure)

    # httptools ------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """Handle the begin of an answer; one without a request closes the connection."""
        if self._answer is None:
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store one header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Note that the head is complete."""
        self._is_in_body = True

    def on_body(self, data: bytes) -> None:
        """Store a part of the body."""
        self._body_size_bytes += len(data)
        if self._body_size_bytes > self._body_size_max_bytes:
            self._fail(AnswerTooLarge(f"a body of more than {self._body_size_max_bytes} bytes"))
        else:
            self._body.append(data)

    def on_message_complete(self) -> None:
        """Finish the answer."""
        answer = self._answer
        if answer is not None:
            self.is_reusable = self._is_open and self._parser.should_keep_alive()
            self._finish(answer)

    def _finish(self, answer: "asyncio.Future[HttpAnswer]") -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self._fail(NoHttp("an interim answer that nobody asked for"))
            return
        headers, body = self._headers, self._body
        self._answer, self._headers, self._body = None, {}, []
        if not answer.done():
            answer.set_result(HttpAnswer(status, headers, body[0] if len(body) == 1 else b"".join(body)))

    def _check_size(self) -> None:
        """Fail if the bytes exceed a head, or a head and a body that is half framing."""
        limit = self._head_size_max_bytes + (2 * self._body_size_max_bytes if self._is_in_body else 0)
        if self._size_bytes > limit and self._answer is not None:
            self._fail(AnswerTooLarge(f"an answer of more than {limit} bytes"))

    def _fail(self, error: ExchangeFailed) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        self.close()

    def _look(self, silence_max_s: float, size_bytes: int) -> None:
        """Fail unless more than *size_bytes* have come by now."""
        if self._size_bytes == size_bytes:
            self._fail(TooSlow(f"nothing came for {silence_max_s} s"))
        else:
            self._watch = self._loop.call_later(silence_max_s, self._look, silence_max_s, self._size_bytes)


async def connect(
    address: str,
    port: int,
    *,
    server_name: str,
    tls: ssl.SSLContext | None,
    body_size_max_bytes: int,
    head_size_max_bytes: int = HEAD_SIZE_MAX_BYTES,
    may_end_by_closing: bool = True,
) -> HttpConnection:
    """Connect to *address*, which is not looked up if it is an IP address.
    With *tls* the peer must present a certificate of *server_name*, a name or an address; None: no
    encryption. Limits as of HttpConnection. OSError (ssl.SSLError among them) on failure.
    """
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: HttpConnection(body_size_max_bytes, head_size_max_bytes, may_end_by_closing=may_end_by_closing),
        address,
        port,
        ssl=tls,
        server_hostname=server_name if tls is not None else None,
    )
    return connection


async def connect_to(url: str, tls: ssl.SSLContext | None, *, body_size_max_bytes: int) -> HttpConnection:
    """Connect to *url*'s host and port. OSError; ValueError if *url* has no such host or port.
    *tls* is for https, None for the machine's trust store.
    """
    place = urlsplit(url)
    host, is_secure = place.hostname or "", place.scheme == "https"
    return await connect(
        host,
        place.port or (443 if is_secure else 80),
        server_name=host,
        tls=(tls or ssl.create_default_context()) if is_secure else None,
        body_size_max_bytes=body_size_max_bytes,
    )
