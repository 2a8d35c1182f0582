"""One HTTP connection, guarded: uvicorn's httptools protocol with deadlines and bounds for what a client sends.

uvicorn waits without end for a request's head and body and takes a head of any length. Here a head has an absolute
deadline (a connection that sends nothing has it too), a body has one, a head and its trailers have a size, and
connections have a number. What cannot be read gets a 400 problem and the connection closes; it never reaches the log
as a traceback. Owner of all its state is the event loop that the connection was accepted on.

      accepted --10 s--> head begins --10 s--> head complete --30 s--> body complete --> answered --75 s--> closed
                         (each deadline is absolute: bytes that trickle in do not extend it)
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tern_service.problems import new_request_id, problem_reply
from tern_wire.errors import Overloaded, RequestMalformed, RequestTimeout, TernError
from tern_wire.limits import BODY_DEADLINE_MS, CONNECTIONS_MAX, REQUEST_HEAD_SIZE_MAX_BYTES

# A head is one packet or two; a client that needs longer is broken or hostile (nginx and Apache: 20 to 60 s).
HEAD_DEADLINE_MS = 10_000

_IDLE, _HEAD, _BODY = 0, 1, 2


class _HeadTooLarge(Exception):
    """Ends httptools' parsing from within one of its callbacks."""


class GuardedProtocol(HttpToolsProtocol):
    """As above. The keyword arguments are for tests and for services with other bounds (milliseconds, bytes, count)."""

    def __init__(
        self,
        *arguments: Any,
        connections_max: int = CONNECTIONS_MAX,
        head_deadline_ms: int = HEAD_DEADLINE_MS,
        body_deadline_ms: int = BODY_DEADLINE_MS,
        head_size_max_bytes: int = REQUEST_HEAD_SIZE_MAX_BYTES,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self._connections_max = connections_max
        self._deadline_ms = {_HEAD: head_deadline_ms, _BODY: body_deadline_ms}
        self._head_size_max_bytes = head_size_max_bytes
        self._state = _IDLE
        self._deadline: asyncio.TimerHandle | None = None
        # Bytes of the current head's (or trailers') names and values, and of whole reads that lie within the head.
        self._head_bytes = 0
        self._unfinished_bytes = 0
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            self._refuse(Overloaded(what="connections", limit=self._connections_max))
            return
        self._arm(_HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)
        # uvicorn leaves its keep-alive timer running when the connection ends by an error.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        began_in_head = self._state == _HEAD
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Served as the plain request that it also is, and no more on this connection.
            self._finish_after_answer()
            return
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _HeadTooLarge):
                self._refuse_large_head()
            else:
                self._refuse(RequestMalformed(reason="This is not an HTTP/1.1 request"))
            return
        if self._state == _HEAD and began_in_head:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > self._head_size_max_bytes:
                self._refuse_large_head()
                return
        # A request that came whole, as nearly all do, never pays for a timer.
        if self._state != _IDLE and self._deadline is None:
            self._arm(self._state)

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._state, self._head_bytes, self._unfinished_bytes = _HEAD, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value) + 4)
        if self._state == _BODY:
            return  # trailers: counted and dropped; the application already has its headers
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._disarm()
        self._state, self._head_bytes = _BODY, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._disarm()
        self._state = _IDLE
        super().on_message_complete()

    def _count_head(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        if self._head_bytes > self._head_size_max_bytes:
            raise _HeadTooLarge

    def _arm(self, state: int) -> None:
        self._deadline = self.loop.call_later(self._deadline_ms[state] / 1_000, self._on_deadline, state)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self, state: int) -> None:
        self._deadline = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self._arm(state)  # it is we who do not read: the client is not late
        elif self._state == _IDLE:
            self.transport.close()  # nothing was ever asked
        else:
            self._refuse(RequestTimeout(limit_s=self._deadline_ms[state] // 1_000))

    def _refuse_large_head(self) -> None:
        limit = self._head_size_max_bytes
        self._refuse(RequestMalformed(reason=f"The request's head has more than {limit} bytes"))

    def _refuse(self, error: TernError) -> None:
        """Answer *error* and close, unless answers to earlier requests are still due: these come first, then close."""
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
            # The request that is being read is the one that cannot be read: its application gets a disconnect.
            cycle.disconnected = True
            cycle.message_event.set()
        status, headers, body = problem_reply(error, request_id=new_request_id())
        lines = [STATUS_LINE[status]]
        for name, value in [*self.server_state.default_headers, *headers, (b"connection", b"close")]:
            lines += [name, b": ", value, b"\r\n"]
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self.transport.close()

    def _finish_after_answer(self) -> None:
        self._refused = True
        self._disarm()
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False
