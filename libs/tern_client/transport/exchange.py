"""One HTTP request and its response as values, and the error that a response stands for. Pure."""

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import orjson

from tern_http.exchange import HttpAnswer
from tern_wire.errors import OutcomeUnknown, ShuttingDown, TernError, error_from
from tern_wire.reasons import reason_of

Headers = tuple[tuple[str, str], ...]
# The most connections that one client opens.
CONNECTIONS_MAX = 256


@dataclass(frozen=True, slots=True)
class Request:
    """A request to any proxy. Header values are printable ASCII. The proxy may park the request for
    `wait_ms`.

    `repeatable`: two requests have the effect of one, so the request may be repeated after an
    unknown outcome. `stores`: the request waits, and changes something.
    """

    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""
    wait_ms: int = 0
    repeatable: bool = True
    stores: bool = False


# A whole response of any status. Header names are lower case.
Response: TypeAlias = HttpAnswer


class ProxyUnreachable(TernError):
    """No connection could be made, so nothing was sent. The call has tried every endpoint until its
    deadline (`RetryPolicy`). Never on the wire.

    Example:

        from tern_client import BlockingProducer, ProxyUnreachable, RetryPolicy

        quick = RetryPolicy(deadline_ms=100)
        # Nothing listens at port 9.
        with BlockingProducer("http://127.0.0.1:9", policy=quick) as producer:
            try:
                producer.send("orders", b"hello")
            except ProxyUnreachable as error:
                print(error.code, error.retryable)  # -> proxy-unreachable True
    """

    code: ClassVar[str] = "proxy-unreachable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    title: ClassVar[str] = "The proxy cannot be reached"
    fix: ClassVar[str] = (
        "{endpoint} does not answer ({reason}). Start the mesh with `ternmq up`, or correct the endpoint."
    )


def unreachable(endpoint: str, error: BaseException) -> ProxyUnreachable:
    """Return the error of a connection that could not be made. Usual reasons are given in plain
    words, whichever library failed.
    """
    is_late = isinstance(error, TimeoutError) or type(error).__name__ == "ConnectTimeout"  # httpx's own
    reason = "no answer in time" if is_late else reason_of(error)
    cause: BaseException | None = error
    while cause is not None:
        # asyncio joins the failures of a name with several addresses into one text and drops their
        # numbers.
        if isinstance(cause, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(cause):
            reason = "connection refused"
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]  # httpx tried several addresses
        elif isinstance(cause, OSError):
            cause = cause.__cause__  # its context may belong to the caller
        else:
            cause = cause.__cause__ or cause.__context__
    return ProxyUnreachable(endpoint=endpoint, reason=reason)


def lost_connection(endpoint: str, reason: object) -> OutcomeUnknown:
    """Return the error of a request that was sent and not answered: it may have taken effect."""
    return OutcomeUnknown(
        endpoint=endpoint, reason=reason_of(reason) if isinstance(reason, BaseException) else str(reason)
    )


def error_of(response: Response, endpoint: str) -> TernError | None:
    """Return the error that *response* stands for; None for a success. The page of a gateway is
    recognized by its status.
    """
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
    """Return the error of a problem document. Its own sentence is kept: the proxy may be of another
    release.
    """
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
