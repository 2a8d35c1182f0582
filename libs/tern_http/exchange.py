"""One request's head, one answer, and the errors of an exchange. Pure.

`request_head` writes what `tern_http/connection.py` sends before a body; `HttpAnswer` is the
result.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit


class ExchangeFailed(Exception):
    """There is no answer.
    The request may have been carried out, unless a subclass says otherwise.
    """


class AnswerTooLarge(ExchangeFailed):
    """The answer's head or body exceeds its limit."""


class NoHttp(ExchangeFailed):
    """The peer's bytes are no HTTP answer."""


class TooSlow(ExchangeFailed):
    """The answer, or its next piece, did not come in time."""


class BrokenOff(ExchangeFailed):
    """The connection ended before the answer did.
    *is_stale*: before the answer's first byte, so a reused connection may just have been closed.
    """

    def __init__(self, *, is_stale: bool) -> None:
        super().__init__("the connection was closed")
        self.is_stale = is_stale


class HttpAnswer(NamedTuple):
    """A complete answer: status, headers (lower case; the last of repeated ones), body."""

    # A tuple, since the SDK makes one for each sent message: a frozen dataclass takes 0.4 us
    # longer.
    status: int
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b""


def request_head(
    method: str, url: str, target: str, fields: Iterable[tuple[str, str]] = (), *, body_size_bytes: int | None = None
) -> bytes:
    """The head of a request to *target*, which begins with a slash, below *url*'s path.
    *url* is such as `http://127.0.0.1:9876`. *fields*: more headers, in Latin-1. *body_size_bytes*:
    of the following body, None for a request without one.
    """
    place = urlsplit(url)
    lines = [f"{method} {place.path.rstrip('/')}{target} HTTP/1.1", f"Host: {place.netloc}"]
    lines += [f"{name}: {value}" for name, value in fields]
    if body_size_bytes is not None:
        lines.append(f"Content-Length: {body_size_bytes}")
    return "\r\n".join((*lines, "", "")).encode("latin-1")
