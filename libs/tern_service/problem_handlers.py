"""Problems of FastAPI applications: every error becomes one, and every answer has MQ-Request-Id.

Law: a client never sees a traceback; an unexpected error is logged once, with the request id in the
answer. Reference: RFC 6901 (pointers).
"""

import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tern_service.connections.table import address_in
from tern_service.problems import REQUEST_ID, problem_reply, request_id_of
from tern_service.request_memory import Holding, Room
from tern_wire.errors import (
    InvalidField,
    MalformedBody,
    MessageTooLarge,
    MethodNotAllowed,
    RequestMalformed,
    RouteNotFound,
    TernError,
    UnknownField,
    UnknownParameter,
    UnsupportedEncoding,
)
from tern_wire.limits import BATCH_SIZE_MAX_BYTES, IN_FLIGHT_SIZE_MAX_BYTES
from tern_wire.limits_requests import SMALL_BODY_SIZE_MAX_BYTES

logger = logging.getLogger(__name__)

_SCOPE_LIMIT = "tern.body_size_max_bytes"
# Packed bodies may unpack to any size, and no handler unpacks them.
_NOT_ENCODED = frozenset({b"", b"identity"})


def install_problems(
    app: FastAPI,
    *,
    body_size_max_bytes: int = BATCH_SIZE_MAX_BYTES,
    room: Room | None = None,
    owner_of: Callable[[Scope], str] = address_in,
) -> None:
    """Answer every error of *app* as a problem, and add MQ-Request-Id to every answer.
    Call once, before it serves. Bodies longer than *body_size_max_bytes* are a 413 as early as
    possible; FastAPI would gather them whole. *room* (None: a new one) holds the received bytes of
    all bodies, by owner as *owner_of* names it.
    """
    room = room or Room("bytes of requests in flight", IN_FLIGHT_SIZE_MAX_BYTES, small_max=SMALL_BODY_SIZE_MAX_BYTES)
    app.add_exception_handler(TernError, _on_tern_error)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_middleware(_Answers, body_size_max_bytes=body_size_max_bytes, room=room, owner_of=owner_of)


class _NoRoom(HTTPException):
    """Carries *error* through FastAPI, which would turn an unknown exception in a body into a
    400.
    """

    def __init__(self, error: TernError) -> None:
        super().__init__(error.status)
        self.error = error


class _Answers:
    """Adds MQ-Request-Id, bounds the body, and turns unhandled errors into a 500 and one log
    line.
    """

    def __init__(self, app: ASGIApp, body_size_max_bytes: int, room: Room, owner_of: Callable[[Scope], str]) -> None:
        self._app = app
        self._body_size_max_bytes = body_size_max_bytes
        self._room, self._owner_of = room, owner_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = request_id_of(scope)
        scope[_SCOPE_LIMIT] = self._body_size_max_bytes
        encoding = next((value for name, value in scope["headers"] if name == b"content-encoding"), b"identity")
        if encoding.lower() not in _NOT_ENCODED:
            await _send_problem(
                UnsupportedEncoding(encoding=encoding.decode("latin-1")[:40]), scope, send, is_last=True
            )
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared[:19]) > self._body_size_max_bytes:
            too_large = MessageTooLarge(actual=int(declared[:19]), limit=self._body_size_max_bytes)
            await _send_problem(too_large, scope, send, is_last=True)
            return
        with Holding(self._room, self._owner_of(scope)) as holding:
            await self._pass_on(holding, request_id, scope, receive, send)

    async def _pass_on(self, holding: Holding, request_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def receive_bounded() -> Message:
            message = await receive()
            size_bytes = len(message.get("body", b""))
            if holding.held + size_bytes > self._body_size_max_bytes:
                raise HTTPException(413)
            if size_bytes:
                try:
                    holding.take(size_bytes)
                except TernError as error:
                    raise _NoRoom(error) from error
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = message.setdefault("headers", [])
                if not any(name.lower() == REQUEST_ID for name, _ in headers):
                    message["headers"] = [*headers, (REQUEST_ID, request_id.encode())]
            await send(message)

        try:
            await self._app(scope, receive_bounded, send_with_id)
        except TernError as error:  # raised by a middleware, outside the router's handlers
            if started:
                raise
            await _send_problem(error, scope, send)
        except ClientDisconnect:
            return  # the client left while its body was read: no answer is needed, and nothing is broken
        except Exception:
            # Logged here and not raised: the server would log it again, without the id. An
            # incomplete answer ends as a closed connection, which the server does when we return
            # without completing it.
            fields = {"request_id": request_id, "method": scope["method"], "path": scope["path"]}
            logger.exception("a request failed unexpectedly", extra=fields)
            if not started:
                await _send_problem(TernError(), scope, send)


async def _send_problem(error: TernError, scope: Scope, send: Send, *, is_last: bool = False) -> None:
    """*is_last*: the request's body is not read, so nothing else can come on its connection."""
    status, headers, body = problem_reply(error, instance=scope["path"], request_id=request_id_of(scope))
    if is_last:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _respond(error: TernError, request: Request) -> Response:
    status, headers, body = problem_reply(error, instance=request.url.path, request_id=request_id_of(request.scope))
    response = Response(body, status_code=status)
    response.raw_headers = headers
    return response


async def _on_tern_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TernError)
    return _respond(error, request)


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _respond(_explain(error), request)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _respond(_translate(error, request), request)


def _explain(error: RequestValidationError) -> TernError:
    """Convert pydantic's first complaint: location ("body", "a", 0) becomes the pointer /a/0."""
    first: dict[str, Any] = error.errors()[0]
    place = [str(step) for step in first["loc"]]
    steps = place[1:] if place[:1] == ["body"] else place
    pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
    if first["type"] == "json_invalid":
        return MalformedBody(reason=str(first.get("ctx", {}).get("error", first["msg"])), pointer="/")
    if first["type"] == "extra_forbidden":
        if place[:1] == ["query"]:
            return UnknownParameter(parameter=place[-1], allowed="see /openapi.json")
        return UnknownField(field=place[-1], pointer=pointer)
    return InvalidField(reason=first["msg"], pointer=pointer or "/")


def _translate(error: HTTPException, request: Request) -> TernError:
    """Convert the framework's own refusals."""
    if isinstance(error, _NoRoom):
        return error.error
    if error.status_code == 404:
        return RouteNotFound(method=request.method, path=request.url.path)
    if error.status_code == 405:
        return MethodNotAllowed(path=request.url.path, allowed=(error.headers or {}).get("Allow", "other methods"))
    if error.status_code == 413:
        actual = request.headers.get("content-length", "too many")
        return MessageTooLarge(actual=actual, limit=request.scope.get(_SCOPE_LIMIT, "lower"))
    if error.status_code >= 500:
        return TernError()
    return RequestMalformed(reason=str(error.detail).rstrip("."))
