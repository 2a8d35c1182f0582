"""Where broker groups are, from the name servers: of their routes only what a checker needs, over one plain connection a question.

Owner of the last answers: this object. The server that answered last is asked first; a warm answer is preferred to a cold one.
"""

import asyncio
import logging
import ssl
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tern_txn_checker.http_connection import AnswerTooLarge, BrokenOff, HttpAnswer, NoHttp, connect
from tern_wire.errors import NoNameServer, TernError
from tern_wire.link.codec import read_json
from tern_wire.paths import ROUTES_PATH
from tern_wire.routing.route import BrokerGroupRoute

logger = logging.getLogger(__name__)

TIMEOUT_S = 1.0
# The first answer holds all topics, some 100 bytes each; those that follow hold none.
ROUTES_SIZE_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRoutes:
    """What is read of tern_wire.routing.route.Routes."""

    warm: bool
    broker_groups: dict[str, BrokerGroupRoute] = field(default_factory=dict)
    topics_tag: str = ""


class NameServers:
    """*urls*: as `http://127.0.0.1:9876`. *tls*: for https; None: what the machine trusts."""

    def __init__(self, urls: tuple[str, ...], tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.endpoints = ", ".join(urls)
        self._urls = list(urls)
        # By URL: the entity tag and what it stands for, so that an unchanged answer costs nothing.
        self._answers: dict[str, tuple[str, GroupRoutes]] = {}

    async def fetch(self) -> GroupRoutes:
        """The routes of now; NoNameServer when nobody answers."""
        cold: GroupRoutes | None = None
        for url in list(self._urls):
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    routes = await self._ask(url)
            except (OSError, NoHttp, BrokenOff, AnswerTooLarge, TernError) as error:
                logger.debug("a name server does not answer", extra={"url": url, "error": repr(error)})
                continue
            if routes.warm:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return routes
            cold = cold or routes
        if cold is None:
            raise NoNameServer(endpoints=self.endpoints)
        return cold

    async def _ask(self, url: str) -> GroupRoutes:
        known = self._answers.get(url)
        tag, routes = known if known is not None else ("", GroupRoutes(warm=False))
        answer = await _get(url, f"{ROUTES_PATH}?topics_tag={routes.topics_tag}", tag, self._tls)
        if answer.status == 304 and known is not None:
            return routes
        if answer.status != 200:
            raise NoNameServer(endpoints=url)
        routes = read_json(answer.body, GroupRoutes, nodes_max=0)
        self._answers[url] = (answer.headers.get("etag", ""), routes)
        return routes


async def _get(url: str, path: str, tag: str, tls: ssl.SSLContext | None) -> HttpAnswer:
    address = urlsplit(url)
    host, is_secure = address.hostname or "", address.scheme == "https"
    connection = await connect(
        host,
        address.port or (443 if is_secure else 80),
        server_name=host,
        tls=(tls or ssl.create_default_context()) if is_secure else None,
        body_size_max_bytes=ROUTES_SIZE_MAX_BYTES,
    )
    try:
        condition = f"If-None-Match: {tag}\r\n" if tag else ""
        request = f"GET {address.path.rstrip('/')}{path} HTTP/1.1\r\nHost: {address.netloc}\r\n{condition}\r\n"
        return await connection.ask(request.encode("ascii"))
    finally:
        connection.close()
