"""The proxies of a cluster: the form of an endpoint, and the one that is in use. Pure.

    http://127.0.0.1:8080     scheme http or https, a host, and a port unless it is the scheme's own
    https://example.com/mq    and a path, where a gateway serves the proxies below one

The path precedes the path of every request. The schemes' own ports are 80 and 443.

Law: no part of an endpoint is ignored. A malformed endpoint is refused when a client is made; later
it would look like a network that does not answer.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar
from urllib.parse import urlsplit

from tern_wire.errors import TernError

_USER = re.compile(r"//[^/@]*@")
# A client has a few endpoints. A program that makes one client after another has more.
_KEPT = 256


class EndpointMalformed(TernError, ValueError):
    """The text is not the URL of a proxy, or the list of endpoints is empty. Raised by the
    constructors of clients, never on the wire. Also a ValueError.

    Example:

        from tern_client import BlockingProducer, EndpointMalformed

        try:
            BlockingProducer("127.0.0.1:8080")
        except EndpointMalformed as error:
            print(error.fields["reason"])  # -> it does not begin with http:// or https://
    """

    code: ClassVar[str] = "endpoint-malformed"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "This is not an endpoint"
    fix: ClassVar[str] = (
        "{endpoint} is not an endpoint: {reason}. Use the URL of a proxy, such as http://127.0.0.1:8080."
    )


class Endpoints:
    """The proxies of a cluster, one of them in use. Owner: one client. A failure moves all of its
    calls to the next proxy.
    """

    __slots__ = ("_at", "urls")

    def __init__(self, urls: str | Iterable[str]) -> None:
        """*urls* is one URL or several; EndpointMalformed when one is malformed, or there is
        none.
        """
        one_only = isinstance(urls, str | bytes) or not isinstance(urls, Iterable)
        self.urls = tuple(map(_checked, [urls] if one_only else urls))
        if not self.urls:
            raise EndpointMalformed(endpoint=repr(urls), reason="at least one is needed")
        self._at = 0

    @property
    def current(self) -> str:
        """The endpoint of the next request."""
        return self.urls[self._at]

    def leave(self, failed: str) -> None:
        """Move to the next endpoint, unless another call has already left *failed*."""
        if self.current == failed:
            self._at = (self._at + 1) % len(self.urls)


@lru_cache(maxsize=_KEPT)
def path_prefix(endpoint: str) -> str:
    """Return what precedes the path of every request to *endpoint*, one of Endpoints; "" for
    most.
    """
    return urlsplit(endpoint).path


def _checked(url: object) -> str:
    """Return *url* without a slash at its end; EndpointMalformed."""
    reason = _fault(url) if isinstance(url, str) else "it is not a string"
    if reason:
        # A password in an endpoint must not appear in a log.
        raise EndpointMalformed(endpoint=_USER.sub("//...@", repr(url)[:200]), reason=reason)
    return str(url).rstrip("/")


def _fault(url: str) -> str:
    """Return what is wrong with *url*; "" when nothing is."""
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
        return "it holds a query or a fragment, which have no meaning here"
    if "@" in address.netloc:
        return "it holds a user name, which proxies do not use; name a key file by key_file or TERNMQ_KEY_FILE"
    if address.path.rstrip("/").endswith("/v1"):
        return "it ends with /v1, but the path of every request begins with that; leave it out"
    if not address.path.isascii() or any(letter in address.path for letter in '"<>\\^`{|}'):
        return "its path holds a character that URLs do not allow; write it as %XX"
    try:
        port = address.port
    except ValueError:
        port = 0
    return "its port is not a number from 1 to 65535" if port == 0 else ""
