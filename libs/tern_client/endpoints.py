"""The proxies of a cluster: what an endpoint looks like, and which one is used now. Pure.

      http://127.0.0.1:8080         scheme http or https, a host, and a port unless it is the scheme's own (80, 443)

Law: what is no endpoint is refused when a client is made; later it could only look like a network that does not answer.
"""

from collections.abc import Iterable
from typing import ClassVar
from urllib.parse import urlsplit

from tern_wire.errors import TernError


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


def _checked(url: object) -> str:
    """*url* without a slash at its end."""
    reason = _fault(url) if isinstance(url, str) else "it is not a string"
    if reason:
        raise EndpointMalformed(endpoint=repr(url)[:200], reason=reason)
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
    try:
        port = address.port
    except ValueError:
        port = 0
    return "its port is not a number from 1 to 65535" if port == 0 else ""
