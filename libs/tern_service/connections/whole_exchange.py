"""An exchange of a request that came whole in one read, answered without ASGI.

uvicorn makes a task, an event and two messages for each request, and the application wraps the
channels of all of them. Most requests of a message queue are small and come in one piece, so an
application may take them whole: it gets the body with the head, and returns a coroutine of the
reply. The coroutine runs here without a task up to its first wait, which is nearly always its only
one, and from the end of that wait on. Further waits are those of a task.

 head -> may_take? -> body in the same read? -> take -> a coroutine -> its reply, in one write
             \\-> no --------\\-> no -------------\\-> None: uvicorn's exchange, as for any request

Owner of all state: the event loop that accepted the connection.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Protocol, TypeAlias

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from tern_service.connections.answer_writing import HeadWithBody
from tern_service.connections.table import ConnectionTable
from tern_service.problems import RawHeaders, problem_reply, request_id_of
from tern_tasks import rest_of
from tern_wire.errors import ShuttingDown, TernError

logger = logging.getLogger(__name__)
# Status, headers (lower case, with Content-Length if there is a body), body.
Reply: TypeAlias = tuple[int, RawHeaders, bytes | memoryview]


class WholeRequests(Protocol):
    """The part of an application that takes requests whole. It answers its own errors."""

    def may_take(self, target: bytes) -> bool:
        """Return whether a POST of *target*, as sent, may be taken; cheap, and may be wrong."""

    def take(self, scope: Scope, body: bytes) -> Coroutine[Any, Any, Reply] | None:
        """Return a coroutine of the reply, not begun; None: the request goes to the application's
        ASGI. Nothing is changed before the coroutine begins. Up to its first wait, and from then to
        the next, there is no current task.
        """


class Connection(Protocol):
    """The parts used of the connection."""

    tasks: set[Any]
    answers: HeadWithBody | None
    default_headers: list[tuple[bytes, bytes]]
    loop: asyncio.AbstractEventLoop

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one."""


class _NoEvent:
    """Stands for uvicorn's event, which wakes the reader of a body."""

    def set(self) -> None:
        """Do nothing: nothing is read any more."""


_NO_EVENT = _NoEvent()


class WholeExchange:
    """One request, in the place of uvicorn's RequestResponseCycle while it is read and answered.

    The attributes without underscore are those that connections use of either. In the set of tasks
    it counts as a request being worked on, and is cancelled with them at the end of a stop.
    """

    __slots__ = (
        *("body", "disconnected", "keep_alive", "message_event", "more_body", "response_complete", "response_started"),
        *("_connection", "_coroutine", "_table", "_task", "_waited", "scope"),
    )

    def __init__(self, connection: Connection, table: ConnectionTable, scope: Scope, *, keep_alive: bool) -> None:
        self._connection, self._table, self.scope, self.keep_alive = connection, table, scope, keep_alive
        self.body = b""
        self.more_body = True
        self.response_started = self.response_complete = self.disconnected = False
        self.message_event = _NO_EVENT
        self._coroutine: Coroutine[Any, Any, Reply] | None = None
        self._waited: asyncio.Future[Any] | None = None
        self._task: asyncio.Task[Reply] | None = None

    def begin(self, whole: WholeRequests) -> bool:
        """Answer the request, whose body is complete; False: *whole* does not take it."""
        self._coroutine = whole.take(self.scope, self.body)
        if self._coroutine is None:
            return False
        self.body = b""
        self._connection.tasks.add(self)
        self._table.whole += 1
        self._step()
        return True

    def cancel(self, msg: object = None) -> None:
        """Answer that the process stops; called as that of a task."""
        if self._task is not None:
            self._task.cancel(msg)
        elif self._coroutine is not None and self._waited is not None:
            self._waited.remove_done_callback(self._step)
            # In a turn of its own: the caller walks through the set of tasks.
            self._connection.loop.call_soon(self._stop, self._coroutine)
            self._coroutine = None

    def _stop(self, coroutine: Coroutine[Any, Any, Reply]) -> None:
        coroutine.close()
        self._refuse(ShuttingDown())

    def _step(self, _ended: object = None) -> None:
        """Run the coroutine up to its next wait, or to its end."""
        coroutine = self._coroutine
        if coroutine is None:  # cancelled meanwhile
            return
        try:
            awaited = coroutine.send(None)
        except StopIteration as end:
            self._answer(*end.value)
        except asyncio.CancelledError:
            self._refuse(ShuttingDown())
        except Exception as error:
            self._fail(error)
        else:
            if self._waited is None and isinstance(awaited, asyncio.Future):
                # As a task does: the future's own iterator has set it.
                awaited._asyncio_future_blocking = False
                self._waited = awaited
                awaited.add_done_callback(self._step)
            else:
                self._task = self._connection.loop.create_task(rest_of(coroutine, awaited))
                self._task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Reply]) -> None:
        if task.cancelled():
            self._refuse(ShuttingDown())
        elif (error := task.exception()) is not None:
            self._fail(error)
        else:
            self._answer(*task.result())

    def _fail(self, error: BaseException) -> None:
        logger.error("a request failed unexpectedly", exc_info=error)
        self._refuse(TernError())

    def _refuse(self, error: TernError) -> None:
        self._answer(*problem_reply(error, instance=self.scope["path"], request_id=request_id_of(self.scope)))

    def _answer(self, status: int, headers: RawHeaders, body: bytes | memoryview) -> None:
        connection = self._connection
        if self in connection.tasks:  # not again for a refusal in place of its answer
            connection.tasks.discard(self)
            self._table.whole -= 1
        self._coroutine = self._waited = self._task = None
        answers = connection.answers
        if answers is None:  # the client is gone
            self.response_complete = True
            return
        head = self._head(status, headers)
        if not head:
            logger.error("a header of an answer has a line break", extra={"path": self.scope["path"]})
            self._refuse(TernError())
            return
        self.response_started = self.response_complete = True
        answers.write_both(head, body)
        if not self.keep_alive:
            answers.close()
        connection.on_response_complete()

    def _head(self, status: int, headers: RawHeaders) -> bytes:
        """Return the answer's head; nothing if a header's value would add a line to it."""
        if (b"connection", b"close") in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers = [*headers, (b"connection", b"close")]
        headers = self._connection.default_headers + headers
        head = b"%b%b\r\n" % (STATUS_LINE[status], b"".join([b"%b: %b\r\n" % field for field in headers]))
        lines = len(headers) + 2
        return head if head.count(b"\n") == head.count(b"\r") == lines else b""
