"""What ordinary routes share: a request's body and query read, documents answered."""

from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response

from tern_proxy.core.sending.parameters import BASIC, answer_kind, is_packed, read_query_once
from tern_proxy.exchange import encode
from tern_wire.errors import InvalidField, MessageTooLarge
from tern_wire.limits import KIB
from tern_wire.link.codec import read_json, read_msgpack

# 1,024 queues with offset and expected offset.
BODY_SIZE_MAX_BYTES = 128 * KIB
K = TypeVar("K")


async def read_document(request: Request, kind: type[K]) -> K:
    """The request's body as *kind*; an empty one means all defaults. Whatever can be refused is refused before anything is done."""
    refuse_query(request)
    answer_kind(request.headers.get("accept", ""), BASIC)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_SIZE_MAX_BYTES:
            raise MessageTooLarge(actual=size, limit=BODY_SIZE_MAX_BYTES)
        pieces.append(piece)
    body = b"".join(pieces)
    packed = is_packed(request.headers.get("content-type", ""))
    return read_msgpack(body, kind) if packed and body else read_json(body or b"{}", kind)


def read_parameters(request: Request, allowed: tuple[str, ...], needed: tuple[str, ...] = ()) -> dict[str, str]:
    """The query's parameters, each at most once; UnknownParameter unless in *allowed*, InvalidField where one of *needed* is missing."""
    query = read_query_once(request.url.query.encode(), allowed)
    for name in needed:
        if not query.get(name):
            raise InvalidField(reason=f"The parameter '{name}' is needed", pointer=f"query/{name}")
    return query


def refuse_query(request: Request) -> None:
    """UnknownParameter when there is any."""
    read_query_once(request.url.query.encode(), ())


def answer_form(request: Request) -> str:
    """JSON or MessagePack, as the request accepts; NotAcceptable."""
    return answer_kind(request.headers.get("accept", ""), BASIC)


def respond(request: Request, document: dict[str, Any], status: int = 200) -> Response:
    """*document* in the form that the request accepts; NotAcceptable."""
    kind = answer_kind(request.headers.get("accept", ""), BASIC)
    return Response(encode(document, kind), status, media_type=kind)
