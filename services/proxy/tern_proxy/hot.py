"""The first to see a request: hot paths go straight to their handlers, everything else to the FastAPI application.

Raw ASGI, because one FastAPI route costs four times as much as the whole handling of a small message. Whatever goes wrong is
answered as a problem, here as there.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tern_proxy.exchange import HotRequest, Reply
from tern_proxy.proxy import Proxy
from tern_proxy.routes.checks import post_receive_checks
from tern_proxy.routes.produce import post_batch, post_message
from tern_proxy.routes.pull import get_messages
from tern_proxy.routes.receive import post_receive
from tern_proxy.routes.request_reply import get_reply, post_reply, post_request
from tern_proxy.routes.settle import post_ack, post_settle
from tern_proxy.routes.transactions import post_begin, post_begin_several, post_commit, post_rollback
from tern_proxy.waiting.interrupts import ClientGone
from tern_service.plain import Answer
from tern_service.problems import RawHeaders, problem_reply, request_id_of
from tern_wire.errors import MethodNotAllowed, TernError
from tern_wire.paths import HEADER_REQUEST_ID

logger = logging.getLogger(__name__)

_ID = HEADER_REQUEST_ID.lower().encode()
Handler: TypeAlias = Callable[..., Awaitable[Reply]]

# By number of path segments behind /v1/topics/{topic} and /v1/transactions, then by the fixed ones.
_MESSAGES: tuple[str, str, Handler] = ("produce", "POST", post_message)
_BATCH: tuple[str, str, Handler] = ("produce_batch", "POST", post_batch)
_PULL: tuple[str, str, Handler] = ("pull", "GET", get_messages)
_REQUEST: tuple[str, str, Handler] = ("request", "POST", post_request)
_REPLY: tuple[str, str, Handler] = ("reply", "POST", post_reply)
_FIND_REPLY: tuple[str, str, Handler] = ("find_reply", "GET", get_reply)
_BEGIN: tuple[str, str, Handler] = ("begin", "POST", post_begin)
_BEGIN_SEVERAL: tuple[str, str, Handler] = ("begin_several", "POST", post_begin_several)
_CHECKS: tuple[str, str, Handler] = ("checks", "POST", post_receive_checks)
_OF_TOPIC = {"messages": _MESSAGES, "requests": _REQUEST, "replies": _REPLY, "transactions": _BEGIN}
_OF_TRANSACTION: dict[str, tuple[str, str, Handler]] = {
    "commit": ("commit", "POST", post_commit),
    "rollback": ("rollback", "POST", post_rollback),
}
# Paths of which GET is no hot path: messages by key, and transactions that have not ended.
_ALSO_READ = (_MESSAGES, _BEGIN_SEVERAL)
_OF_GROUP: dict[str, tuple[str, str, Handler]] = {
    "receive": ("receive", "POST", post_receive),
    "ack": ("ack", "POST", post_ack),
    "settle": ("settle", "POST", post_settle),
}


def match(path: str) -> tuple[tuple[str, str, Handler], tuple[str, ...]] | None:
    """Route (name, method, handler) and names of a hot path; None for all others.

    /v1/topics/{t}/messages[/batch], /v1/topics/{t}/groups/{g}/receive|ack|settle, /v1/topics/{t}/queues/{q}/messages,
    /v1/topics/{t}/requests[/{correlation id}], /v1/topics/{t}/replies, /v1/topics/{t}/transactions,
    /v1/transactions[/{id}/commit|rollback], /v1/producer-groups/{pg}/checks/receive
    """
    parts = path.split("/")
    count = len(parts)
    if count < 3 or count > 7 or parts[1] != "v1" or parts[0]:
        return None
    if parts[2] != "topics":
        return _match_elsewhere(parts)
    if count == 5:
        route = _OF_TOPIC.get(parts[4])
        return None if route is None else (route, (parts[3],))
    if count == 6:
        if parts[4] == "requests":
            return _FIND_REPLY, (parts[3], parts[5])
        return (_BATCH, (parts[3],)) if parts[4] == "messages" and parts[5] == "batch" else None
    if count < 7:
        return None
    if parts[4] == "groups":
        route = _OF_GROUP.get(parts[6])
        return None if route is None else (route, (parts[3], parts[5]))
    if parts[4] == "queues" and parts[6] == "messages":
        return _PULL, (parts[3], parts[5])
    return None


def _match_elsewhere(parts: list[str]) -> tuple[tuple[str, str, Handler], tuple[str, ...]] | None:
    if parts[2] == "transactions":
        if len(parts) == 3:
            return _BEGIN_SEVERAL, ()
        route = _OF_TRANSACTION.get(parts[4]) if len(parts) == 5 else None
        return None if route is None else (route, (parts[3],))
    if parts[2] == "producer-groups" and parts[4:] == ["checks", "receive"]:
        return _CHECKS, (parts[3],)
    return None


def is_read(target: bytes) -> bool:
    """Whether a request is one with which consumers read: a receive, a pull, a poll for checks."""
    path = target.partition(b"?")[0]
    return path.endswith(b"/receive") or b"/queues/" in path


class HotRoutes:
    """The ASGI application that the server runs. *now*: seconds, monotonic, for the latency histogram. *alive*: the answer to GET /healthz."""

    def __init__(self, proxy: Proxy, app: ASGIApp, now: Callable[[], float], alive: Answer) -> None:
        self._proxy = proxy
        self._app = app
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
        found = match(scope["path"])
        if found is None or (scope["method"] == "GET" and found[0] in _ALSO_READ):
            if scope["path"] == "/healthz" and scope["method"] == "GET" and not scope["query_string"]:
                await self._tell_alive(scope, send)
                return
            await self._pass_on(scope, receive, send)
            return
        began = self._now()
        (name, method, handler), names = found
        request = HotRequest(scope, receive, self._proxy.budget)
        try:
            if scope["method"] != method:
                raise MethodNotAllowed(path=scope["path"], allowed=method)
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
                # The rest of the body would be read as the next request's head.
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
        """Whoever opens thousands of connections asks it on each of them."""
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
