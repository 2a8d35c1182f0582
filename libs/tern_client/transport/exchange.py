"""One HTTP request and its response as values, and what a response that is no success means. Pure."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import orjson

from tern_http.exchange import HttpAnswer
from tern_wire.errors import OutcomeUnknown, ShuttingDown, TernError, error_from
from tern_wire.reasons import reason_of

Headers = tuple[tuple[str, str], ...]
# Connections that one client opens at most.
CONNECTIONS_MAX = 256


@dataclass(frozen=True, slots=True)
class Request:
    """A request to any proxy. Header values are printable ASCII; `wait_ms` is how long the proxy may park it.

    `repeatable`: doing it twice is the same as doing it once, so it may be repeated when its outcome is unknown. `stores`: one that
    waits and is no mere read.
    """

    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""
    wait_ms: int = 0
    repeatable: bool = True
    stores: bool = False


# A whole response, whatever its status; header names are lower case.
Response: TypeAlias = HttpAnswer


class ProxyUnreachable(TernError):
    """No connection could be made, so nothing was sent. Raised by transports, never on the wire."""

    code: ClassVar[str] = "proxy-unreachable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    title: ClassVar[str] = "The proxy cannot be reached"
    fix: ClassVar[str] = (
        "{endpoint} does not answer ({reason}). Start the mesh with `ternmq up`, or correct the endpoint."
    )


def unreachable(endpoint: str, error: BaseException) -> ProxyUnreachable:
    """The error of a connection that could not be made; the usual reason in words instead of each library's own."""
    is_late = isinstance(error, TimeoutError) or type(error).__name__ == "ConnectTimeout"  # httpx's own
    reason = "no answer in time" if is_late else reason_of(error)
    cause: BaseException | None = error
    while cause is not None:
        # asyncio joins the failures of a name with several addresses into one text and drops their numbers.
        if isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(cause):
            reason = "connection refused"
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]  # httpx tried several addresses
        elif isinstance(cause, OSError):
            cause = cause.__cause__  # its context may be the caller's own business
        else:
            cause = cause.__cause__ or cause.__context__
    return ProxyUnreachable(endpoint=endpoint, reason=reason)


def lost_connection(endpoint: str, reason: object) -> OutcomeUnknown:
    """The error of a request that was sent and not answered: it may have been done."""
    return OutcomeUnknown(
        endpoint=endpoint, reason=reason_of(reason) if isinstance(reason, BaseException) else str(reason)
    )


def error_of(response: Response, endpoint: str) -> TernError | None:
    """The error that *response* is, None for a success. Something else than our proxy (a gateway's page) is told apart by status."""
    if response.status < 400:
        return None
    try:
        problem = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict) or "code" not in problem:
        return _foreign_error(response, endpoint)
    error = problem_error(problem)
    retry_after = response.headers.get("retry-after", "")
    if "retry_after_ms" not in error.fields and retry_after.isdecimal():
        error.fields["retry_after_ms"] = int(retry_after) * 1000
    return error


def problem_error(problem: Mapping[str, Any]) -> TernError:
    """The error of a problem document. Its own sentence wins: the proxy may be of another release."""
    error = error_from(str(problem["code"]), problem)
    detail = problem.get("detail")
    if isinstance(detail, str) and detail:
        error.detail = detail
        error.args = (detail,)
    return error


def _foreign_error(response: Response, endpoint: str) -> TernError:
    if response.status in {502, 503}:
        return ShuttingDown(endpoint=endpoint)
    if response.status == 504:
        return lost_connection(endpoint, "a gateway gave up")
    error = TernError(endpoint=endpoint, status=response.status)
    error.detail = f"{endpoint} answered {response.status} without a problem document; is it a TernMQ proxy?"
    error.args = (error.detail,)
    return error
