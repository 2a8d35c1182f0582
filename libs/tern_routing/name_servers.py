"""Routes from several name servers over HTTP: the last good one first, warm ones preferred.

Owner of the last answers and of the idle connections: this object, in its event loop. An unchanged
answer costs neither bytes nor parsing (its entity tag is sent along), and topics are transferred
only when they have changed (by their own tag).
"""

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote

from tern_http.connection import HttpConnection, connect_to
from tern_http.exchange import ExchangeFailed, request_head
from tern_http.pool import Pool
from tern_wire.errors import NoNameServer, TernError
from tern_wire.link.codec import read_json
from tern_wire.paths import ROUTES_PATH
from tern_wire.routing.route import BrokerGroupRoute

logger = logging.getLogger(__name__)

# Time to connect, and for each piece of an answer.
TIMEOUT_S = 1.0
# The first answer holds all topics, possibly some megabytes; a slower name server is skipped.
ANSWER_TIMEOUT_S = 10.0
# The first answer holds all topics, about 100 bytes each; later ones hold none.
ROUTES_SIZE_MAX_BYTES = 64 * 1024 * 1024
# Servers close idle connections after 5 s.
IDLE_S = 4.0
_MARK_SIZE_BYTES = 16


class KnownRoutes(Protocol):
    """The part of tern_wire.routing.route.Routes that polling and links use."""

    @property
    def warm(self) -> bool: ...

    @property
    def broker_groups(self) -> Mapping[str, BrokerGroupRoute]: ...

    @property
    def topics_tag(self) -> str: ...


R = TypeVar("R", bound=KnownRoutes)
R_co = TypeVar("R_co", bound=KnownRoutes, covariant=True)


class Routing(Protocol[R_co]):
    """A source of routes. `endpoints` is its name for display."""

    endpoints: str

    async def fetch(self) -> tuple[bytes, R_co]:
        """The present routes and a mark: an equal mark means equal routes.
        NoNameServer without an answer.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRoutes:
    """Routes for processes that need no topics."""

    warm: bool
    broker_groups: dict[str, BrokerGroupRoute] = field(default_factory=dict)
    topics_tag: str = ""


def read_group_routes(body: bytes, _: GroupRoutes | None) -> GroupRoutes:
    """*body* as GroupRoutes; TernError if malformed."""
    return read_json(body, GroupRoutes, nodes_max=0)


class NameServers(Generic[R]):
    """*urls*: such as `http://127.0.0.1:9876`. *tls*: for https; None: the machine's trust store.
    *read* makes routes of an answer's body and of the same name server's previous routes, if any;
    TernError or None if they are unusable.
    """

    def __init__(
        self, urls: tuple[str, ...], read: Callable[[bytes, R | None], R | None], tls: ssl.SSLContext | None = None
    ) -> None:
        self.endpoints = ", ".join(urls)
        self._urls = list(urls)
        self._read, self._tls = read, tls
        self._pool = Pool(idle_s=IDLE_S)
        # By URL: the last answer's entity tag, its mark, and its routes.
        self._answers: dict[str, tuple[str, bytes, R]] = {}

    async def fetch(self) -> tuple[bytes, R]:
        """Implement Routing.fetch."""
        cold: tuple[bytes, R] | None = None
        for url in list(self._urls):
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    mark, routes = await self._ask(url)
            except (OSError, ExchangeFailed, TernError, ValueError) as error:  # ValueError: an unusable URL
                logger.debug("a name server does not answer", extra={"url": url, "error": repr(error)})
                continue
            if routes.warm:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return mark, routes
            cold = cold or (mark, routes)
        if cold is None:
            raise NoNameServer(endpoints=self.endpoints)
        return cold

    def close(self) -> None:
        """Close the connections. No more fetches follow."""
        self._pool.close()

    async def _ask(self, url: str) -> tuple[bytes, R]:
        known = self._answers.get(url)
        tag, mark, before = known if known is not None else ("", b"", None)
        topics_tag = before.topics_tag if before is not None else ""
        target = f"{ROUTES_PATH}?topics_tag={quote(topics_tag, safe='')}"
        request = request_head("GET", url, target, [("If-None-Match", tag)] if tag else [])
        answer = await self._pool.exchange(url, request, lambda: self._connect(url), silence_max_s=TIMEOUT_S)
        if answer.status == 304 and before is not None:
            return mark, before
        routes = self._read(answer.body, before) if answer.status == 200 else None
        if routes is None:
            raise NoNameServer(endpoints=url)
        mark = hashlib.blake2b(answer.body, digest_size=_MARK_SIZE_BYTES).digest()
        self._answers[url] = (answer.headers.get("etag", ""), mark, routes)
        return mark, routes

    async def _connect(self, url: str) -> HttpConnection:
        if self._tls is None and url.startswith("https:"):
            # Made once: the machine's certificates take some MB and 20 ms.
            self._tls = ssl.create_default_context()
        async with asyncio.timeout(TIMEOUT_S):
            return await connect_to(url, self._tls, body_size_max_bytes=ROUTES_SIZE_MAX_BYTES)
