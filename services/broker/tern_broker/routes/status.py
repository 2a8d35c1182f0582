"""GET /v1/broker: what this node is doing, asked of the core loop through its one door."""

import asyncio
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from tern_wire.codec import encode_json
from tern_wire.paths import JSON

Ask = Callable[[], "asyncio.Future[dict[str, Any]]"]


def status_routes(ask: Ask, ask_trim: Ask) -> APIRouter:
    """The router; both questions are answered within one turn of the core loop."""
    router = APIRouter(tags=["broker"])

    @router.get("/v1/broker", response_class=Response)
    async def broker_status() -> Response:
        """Role, term, indexes, peers and counters of this node."""
        return Response(encode_json(await ask()), media_type=JSON)

    @router.post("/v1/broker/trim", status_code=202, response_class=Response)
    async def trim() -> Response:
        """Let retention look now, whatever the hour: what is older than it goes, on every node of the group. Ask the leader."""
        answer = await ask_trim()
        return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    return router
