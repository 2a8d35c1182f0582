"""What this node is doing, and what it may be told to do, asked of the core loop through its one door."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from tern_service import read_body
from tern_service.process_security import require_operator
from tern_wire.link.codec import encode_json
from tern_wire.paths import JSON

Ask = Callable[[], "asyncio.Future[dict[str, Any]]"]
AskTransfer = Callable[[str], "asyncio.Future[dict[str, Any]]"]
AskChoose = Callable[[str], "asyncio.Future[dict[str, Any]]"]
AskPassOver = Callable[[int, bool], "asyncio.Future[dict[str, Any]]"]
TRANSFER_SIZE_MAX_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """Who shall lead; empty: the follower that has most of the log."""

    to: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The node whose state is right, where no majority agrees."""

    node: str


@dataclass(frozen=True, slots=True)
class PassOverRequest:
    """The entry that no member can apply; with *withdraw* it is to be tried again."""

    index: int
    withdraw: bool = False


def status_routes(
    ask: Ask,
    ask_trim: Ask,
    ask_transfer: AskTransfer | None = None,
    ask_choose: AskChoose | None = None,
    ask_pass_over: AskPassOver | None = None,
) -> APIRouter:
    """The router; every question is answered within one turn of the core loop. *ask_transfer* and those behind it None: this node has no group."""
    router = APIRouter(tags=["broker"])
    # With TLS anybody of the cluster may look, and it takes the operator's certificate to tell this node anything.
    operator = [Depends(require_operator)]

    @router.get("/v1/broker", response_class=Response)
    async def broker_status() -> Response:
        """Role, term, indexes, peers and counters of this node."""
        return Response(encode_json(await ask()), media_type=JSON)

    @router.post("/v1/broker/trim", status_code=202, response_class=Response, dependencies=operator)
    async def trim() -> Response:
        """Let retention look now, whatever the hour: what is older than it goes, on every node of the group. Ask the leader."""
        answer = await ask_trim()
        return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    if ask_transfer is not None:

        @router.post("/v1/broker/transfer", status_code=202, response_class=Response, dependencies=operator)
        async def transfer(request: Request) -> Response:
            """Hand leadership over to `to`. 202: it is under way, and done when another node leads; 409 with the reason if it cannot be."""
            wanted = await read_body(request, TransferRequest, size_max_bytes=TRANSFER_SIZE_MAX_BYTES)
            answer = await ask_transfer(wanted.to)
            return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    if ask_choose is not None:

        @router.post("/v1/broker/choose", status_code=202, response_class=Response, dependencies=operator)
        async def choose(request: Request) -> Response:
            """Let the state of `node` hold, where the nodes differ and no majority agrees. 202: it is logged; 409 with the reason if it cannot be."""
            choice = await read_body(request, Choice, size_max_bytes=TRANSFER_SIZE_MAX_BYTES)
            answer = await ask_choose(choice.node)
            return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    if ask_pass_over is not None:

        @router.post("/v1/broker/pass-over", status_code=202, response_class=Response, dependencies=operator)
        async def pass_over(request: Request) -> Response:
            """Pass over entry `index`, which no member can apply. 202: it is done when every member has agreed; 409 with the reason if it cannot be."""
            asked = await read_body(request, PassOverRequest, size_max_bytes=TRANSFER_SIZE_MAX_BYTES)
            answer = await ask_pass_over(asked.index, asked.withdraw)
            return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    return router
