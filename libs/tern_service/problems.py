"""Errors as HTTP: RFC 9457 problems with stable codes, and MQ-Request-Id in every answer.

Needs no framework. Reference: RFC 9457 (problems), RFC 9110 10.2.3 (Retry-After).
"""

import os
import re
from itertools import count
from zlib import crc32

import orjson
from starlette.types import Scope, Send

from tern_wire.errors import MethodNotAllowed, TernError
from tern_wire.paths import HEADER_REQUEST_ID, PROBLEM

RawHeaders = list[tuple[bytes, bytes]]

# Long enough for most elections, short enough to go unnoticed by people.
RETRY_AFTER_DEFAULT_MS = 500
# Spreads the repeats of clients that were refused together.
RETRY_AFTER_SPREAD_MS = 250
_RETRY_STATUSES = frozenset({408, 429, 503, 504})
REQUEST_ID = HEADER_REQUEST_ID.lower().encode()
_PROBLEM = PROBLEM.encode()
_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_SCOPE_ID = "tern.request_id"
# A request id is unique, not secret: random per process, counted within it.
_process = os.urandom(5).hex()
_numbers = count(1)


def new_request_id() -> str:
    """A request id, unique in the mesh."""
    return f"{_process}-{next(_numbers):x}"


def request_id_of(scope: Scope) -> str:
    """This request's id, kept in *scope*: the client's if valid, else a new one.
    Valid ids are 1 to 64 of `A-Za-z0-9._-`.
    """
    known = scope.get(_SCOPE_ID)
    if known is None:
        for name, value in scope["headers"]:
            if name == REQUEST_ID and _SANE_ID.fullmatch(value):
                known = value.decode()
                break
        else:
            known = new_request_id()
        scope[_SCOPE_ID] = known
    return str(known)


def problem_reply(error: TernError, *, instance: str = "", request_id: str = "") -> tuple[int, RawHeaders, bytes]:
    """Status, headers (lower case) and body of *error* as application/problem+json.
    408, 429, 503 and 504 with a retryable *error* carry `retry_after_ms` (the error's own field, or
    500 to 750 by *request_id*) and Retry-After (whole seconds, >= 1); others have neither.
    """
    document = error.problem(instance, request_id)
    headers: RawHeaders = [(b"content-type", _PROBLEM), (b"cache-control", b"no-store")]
    if request_id:
        headers.append((REQUEST_ID, request_id.encode("latin-1", "replace")))
    if error.status in _RETRY_STATUSES and error.retryable:
        spread_ms = crc32(request_id.encode("utf-8", "replace")) % RETRY_AFTER_SPREAD_MS
        pause_ms = int(document.setdefault("retry_after_ms", RETRY_AFTER_DEFAULT_MS + spread_ms))
        headers.append((b"retry-after", b"%d" % max(1, -(-pause_ms // 1_000))))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", str(error.fields.get("allowed", "")).encode("latin-1", "replace")))
    body = orjson.dumps(document, default=str)
    headers.append((b"content-length", b"%d" % len(body)))
    return error.status, headers, body


def has_body(scope: Scope) -> bool:
    """Whether a request's head announces a body."""
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return True
    return False


async def refuse(error: TernError, scope: Scope, send: Send, *more: tuple[bytes, bytes], is_read: bool = False) -> int:
    """Answer a request with *error* and the headers *more*; return its status.
    *is_read*: whether its body has been read. If not, the connection ends: the body would be read
    as the next request's head.
    """
    status, headers, body = problem_reply(error, instance=scope["path"], request_id=request_id_of(scope))
    headers += more
    if not is_read and has_body(scope):
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
    return status
