"""Dispatcher of requests: hot paths go straight to their handlers, all others to the FastAPI
application.

    EntryPoint: namespace -> guard, if keys are required -> HotRoutes -> handler, or FastAPI

Raw ASGI, because one FastAPI route costs four times as much as the whole handling of a small
message. Every error is answered as a problem document, on both ways, and every answer is counted.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tern_proxy.access.namespaces import inside, reply_outside, scope_inside
from tern_proxy.core.access.namespaces import HEADER
from tern_proxy.counters import BUCKETS_S, Counters
from tern_proxy.exchange import STREAM_KEY, HotRequest, Reply, Stream
from tern_proxy.proxy import Proxy
from tern_proxy.routes.route import Route
from tern_proxy.routes.table import RouteTable, may_be_brief
from tern_proxy.waiting.interrupts import ClientGone
from tern_service.plain_app import Answer
from tern_service.problems import RawHeaders, problem_reply, refuse, request_id_of
from tern_wire.errors import TernError
from tern_wire.names import SEPARATOR
from tern_wire.paths import HEADER_REQUEST_ID

logger = logging.getLogger(__name__)

_WITH_BODY = frozenset({"POST", "PUT"})
_ID = HEADER_REQUEST_ID.lower().encode()


def is_read(target: bytes) -> bool:
    """Return whether a request is a consumer's read: a receive, a pull, a tail, or a poll for
    checks.
    """
    path = target.partition(b"?")[0]
    return path.endswith((b"/receive", b"/tail")) or b"/queues/" in path


def count_answer(counters: Counters, route: str, status: int, seconds: float = 0.0) -> None:
    """Count one answered request."""
    counters.requests[route, status] += 1
    counters.durations[route, bisect_left(BUCKETS_S, seconds)] += 1
    counters.seconds[route] += seconds


class Application(Protocol):
    """ASGI application that may take requests whole; see tern_service's whole_exchange.py."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def take(self, scope: Scope, body: bytes) -> Coroutine[Any, Any, Reply] | None:
        """Return a coroutine of the reply, not begun; None: only ASGI answers this request."""


class EntryPoint:
    """ASGI application that the server runs, in front of *app*: requests of a namespace continue
    with full names (`access/namespaces.py`), all others unchanged.
    """

    def __init__(self, app: Application, counters: Counters) -> None:
        self.app, self._counters = app, counters

    def may_take(self, target: bytes) -> bool:
        """Return whether a POST of *target* may be taken whole."""
        return may_be_brief(target)

    def take(self, scope: Scope, body: bytes) -> Coroutine[Any, Any, Reply] | None:
        """Take a request whole, as Application does. Illegal namespaces are refused by ASGI."""
        if not _has_namespace(scope):
            return self.app.take(scope, body)
        try:
            scope, namespace = scope_inside(scope)
        except TernError:
            return None
        answering = self.app.take(scope, body)
        return answering if answering is None or not namespace else reply_outside(answering, namespace)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _has_namespace(scope):
            try:
                scope, send = inside(scope, send)
            except TernError as error:
                status = await refuse(error, scope, send)
                count_answer(self._counters, "admin", status)
                return
        await self.app(scope, receive, send)


def _has_namespace(scope: Scope) -> bool:
    """Return whether a request has the header MQ-Namespace, or a `%` in its path, which a client's
    name must not have.
    """
    for name, _ in scope["headers"]:
        if name == HEADER:
            return True
    return SEPARATOR in scope["path"]


class HotRoutes:
    """Application with all routes.

    *now*: seconds, monotonic, for the latency histogram. *alive*: the answer to GET /healthz.
    """

    def __init__(self, proxy: Proxy, app: ASGIApp, table: RouteTable, now: Callable[[], float], alive: Answer) -> None:
        self._proxy, self._app, self._table = proxy, app, table
        self._now = now
        status, fields, self._alive_body = alive
        self._alive: tuple[int, RawHeaders] = (
            status,
            [
                *((name.encode(), value.encode()) for name, value in fields.items()),
                (b"content-length", b"%d" % len(self._alive_body)),
            ],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        found = self._table.find(method, path)
        if found is None:
            status = await refuse(self._table.refusal(method, path), scope, send)
            count_answer(self._proxy.counters, "admin", status)
            return
        route, names = found
        if not route.hot or route.handler is None:
            if path == "/healthz" and not scope["query_string"]:
                await self._tell_alive(scope, send)
            else:
                await self._pass_on(scope, receive, send)
            return
        request = HotRequest(scope, receive, self._proxy.budget)
        try:
            status, headers, body = await self._answer(request, route, names)
        except ClientGone:
            return
        if request.stream is not None:
            await self._pour(request.stream, {"status": status, "headers": headers}, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _pour(self, stream: Stream, head: dict[str, Any], send: Send) -> None:
        """Send an answer that lasts. Its head is counted; whatever ends it, it is closed."""
        try:
            await send({"type": "http.response.start", STREAM_KEY: True, **head})
            await stream.run(send)
        except ClientGone:
            return
        finally:
            stream.close()
        await send({"type": "http.response.body", "body": b""})

    def take(self, scope: Scope, body: bytes) -> Coroutine[Any, Any, Reply] | None:
        """Take a request of a brief route whole."""
        found = self._table.find(scope["method"], scope["path"])
        if found is None or not found[0].is_brief:
            return None
        return self._answer(HotRequest(scope, receive_nothing, self._proxy.budget, body), *found)

    async def _answer(self, request: HotRequest, route: Route, names: tuple[str, ...]) -> Reply:
        """Return the reply of a hot route, counted. Raise ClientGone."""
        counters, name, scope, began = self._proxy.counters, route.hot, request.scope, self._now()
        assert route.handler is not None
        try:
            status, headers, body = await route.handler(self._proxy, request, *names)
            headers.append((_ID, request_id_of(scope).encode()))
            if status not in {204, 304} and request.stream is None:
                headers.append((b"content-length", b"%d" % len(body)))
        except ClientGone:
            count_answer(counters, name, 499, self._now() - began)
            raise
        except TernError as error:
            counters.count_refused([error])
            status, headers, body = problem_reply(error, instance=scope["path"], request_id=request_id_of(scope))
            if not request.is_read and scope["method"] in _WITH_BODY:
                # The rest of the body would be parsed as the next request's head.
                headers.append((b"connection", b"close"))
        except Exception:
            fields = {"request_id": request_id_of(scope), "route": name}
            logger.exception("a request failed unexpectedly", extra=fields)
            status, headers, body = problem_reply(TernError(), instance=scope["path"], request_id=request_id_of(scope))
        finally:
            request.release()
        count_answer(counters, name, status, self._now() - began)
        counters.bytes[name] += len(body)
        return status, headers, body

    async def _tell_alive(self, scope: Scope, send: Send) -> None:
        """Answer GET /healthz without FastAPI: load balancers ask on each of thousands of
        connections.
        """
        status, headers = self._alive
        headers = [*headers, (_ID, request_id_of(scope).encode())]
        count_answer(self._proxy.counters, "admin", status)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": self._alive_body})

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = self._now()
        status = 500

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            count_answer(self._proxy.counters, "admin", status, self._now() - began)


async def receive_nothing() -> Message:
    """Stand for the channel of a request that came whole: nothing waits for its client."""
    raise AssertionError("a request that came whole has nothing more to receive")
