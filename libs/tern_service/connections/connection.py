"""One HTTP connection, guarded: uvicorn's httptools protocol with deadlines and limits.

uvicorn waits without end for a request's head and body, and takes a head of any length. `Bounds`
limits all of it here; answers: answers.py. Unreadable input gets a 4xx problem without a traceback
in the log, and the connection closes. Owner of all state: the accepting event loop.
 accepted --5 s--> head begins --5 s--> head complete --30 s and >= 1 KiB/s--> body complete
      (absolute: trickling bytes do not extend it) --> taken at >= 1 KiB/s --75 s--> closed
The parser (llhttp) refuses Content-Length beside Transfer-Encoding, repeated or signed lengths,
folded lines, line ends without CR, malformed chunk sizes. Other input that different readers read
differently is refused here and in request_head.py. Reference: RFC 9112 (HTTP/1.1), 11.2.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn
from urllib.parse import unquote

import httptools
from uvicorn._types import HTTPScope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from tern_service.connections.answers import AnsweringProtocol
from tern_service.connections.body_pace import BodyPace
from tern_service.connections.request_head import (
    CHECK_NONCE,
    EXPECT,
    GIVEN_ONCE,
    HOST,
    SPECIAL_MAX,
    TRANSFER_ENCODING,
    is_host,
    split_target,
)
from tern_service.connections.table import AT_A_TIME, answer_overloaded
from tern_service.problems import new_request_id, problem_reply
from tern_wire.errors import (
    CallbackRefused,
    HeadTooLarge,
    Overloaded,
    RequestMalformed,
    RequestTimeout,
    TargetTooLong,
    TernError,
)
from tern_wire.limits_requests import CHUNK_FRAMING_FREE_BYTES, CHUNK_FRAMING_SIZE_BYTES, READS_SPARE_SHARE

_IDLE, _HEAD, _BODY = 0, 1, 2
_LINE_FEED = 0x0A
# A busy process must not look dead to supervisors and scrapers.
_ALWAYS_TAKEN = (b"/healthz", b"/readyz", b"/metrics")


class _Refused(Exception):
    """Ends httptools' parsing inside one of its callbacks; the protocol keeps the error."""


