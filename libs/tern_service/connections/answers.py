"""Answers of one HTTP connection: written at once; slow clients hold little, and not for long.

uvicorn waits without end for a client to take its answer, and begins its next request meanwhile.
Here a connection's next request is neither read nor begun while the client has not taken the last
answer: a slow client slows only itself and holds one answer, but no place among the requests being
worked on. Used by connection.py. Owner of all state: the event loop that accepted the connection.
 answer -> written ----------------------------------------------> next request | kept alive
    \\-> client does not take it: nothing is read -> taken -^
      \\-> less than 1 KiB/s: broken off
"""

import asyncio
from typing import Any

from uvicorn._types import HTTPScope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tern_service.connections.answer_writing import HeadWithBody
from tern_service.connections.bounds import Bounds
from tern_service.connections.table import ConnectionTable
from tern_wire import limits

# After a connection's last answer the rest of a body is read while some of it comes in each step,
# up to the maximum.
LINGER_STEP_S, LINGER_MAX_S = 0.5, 5.0


class AnsweringProtocol(HttpToolsProtocol):
    """Answers within *bounds*; reading belongs to the subclass.
    A listener's connections share *table*.
    """

    def __init__(
        self, *arguments: Any, bounds: Bounds | None = None, table: ConnectionTable | None = None, **keywords: Any
    ) -> None:
        super().__init__(*arguments, **keywords)
        self._bounds, self._table = bounds or Bounds(), ConnectionTable() if table is None else table
        self._answer_watch: asyncio.TimerHandle | None = None
        # Runs while only the rest of a body is read.
        self._lingering: asyncio.TimerHandle | None = None
        # Bytes of the bodies of all its requests so far.
        self._body_bytes = 0
        # Since when its incomplete request is counted in the table (loop time).
        self.arriving_since_s: float | None = None
        # The last answer is written but not taken: later ones wait.
        self._is_answer_held = False

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every answer, with the current date."""
        return self.server_state.default_headers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.answers = HeadWithBody(transport, self._close, in_pieces=self.scheme == "https")

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._table.unsent.forget(self)
        self._unlinger()
        self._leave_arriving()
        super().connection_lost(exc)
        # uvicorn leaves its keep-alive timer running when the connection ends by an error.
        self._unset_keepalive_if_required()
        # Break the reference cycles: otherwise a garbage collection, whose pauses grow with all
        # objects, would have to find them. A request still being worked on sees that its client is
        # gone, and calls nothing.
        self.answers = self.cycle = None  # type: ignore[assignment]
        self.pipeline.clear()

    def _make_cycle(self, scope: HTTPScope, *, keep_alive: bool) -> RequestResponseCycle:
        """uvicorn's exchange of one request."""
        return RequestResponseCycle(
            scope=scope,
            transport=self.answers,  # type: ignore[arg-type]
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )

    # Input while an answer is due -----------------------------------------------------------------
    def on_body(self, body: bytes) -> None:
        """uvicorn's own, counted, and without its WebSockets."""
        self._body_bytes += len(body)
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    # Answers --------------------------------------------------------------------------------------
    def on_response_complete(self) -> None:
        """Called by httptools' cycle when an answer is written, even if its client has gone."""
        if self.answers is None:
            return
        self.answers.flush()
        if self.arriving_since_s is not None:
            self._leave_arriving()
        if self.flow.write_paused and not self.transport.is_closing():
            self._is_answer_held = True
            self.flow.pause_reading()
            return
        super().on_response_complete()
        if self.timeout_keep_alive_task is None:  # it was the last one, or the next one was begun
            self._watch()
            self._enter_arriving()

    # Incomplete requests --------------------------------------------------------------------------
    def _enter_arriving(self) -> None:
        """Count the last begun request while its body is incomplete."""
        cycle = self.cycle
        if self.arriving_since_s is None and not self.pipeline and cycle.more_body and not cycle.response_complete:
            self.arriving_since_s = self.loop.time()
            self._table.arriving += 1

    def _leave_arriving(self) -> None:
        """Uncount it: complete, answered, or gone. Safe to repeat."""
        if self.arriving_since_s is not None:
            self.arriving_since_s = None
            self._table.arriving -= 1

    # Answers before the body has come -------------------------------------------------------------
    def _close(self) -> None:
        """Close after the last answer, once the rest of its request's body was read and dropped.
        The kernel resets a closed socket on new input, and the client would lose the answer unread.
        """
        cycle = self.cycle
        is_in_body = cycle.more_body and cycle.response_complete and not self.pipeline
        self._end(is_in_body=is_in_body and not self.transport.is_closing())

    def _end(self, *, is_in_body: bool) -> None:
        """Close as _close does; *is_in_body*: a body still comes, possibly of a refused request."""
        if is_in_body:
            self._leave_arriving()
            self._linger(self.loop.time() + LINGER_MAX_S, self._body_bytes)
        else:
            self.transport.close()

    def _linger(self, until_s: float, before_bytes: int) -> None:
        self._lingering = self.loop.call_later(LINGER_STEP_S, self._on_linger_step, until_s, before_bytes)

    def _on_linger_step(self, until_s: float, before_bytes: int) -> None:
        if self._body_bytes == before_bytes or self.loop.time() >= until_s:
            self.transport.close()
        else:
            self._linger(until_s, self._body_bytes)

    def _unlinger(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    # Answers that are not taken -------------------------------------------------------------------
    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()
        self._note_unsent()

    def resume_writing(self) -> None:
        self._unwatch()
        self._table.unsent.forget(self)
        super().resume_writing()
        if self._is_answer_held:
            self._is_answer_held = False
            self.on_response_complete()

    def _watch(self) -> None:
        """Start the watch: the unsent data must shrink step by step."""
        size = self.transport.get_write_buffer_size()
        if self._answer_watch is None and size:
            self._answer_watch = self.loop.call_later(self._bounds.answer_step_ms / 1_000, self._on_answer_step, size)

    def _unwatch(self) -> None:
        if self._answer_watch is not None:
            self._answer_watch.cancel()
            self._answer_watch = None

    def _on_answer_step(self, before_bytes: int) -> None:
        self._answer_watch = None
        taken_bytes = before_bytes - self.transport.get_write_buffer_size()
        if taken_bytes < min(before_bytes, self._bounds.answer_step_ms * limits.BODY_RATE_MIN_BYTES_PER_S // 1_000):
            self.transport.abort()
        else:
            self._watch()
            self._note_unsent()

    def _note_unsent(self) -> None:
        if self.flow.write_paused:
            host = self.client[0] if self.client else ""
            self._table.unsent.note(self, host, self.transport.get_write_buffer_size(), self.loop.time())

    def break_off(self) -> None:
        """Abort: the memory of its unsent answer is needed for others."""
        self.transport.abort()
