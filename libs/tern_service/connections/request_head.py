"""Checks of a request's head for every route: target, Host, and headers that are given once.

Used by connection.py. Pure. The checks keep two readers of one request, this server and a proxy
before it, from reading it differently.
 /v1/topics/orders/messages?tag=paid      decoded once, by the server; escapes that could form
                                          another path are refused here
 http://mq.example.org/v1/topics/orders   accepted only if it names the same host as Host
Reference: RFC 9112 3.2 (targets and Host), RFC 9110 5.3 (repeated fields), RFC 3986 2.1 and 3.3
(escapes, dot segments).
"""

import re
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from tern_wire import paths
from tern_wire.errors import RequestMalformed

# Lists may be repeated. Of these fields one reader takes the first value, another the last. Each
# field has a bit.
_GIVEN_ONCE = (
    "Host",
    "Transfer-Encoding",
    "Expect",
    paths.HEADER_CHECK_NONCE,
    "Content-Length",
    "Content-Type",
    "Content-Encoding",
    "Authorization",
    paths.HEADER_TAG,
    paths.HEADER_QUEUE,
    paths.HEADER_MESSAGE_GROUP,
    paths.HEADER_DELAY,
    paths.HEADER_DELIVER_AT,
    paths.HEADER_DELAY_LEVEL,
    paths.HEADER_IDEMPOTENCY_KEY,
    paths.HEADER_PRODUCER_GROUP,
    paths.HEADER_CHECK_AFTER,
    paths.HEADER_TIMEOUT,
    paths.HEADER_CORRELATION_ID,
    paths.HEADER_CLIENT,
    paths.HEADER_REPLY_TO,
    paths.HEADER_REQUEST_ID,
    paths.HEADER_PEER_PROOF,
)
GIVEN_ONCE: dict[bytes, int] = {name.lower().encode(): 1 << number for number, name in enumerate(_GIVEN_ONCE)}
# The first four, whose values the connection itself uses.
HOST, TRANSFER_ENCODING, EXPECT, CHECK_NONCE = 1, 2, 4, 8
SPECIAL_MAX = CHECK_NONCE

_HOST = re.compile(rb"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)([/?].*)?", re.IGNORECASE | re.DOTALL)
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# An escaped slash or backslash is part of a name here and a separator elsewhere; no name has
# control characters.
_UNWANTED_ESCAPE = re.compile(rb"%(?:2f|5c|[01][0-9a-f]|7f)", re.IGNORECASE)


@lru_cache(maxsize=1_024)
def is_host(value: bytes) -> bool:
    """Whether *value* is a host with or without a port, as in Host."""
    return _HOST.fullmatch(value) is not None


def split_target(target: bytes, host: bytes) -> tuple[bytes, bytes]:
    """Path and query of *target*, as sent; RequestMalformed if ambiguous.
    *host*: the Host header, or b"".
    """
    text = target.decode("latin-1")
    if text[:1] != "/" or "%" in text or "/." in text or "//" in text or "#" in text:
        target = _look_closely(target, host)
    path, _, query = target.partition(b"?")
    return path, query


def _look_closely(target: bytes, host: bytes) -> bytes:
    """*target* from its path on."""
    if b"#" in target:
        raise RequestMalformed(reason="The path has a '#', which browsers keep to themselves; write it as %23")
    if target[:1] != b"/":
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None:
            raise RequestMalformed(reason="The request's target is not a path that begins with '/'")
        if absolute[1].lower() != host.lower():
            raise RequestMalformed(reason="The request's target names another host than its Host header")
        target = absolute[2] or b"/"
        if target[:1] != b"/":
            target = b"/" + target
    reason = _path_trouble(target.partition(b"?")[0])
    if reason:
        raise RequestMalformed(reason=reason)
    return target


def _path_trouble(path: bytes) -> str:
    if _BROKEN_ESCAPE.search(path):
        return "The path has a '%' without two hexadecimal digits; write it as %25"
    if _UNWANTED_ESCAPE.search(path):
        return "The path has an escaped slash, backslash or control character; no name has one"
    decoded = unquote_to_bytes(path)
    try:
        decoded.decode()
    except UnicodeDecodeError:
        return "The path is not UTF-8"
    segments = decoded.split(b"/")
    if b"." in segments or b".." in segments:
        return "The path has a segment '.' or '..'; write it without one"
    if b"" in segments[1:-1]:
        return "The path has an empty segment"
    return ""
