"""Connections whose application may take requests whole: see whole_exchange.py.

A request is taken if it is a POST that the application may take, its body comes in the same read
as its head, no earlier request of the connection is in progress, and fewer than
WHOLE_REQUESTS_MAX of the process are. The exchange begins when the read has been parsed: an
answer, and what it does to the connection, never happens inside the parser. Owner of all state:
the event loop that accepted the connection.
"""

from typing import Any, cast

from uvicorn._types import HTTPScope

from tern_service.connections.connection import GuardedProtocol
from tern_service.connections.request_head import TRANSFER_ENCODING
from tern_service.connections.whole_exchange import Connection, WholeExchange, WholeRequests
from tern_wire.limits import WHOLE_REQUESTS_MAX


class WholeRequestsProtocol(GuardedProtocol):
    """A guarded connection. *whole*: takes requests whole; None: ASGI alone."""

    def __init__(self, *arguments: Any, whole: WholeRequests | None = None, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._whole = whole
        # The exchange whose head has been parsed, until the end of this read.
        self._due: WholeExchange | None = None

    def data_received(self, data: bytes) -> None:
        """Parse *data*, then begin a request that it has whole."""
        super().data_received(data)
        due = self._due
        if due is None:
            return
        self._due = None
        if due.more_body:
            # After a refusal nothing begins; otherwise the rest of the body comes later.
            if not due.disconnected:
                self._pass_on(due)
        elif self._whole is None or not due.begin(self._whole):
            self._pass_on(due)

    def _take_whole(self, scope: HTTPScope, *, keep_alive: bool) -> bool:
        whole = self._whole
        if (
            whole is None
            or scope["method"] != "POST"
            or not whole.may_take(self.url)
            or self._seen & TRANSFER_ENCODING
            or self.expect_100_continue
            or self._table.whole >= WHOLE_REQUESTS_MAX
        ):
            return False
        exchange = WholeExchange(cast(Connection, self), self._table, cast(Any, scope), keep_alive=keep_alive)
        self.cycle, self._due = cast(Any, exchange), exchange
        return True

    def _pass_on(self, exchange: WholeExchange) -> None:
        """Continue with ASGI, with what has come of the body."""
        cycle = self._make_cycle(cast(HTTPScope, exchange.scope), keep_alive=exchange.keep_alive)
        cycle.body += exchange.body
        cycle.more_body = exchange.more_body
        cycle.message_event.set()
        if self.cycle is cast(Any, exchange):
            self.cycle = cycle
        self._start_asgi_task(cycle, self._application())
