"""Dispatcher of requests: hot paths go straight to their handlers, all others to the FastAPI
application.

Raw ASGI, because one FastAPI route costs four times as much as the whole handling of a small
message. Every error is answered as a problem document, on both ways.
"""

import logging
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tern_proxy.exchange import HotRequest
from tern_proxy.proxy import Proxy
from tern_proxy.routes.table import RouteTable
from tern_proxy.waiting.interrupts import ClientGone
from tern_service.plain_app import Answer
from tern_service.problems import RawHeaders, problem_reply, refuse, request_id_of
from tern_wire.errors import TernError
from tern_wire.paths import HEADER_REQUEST_ID

logger = logging.getLogger(__name__)

_ID = HEADER_REQUEST_ID.lower().encode()


def is_read(target: bytes) -> bool:
    """Return whether a request is a consumer's read: a receive, a pull, or a poll for checks."""
    path = target.partition(b"?")[0]
    return path.endswith(b"/receive") or b"/queues/" in path


class HotRoutes:
    """ASGI application that the server runs.

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
            self._proxy.counters.count_request("admin", status, 0.0)
            return
        route, names = found
        name, handler = route.hot, route.handler
        if not name or handler is None:
            if path == "/healthz" and not scope["query_string"]:
                await self._tell_alive(scope, send)
            else:
                await self._pass_on(scope, receive, send)
            return
        began = self._now()
        request = HotRequest(scope, receive, self._proxy.budget)
        try:
            status, headers, body = await handler(self._proxy, request, *names)
            headers.append((_ID, request_id_of(scope).encode()))
            if status not in {204, 304}:
                headers.append((b"content-length", b"%d" % len(body)))
        except ClientGone:
            self._proxy.counters.count_request(name, 499, self._now() - began)
            return
        except TernError as error:
            self._proxy.counters.count_refused([error])
            status, headers, body = problem_reply(error, instance=scope["path"], request_id=request_id_of(scope))
            if not request.is_read and method == "POST":
                # The rest of the body would be parsed as the next request's head.
                headers.append((b"connection", b"close"))
        except Exception:
            fields = {"request_id": request_id_of(scope), "route": name}
            logger.exception("a request failed unexpectedly", extra=fields)
            status, headers, body = problem_reply(TernError(), instance=scope["path"], request_id=request_id_of(scope))
        finally:
            request.release()
        counters = self._proxy.counters
        counters.count_request(name, status, self._now() - began)
        counters.bytes[name] += len(body)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _tell_alive(self, scope: Scope, send: Send) -> None:
        """Answer GET /healthz without FastAPI: load balancers ask on each of thousands of
        connections.
        """
        status, headers = self._alive
        headers = [*headers, (_ID, request_id_of(scope).encode())]
        self._proxy.counters.count_request("admin", status, 0.0)
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
            self._proxy.counters.count_request("admin", status, self._now() - began)
