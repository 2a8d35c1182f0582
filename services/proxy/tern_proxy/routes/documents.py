"""What ordinary routes share: a request's body and query read, documents answered, the leaders of a topic asked."""

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response

from tern_proxy.core.sending.parameters import BASIC, answer_kind, is_packed, read_query_once
from tern_proxy.core.sending.topic import Topic
from tern_proxy.exchange import encode
from tern_proxy.proxy import Proxy
from tern_wire.errors import InvalidField, MessageTooLarge, NoLeader, NoNameServer, TernError, WarmingUp
from tern_wire.limits import KIB
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.link.heads import LinkRequest, R

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


async def broker_group_names(proxy: Proxy) -> list[str]:
    """All that are known and not taken out, ascending, at least one. NoNameServer, WarmingUp or NoLeader when there is none."""
    if proxy.cache.routes is None or not proxy.groups:
        await proxy.cache.refresh()
    if proxy.cache.routes is None:
        raise NoNameServer(endpoints=proxy.cache.endpoints)
    if not proxy.groups:
        raise NoLeader(broker_group="(none is registered)") if proxy.cache.routes.warm else WarmingUp()
    names = sorted(proxy.groups)
    return [name for name in names if not proxy.is_taken_out(name)] or names


async def ask_all(
    proxy: Proxy, request: LinkRequest[R], *, is_repeatable: bool = True, absent: type[TernError] | None = None
) -> list[tuple[str, R]]:
    """Name and answer of every broker group, in the order of their names. The first trouble is the answer, when all have answered.

    *absent*: the error by which a broker group says that it has no such thing; it is left out, unless all of them say so.
    NoNameServer, WarmingUp or NoLeader when no broker group is known.
    """
    names = await broker_group_names(proxy)
    links = [proxy.groups[name].link for name in names]
    answers = await asyncio.gather(
        *(link.ask(request, is_repeatable=is_repeatable) for link in links), return_exceptions=True
    )
    troubles = [answer for answer in answers if isinstance(answer, BaseException)]
    if absent is not None and not all(isinstance(trouble, absent) for trouble in answers):
        troubles = [trouble for trouble in troubles if not isinstance(trouble, absent)]
    if troubles:
        raise troubles[0]
    return [(name, answer[0]) for name, answer in zip(names, answers, strict=True) if isinstance(answer, tuple)]


async def ask_each(proxy: Proxy, topic: Topic, request: LinkRequest[R]) -> list[tuple[str, R, memoryview]]:
    """Name, answer, and what is behind it, of every broker group that hosts *topic*, in the order of their names.

    The request may be repeated. The first trouble is the answer.
    """
    names = list(topic.broker_groups)
    answers = await asyncio.gather(*(proxy.group(name).link.ask(request, is_repeatable=True) for name in names))
    return [(name, answer, raw) for name, (answer, raw) in zip(names, answers, strict=True)]
