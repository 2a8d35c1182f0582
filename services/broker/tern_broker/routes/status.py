"""Status of this node, and operators' commands to it, passed to the core loop."""

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
    """The node that shall lead; empty: the follower with the longest log."""

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
    """Return the router; every request is answered within one turn of the core loop.

    *ask_transfer* and the arguments after it are None for a node without a group.
    """
    router = APIRouter(tags=["broker"])
    # With TLS every certificate of the cluster may read; commands to this node need the operator's
    # certificate.
    operator = [Depends(require_operator)]

    @router.get("/v1/broker", response_class=Response)
    async def broker_status() -> Response:
        """Role, term, indexes, peers and counters of this node."""
        return Response(encode_json(await ask()), media_type=JSON)

    @router.post("/v1/broker/trim", status_code=202, response_class=Response, dependencies=operator)
    async def trim() -> Response:
        """Run retention now, at any hour: every node of the group drops what is older. Ask the
        leader.
        """
        answer = await ask_trim()
        return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    if ask_transfer is not None:

        @router.post("/v1/broker/transfer", status_code=202, response_class=Response, dependencies=operator)
        async def transfer(request: Request) -> Response:
            """Transfer leadership to `to`.

            202: the transfer is in progress, and done when another node leads; 409 with the reason
            if it is not possible.
            """
            wanted = await read_body(request, TransferRequest, size_max_bytes=TRANSFER_SIZE_MAX_BYTES)
            answer = await ask_transfer(wanted.to)
            return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    if ask_choose is not None:

        @router.post("/v1/broker/choose", status_code=202, response_class=Response, dependencies=operator)
        async def choose(request: Request) -> Response:
            """Declare the state of `node` right, where the nodes differ and no majority agrees.

            202: the choice is logged; 409 with the reason if it is not possible.
            """
            choice = await read_body(request, Choice, size_max_bytes=TRANSFER_SIZE_MAX_BYTES)
            answer = await ask_choose(choice.node)
            return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    if ask_pass_over is not None:

        @router.post("/v1/broker/pass-over", status_code=202, response_class=Response, dependencies=operator)
        async def pass_over(request: Request) -> Response:
            """Pass over entry `index`, which no member can apply.

            202: done when every member has agreed; 409 with the reason if it is not possible.
            """
            asked = await read_body(request, PassOverRequest, size_max_bytes=TRANSFER_SIZE_MAX_BYTES)
            answer = await ask_pass_over(asked.index, asked.withdraw)
            return Response(encode_json(answer), 202 if answer["asked"] else 409, media_type=JSON)

    return router
