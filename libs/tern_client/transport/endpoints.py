"""The proxies of a cluster: what an endpoint looks like, and which one is used now. Pure.

      http://127.0.0.1:8080         scheme http or https, a host, and a port unless it is the scheme's own (80, 443)
      https://example.com/mq        and a path, if something in front of the proxies serves them below it: every request's path goes behind it

Law: nothing of an endpoint is dropped in silence; what is no endpoint is refused when a client is made; later it could only look like a network that does not answer.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar
from urllib.parse import urlsplit

from tern_wire.errors import TernError

_USER = re.compile(r"//[^/@]*@")
# A client has some endpoints; whoever makes one client after the other has some more.
_KEPT = 256


class EndpointMalformed(TernError, ValueError):
    """Not the URL of a proxy, or no endpoint at all. Raised when a client is made, never on the wire."""

    code: ClassVar[str] = "endpoint-malformed"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "This is not an endpoint"
    fix: ClassVar[str] = "{endpoint} is no endpoint: {reason}. Use the URL of a proxy, such as http://127.0.0.1:8080."


class Endpoints:
    """The proxies of a cluster and which one is used now. Owned by one client; a failure moves all its calls on together."""

    __slots__ = ("_at", "urls")

    def __init__(self, urls: str | Iterable[str]) -> None:
        """One URL or several; EndpointMalformed when one is none, or there is none."""
        one_only = isinstance(urls, str | bytes) or not isinstance(urls, Iterable)
        self.urls = tuple(map(_checked, [urls] if one_only else urls))
        if not self.urls:
            raise EndpointMalformed(endpoint=repr(urls), reason="at least one is needed")
        self._at = 0

    @property
    def current(self) -> str:
        """Where the next request goes."""
        return self.urls[self._at]

    def leave(self, failed: str) -> None:
        """Go to the next one, unless another call has already left *failed*."""
        if self.current == failed:
            self._at = (self._at + 1) % len(self.urls)


@lru_cache(maxsize=_KEPT)
def path_prefix(endpoint: str) -> str:
    """What stands before the path of every request to *endpoint*, one that Endpoints has taken; "" for most."""
    return urlsplit(endpoint).path


def _checked(url: object) -> str:
    """*url* without a slash at its end."""
    reason = _fault(url) if isinstance(url, str) else "it is not a string"
    if reason:
        # Whoever writes a password into an endpoint does not want to read it in a log.
        raise EndpointMalformed(endpoint=_USER.sub("//...@", repr(url)[:200]), reason=reason)
    return str(url).rstrip("/")


def _fault(url: str) -> str:
    """What is wrong with *url*, empty when nothing is."""
    if not url.isprintable() or " " in url:
        return "it holds a blank or a control character"
    try:
        address = urlsplit(url)
    except ValueError as error:
        return str(error)
    if address.scheme not in {"http", "https"}:
        return "it does not begin with http:// or https://"
    if not address.hostname:
        return "it names no host"
    if "?" in url or "#" in url:
        return "a query or fragment means nothing here"
    if "@" in address.netloc:
        return "it holds a user name, which nobody asks for; keys are named by key_file or TERNMQ_KEY_FILE"
    if address.path.rstrip("/").endswith("/v1"):
        return "it ends with /v1, with which the path of every request begins; leave that out"
    if not address.path.isascii() or any(letter in address.path for letter in '"<>\\^`{|}'):
        return "its path holds a letter that no URL has; write it as %XX"
    try:
        port = address.port
    except ValueError:
        port = 0
    return "its port is not a number from 1 to 65535" if port == 0 else ""
