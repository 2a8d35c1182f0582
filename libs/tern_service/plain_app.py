"""A plain ASGI application with a table of GET routes, for services with little HTTP.

FastAPI costs 16 MB a process. The server guards requests as usual (`connections/connection.py`);
bodies are not read, and errors are problems.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from starlette.types import Receive, Scope, Send

from tern_service.failed_tasks import FailedTasks
from tern_service.problems import REQUEST_ID, RawHeaders, problem_reply, request_id_of
from tern_tasks import OURS, KeptTasks
from tern_wire.errors import MethodNotAllowed, RouteNotFound, TernError
from tern_wire.paths import JSON

logger = logging.getLogger(__name__)

# Status, headers (lower case), body.
Answer: TypeAlias = tuple[int, dict[str, str], bytes]
# A path's answer to a raw query string. It must not wait.
Route: TypeAlias = Callable[[bytes], Answer]
Ready: TypeAlias = Callable[[], tuple[bool, dict[str, Any]]]


class PlainApp:
    """*routes* by path. *start* and *stop* run with the server's lifespan."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        start: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
    ) -> None:
        self._routes = dict(routes)
        self._start, self._stop = start, stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection: the lifespan, or a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        request_id = request_id_of(scope)
        status, headers, body = self._answer(scope, request_id)
        if scope["method"] == "HEAD":
            body = b""
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, scope: Scope, request_id: str) -> tuple[int, RawHeaders, bytes]:
        path, method = scope["path"], scope["method"]
        try:
            route = self._routes.get(path)
            if route is None:
                raise RouteNotFound(method=method, path=path)
            if method not in {"GET", "HEAD"}:
                raise MethodNotAllowed(path=path, allowed="GET, HEAD")
            status, headers, body = route(scope["query_string"])
        except TernError as error:
            return problem_reply(error, instance=path, request_id=request_id)
        except Exception:
            fields = {"request_id": request_id, "method": method, "path": path}
            logger.exception("a request failed unexpectedly", extra=fields)
            return problem_reply(TernError(), instance=path, request_id=request_id)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        raw += [(REQUEST_ID, request_id.encode()), (b"content-length", b"%d" % len(body))]
        return status, raw, body

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stop()
        await send({"type": "lifespan.shutdown.complete"})


def json_answer(status: int, document: Mapping[str, Any]) -> Answer:
    """*document* as JSON that no cache stores."""
    headers = {"content-type": JSON, "cache-control": "no-store"}
    if status == 503:
        headers["retry-after"] = "1"
    return status, headers, orjson.dumps(document, default=str)


def alive(info: Mapping[str, Any], *, is_verbose: bool) -> Answer:
    """The answer of /healthz.
    *is_verbose* adds *info*; the notice of an insecure process is always there.
    """
    document: dict[str, Any] = {"status": "alive"}
    if info.get("insecure"):
        document["notice"] = info["notice"]
    if is_verbose:
        document |= info
    return json_answer(200, document)


def readiness(ready: Ready, *, tasks: KeptTasks = OURS) -> Answer:
    """The answer of /readyz: 503 with the reasons while work is refused or a task waits for its
    restart.
    """
    is_ready, reasons = ready()
    if failed := tasks.down():
        is_ready, reasons = False, {**reasons, "failed_tasks": failed}
    return json_answer(200 if is_ready else 503, {"ready": is_ready, **reasons})


def health_routes(*, ready: Ready, info: Mapping[str, Any]) -> dict[str, Route]:
    """GET /healthz and GET /readyz, as in `add_health`."""
    return {
        "/healthz": lambda query: alive(info, is_verbose=_names(query, b"verbose")),
        "/readyz": lambda _: readiness(ready),
    }


def metrics_routes(registry: CollectorRegistry, *, service: str) -> dict[str, Route]:
    """GET /metrics, as in `add_metrics`."""
    ProcessCollector(namespace=f"ternmq_{service}", registry=registry)
    registry.register(FailedTasks(f"ternmq_{service}"))
    return {"/metrics": lambda _: (200, {"content-type": CONTENT_TYPE_LATEST}, generate_latest(registry))}


def _names(query: bytes, name: bytes) -> bool:
    return any(part.partition(b"=")[0] == name for part in query.split(b"&"))
