"""GET /healthz and GET /readyz, for operators, supervisors and load balancers."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from tern_service.plain_app import Answer, Ready, alive, readiness


def add_health(app: FastAPI, *, ready: Ready, info: Mapping[str, Any]) -> None:
    """Add GET /healthz and GET /readyz.
    /healthz: 200 while the event loop runs (`?verbose` adds *info*: ProcessSecurity.info has the
    notice about credentials). /readyz: 200 or 503 from *ready*: whether work is accepted, and
    reasons by name.
    """

    async def healthz(request: Request) -> Response:
        """Alive: the event loop turns. `?verbose` tells what runs here."""
        return _response(alive(info, is_verbose="verbose" in request.query_params))

    async def readyz() -> Response:
        """Ready: work is accepted. 503 with the reasons while it is not."""
        return _response(readiness(ready))

    app.add_api_route("/healthz", healthz, methods=["GET"], response_class=Response, tags=["health"])
    app.add_api_route("/readyz", readyz, methods=["GET"], response_class=Response, tags=["health"])


def _response(answer: Answer) -> Response:
    status, headers, body = answer
    return Response(body, status, headers)
