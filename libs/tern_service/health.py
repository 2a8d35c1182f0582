"""Is it alive, is it ready: GET /healthz and GET /readyz, for people, supervisors and load balancers."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from tern_wire.paths import JSON

NOTICE = (
    "Every listener is on loopback, so credentials are optional. "
    "Authentication and TLS are not part of this release: other addresses are refused."
)


def add_health(app: FastAPI, *, ready: Callable[[], tuple[bool, dict[str, Any]]], info: Mapping[str, Any]) -> None:
    """GET /healthz: 200 while the event loop turns (`?verbose` adds *info* and the notice about credentials).

    GET /readyz: 200 or 503 with what *ready* says: whether work is accepted, and the reasons by name.
    """

    async def healthz(request: Request) -> Response:
        """Alive: the event loop turns. `?verbose` tells what runs here."""
        document: dict[str, Any] = {"status": "alive"}
        if "verbose" in request.query_params:
            document |= {**info, "notice": NOTICE}
        return _answer(200, document)

    async def readyz() -> Response:
        """Ready: work is accepted. 503 with the reasons while it is not."""
        is_ready, reasons = ready()
        return _answer(200 if is_ready else 503, {"ready": is_ready, **reasons})

    app.add_api_route("/healthz", healthz, methods=["GET"], response_class=Response, tags=["health"])
    app.add_api_route("/readyz", readyz, methods=["GET"], response_class=Response, tags=["health"])


def _answer(status: int, document: Mapping[str, Any]) -> Response:
    headers = {"cache-control": "no-store"}
    if status == 503:
        headers["retry-after"] = "1"
    return Response(orjson.dumps(document, default=str), status, headers, JSON)