class GuardedProtocol(AnsweringProtocol):
    """A guarded connection. *on_known*: called at the first head or the end of the connection."""

    def __init__(self, *arguments: Any, on_known: Callable[[], None] = lambda: None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        bounds = self._bounds
        self._on_known, self._is_known = on_known, False
        # HTTP version of requests whose connection may stay open: none while descriptors are short.
        self._kept_version = "1.1"
        self._address: str | None = None
        self._head_size_max_bytes, self._target_size_max_bytes = (
            bounds.head_size_max_bytes,
            bounds.target_size_max_bytes,
        )
        self._fields_max, self._requests_max = bounds.fields_max, bounds.requests_max
        self._reads_max = self._requests_max - self._requests_max // READS_SPARE_SHARE
        self._state = _IDLE
        self._deadline: asyncio.TimerHandle | None = None
        # Of the current head: GIVEN_ONCE bits, bytes of whole reads in it, one small read or not.
        self._seen = self._unfinished_bytes = 0
        self._is_small_read = True
        self._host = b""
        # Of a body behind its head: bytes on the wire, chunks, framing and trailer bytes, pace.
        self._wire_bytes = self._chunks = self._framing_bytes = self._trailer_bytes = 0
        self._pace: BodyPace | None = None
        self._refusal: TernError | None = None
        self._refused = False

    # Begin and end --------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        bounds = self._bounds
        most, host = bounds.connections_max, self.client[0] if self.client else ""
        if self._table.known >= most and not self._table.close_idlest(self.connections, host, most, self.loop.time()):
            self._refuse(Overloaded(what="connections", limit=most))
            return
        most = bounds.connections_per_address_max
        self._address = self._table.enter(host, most)
        if self._address is None:
            self._refuse(Overloaded(what="connections of one address", limit=most))
            return
        self._arm(_HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._on_known()
        self.forget()
        if self._address:
            self._table.leave(self._address)
            self._address = None
        super().connection_lost(exc)

    def forget(self) -> None:
        """Stop counting it as known: it is gone, or closed for another. Safe to repeat."""
        self._table.known -= self._is_known
        self._is_known = False

    def give_way(self) -> None:
        """Close it for another, between two requests, or with an answer to an incomplete one."""
        self.forget()
        if self.arriving_since_s is None:
            self.transport.close()
        else:
            self._refuse(Overloaded(what="connections", limit=self._bounds.connections_max))

    # Reading --------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        state = self._state
        self._is_small_read = state == _IDLE and len(data) <= self._head_size_max_bytes
        if data[0] == _LINE_FEED and state == _IDLE:
            self._refuse(RequestMalformed(reason="A line ends without CR"))
            return
        before_bytes = self._body_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Served as the plain request that it also is, the last one on this connection.
            self._finish_after_answer()
            return
        except httptools.HttpParserError as error:
            refusal, self._refusal = self._refusal, None
            self._refuse(refusal or RequestMalformed(reason=f"This is not an HTTP/1.1 request ({_shown(error)})"))
            return
        # A request that came whole, as nearly all do, never pays for a timer.
        if self._state != _IDLE and self._go_on(state, len(data), before_bytes) and self._deadline is None:
            self._arm(self._state)

    def _go_on(self, state_before: int, size_bytes: int, before_bytes: int) -> bool:
        """After a read that ends within a head or a body: whether more of it may come."""
        trouble: TernError | None = None
        if self._state == _HEAD:
            if state_before == _HEAD:
                self._unfinished_bytes += size_bytes
            if max(size_bytes, self._unfinished_bytes) > self._head_size_max_bytes:
                trouble = self._size_trouble()
        else:
            self._enter_arriving()
            self._wire_bytes += size_bytes
            most = self._bounds.body_wire_size_max_bytes
            if self._wire_bytes > most:
                trouble = RequestMalformed(reason=f"The body takes more than {most} bytes on its way")
            elif self._seen & TRANSFER_ENCODING:
                # Its head, which came in the first of its reads, is not counted twice.
                head_bytes = 0 if state_before == _BODY else self._head_size_max_bytes
                trouble = self._framing_trouble(size_bytes - (self._body_bytes - before_bytes) - head_bytes)
        if trouble is not None:
            self._refuse(trouble)
        return trouble is None

    def _framing_trouble(self, size_bytes: int) -> TernError | None:
        """RequestMalformed if a chunked body has too many bytes that are not the body itself."""
        self._framing_bytes += max(0, size_bytes)
        if self._framing_bytes <= CHUNK_FRAMING_FREE_BYTES + CHUNK_FRAMING_SIZE_BYTES * self._chunks:
            return None
        return RequestMalformed(reason=f"The body has more than {CHUNK_FRAMING_FREE_BYTES} bytes of chunk extensions")

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._state = _HEAD
        self._seen = self._unfinished_bytes = 0
        self._host = b""
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by httptools with each field of a head, and with trailers of a chunked body."""
        name = name.lower()
        bit = GIVEN_ONCE.get(name)
        if bit is not None:
            if self._seen & bit or self._state == _BODY:
                self._break_off(RequestMalformed(reason=f"The header {name.decode()} is given more than once"))
            self._seen |= bit
            if bit <= SPECIAL_MAX:
                self._note(bit, value)
        if self._state == _BODY:
            self._count_trailer(len(name) + len(value) + 4)
            return  # counted and dropped; the application already has its headers
        self.headers.append((name, value))

    def _note(self, bit: int, value: bytes) -> None:
        if bit == HOST:
            self._host = value
        elif bit == EXPECT:
            self.expect_100_continue = value.lower() == b"100-continue"
        elif bit == CHECK_NONCE:
            # A check for a producer's URL is no operator's request, whatever port that URL names.
            if not self._bounds.takes_callbacks:
                self._break_off(CallbackRefused())
        elif value.strip(b" \t").lower() != b"chunked":
            # Now, since llhttp would call the head complete before it refuses it.
            self._break_off(RequestMalformed(reason="The only Transfer-Encoding here is chunked"))

    def _count_trailer(self, size_bytes: int) -> None:
        self._trailer_bytes += size_bytes
        if self._trailer_bytes > self._head_size_max_bytes:
            self._break_off(HeadTooLarge(limit=self._head_size_max_bytes, unit="bytes behind the body"))

    def on_headers_complete(self) -> None:
        """uvicorn's own, with checks before the application, without WebSockets and root paths."""
        if self._deadline is not None:  # as for every first head, and hardly any other
            self._disarm()
            if not self._is_known:
                self._become_known()
        url, version = self.url, self.parser.get_http_version()
        if len(url) > self._target_size_max_bytes or len(self.headers) > self._fields_max or not self._is_small_read:
            too_large = self._size_trouble()
            if too_large is not None:
                self._break_off(too_large)
        if version != "1.1" or not self._seen & HOST or not is_host(self._host) or self.pipeline:
            self._check_rarities(version)
        try:
            raw_path, query = split_target(url, self._host)
        except RequestMalformed as error:
            self._break_off(error)
        self._state = _BODY
        self._trailer_bytes = self._wire_bytes = self._chunks = self._framing_bytes = 0
        path = raw_path.decode("ascii")
        scope = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"], scope["query_string"], scope["http_version"] = raw_path, query, version
        before = self.cycle
        is_first = before is None or (before.response_complete and not self._is_answer_held)
        keep_alive = version == self._kept_version and self.parser.should_keep_alive()
        if is_first and self._take_whole(scope, keep_alive=keep_alive):
            return
        self.cycle = cycle = self._make_cycle(scope, keep_alive=keep_alive)
        if is_first:
            self._start_asgi_task(cycle, self._application())
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self._application()))

    def _take_whole(self, _scope: HTTPScope, *, keep_alive: bool) -> bool:
        """Hook of whole_requests.py: whether the request just begun gets another exchange."""
        return False

    def _become_known(self) -> None:
        self._is_known = True
        self._table.known += 1
        self._on_known()
        if self._table.descriptors.are_short():
            self._kept_version = ""

    def _check_rarities(self, version: str) -> None:
        reason = ""
        if version == "1.1":
            if not self._seen & HOST:
                reason = "The header Host is missing"
        elif version != "1.0":
            reason = f"HTTP/{version} is not spoken here"
        elif self._seen & TRANSFER_ENCODING:
            reason = "HTTP/1.0 has no Transfer-Encoding"
        if self._seen & HOST and not is_host(self._host):
            reason = "The header Host is not a host"
        if len(self.pipeline) >= self._bounds.pipelined_max:
            reason = f"More than {self._bounds.pipelined_max} requests wait on one connection"
        if reason:
            self._break_off(RequestMalformed(reason=reason))

    def _size_trouble(self) -> TernError | None:
        """The excess of the head so far, counted only where one is possible: most are small."""
        if len(self.url) > self._target_size_max_bytes:
            return TargetTooLong(limit=self._target_size_max_bytes)
        if len(self.headers) > self._fields_max:
            return HeadTooLarge(limit=self._fields_max, unit="fields")
        size_bytes = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if max(size_bytes, self._unfinished_bytes) > self._head_size_max_bytes:
            return HeadTooLarge(limit=self._head_size_max_bytes, unit="bytes")
        return None

    def _application(self) -> Any:
        """The application, or its place-holder while too many requests are being worked on."""
        return answer_overloaded if len(self.tasks) >= self._reads_max and self._is_crowded() else self.app

    def _is_crowded(self) -> bool:
        table = self._table
        working = len(self.tasks) - table.parked() - table.arriving - table.whole
        limit = self._reads_max if table.is_read(self.url) else self._requests_max
        return working >= limit and not self.url.startswith(_ALWAYS_TAKEN)

    def on_chunk_header(self) -> None:
        """Called by httptools behind each chunk's size."""
        self._chunks += 1
        if self._chunks > self._bounds.chunks_max:
            self._break_off(RequestMalformed(reason=f"The body has more than {self._bounds.chunks_max} chunks"))

    def on_message_complete(self) -> None:
        """uvicorn's own without WebSockets; checks the table again for an uncounted request."""
        if self._lingering is not None:
            raise _Refused  # the connection ends here, whatever follows that body
        if self._deadline is not None:
            self._disarm()
        if self.arriving_since_s is not None:
            if self._is_crowded():
                self._break_off(Overloaded(what=AT_A_TIME, limit=self._requests_max))
            self._leave_arriving()
        self._state = _IDLE
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def _break_off(self, error: TernError) -> NoReturn:
        self._refusal = error
        raise _Refused

    # Deadlines ------------------------------------------------------------------------------------
    def _arm(self, state: int) -> None:
        if state == _BODY:
            now_s = self.loop.time()
            self._pace = BodyPace(self._bounds, now_s)
            wait_s = self._pace.wait_s(now_s)
        else:
            wait_s = self._bounds.head_deadline_ms / 1_000
        self._deadline = self.loop.call_later(wait_s, self._on_deadline, state)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self, state: int) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self._arm(state)  # the server itself is not reading: the client is not late
            if self._pace is not None:
                self._pace.rest(self.loop.time(), self._wire_bytes)
        elif self._state == _IDLE:
            self.transport.close()  # no request ever began
        elif state == _HEAD:
            self._refuse(RequestTimeout(limit_s=self._bounds.head_deadline_ms // 1_000))
        elif self._pace is not None:
            now_s = self.loop.time()
            trouble = self._pace.trouble(now_s, self._wire_bytes)
            if trouble is not None:
                self._refuse(trouble)
            else:
                self._deadline = self.loop.call_later(self._pace.wait_s(now_s), self._on_deadline, state)

    # Refusals -------------------------------------------------------------------------------------
    def _refuse(self, error: TernError) -> None:
        """Answer *error* and close, after any answers due to earlier requests."""
        self._disarm()
        self._refused = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                self._finish_after_answer()
                return
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
            # The unreadable request is the one being read: its application gets a disconnect.
            cycle.disconnected = True
            cycle.message_event.set()
        elif self._state == _BODY:
            self.transport.close()  # answered before its body came: a second answer would be taken for the next one's
            return
        status, headers, body = problem_reply(error, request_id=new_request_id())
        lines = [STATUS_LINE[status]]
        for name, value in [*self.default_headers, *headers, (b"connection", b"close")]:
            lines += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self._end(is_in_body=self._state == _BODY)
        self._watch()

    def _finish_after_answer(self) -> None:
        self._refused = True
        self._disarm()
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False


def _shown(error: Exception) -> str:
    """The parser's message, which describes the form and holds nothing of the request."""
    return str(error) if type(error) is httptools.HttpParserError else "its target or method"
