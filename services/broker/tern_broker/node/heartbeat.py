"""Registers this node with every name server: at start, at each change, every interval; unregisters
at a clean stop.

Each name server is served independently: one that hangs or is down delays none of the others. A
leader's topics are sent when a name server has not accepted this term's data version, or requests
them; all other heartbeats omit them and have some 300 bytes. Law: role and term are sent at once.
Topics that change quickly are sent again only after ten times the duration of the last transfer, so
that creating ten thousand of them costs a tenth of a core and not the square of their number.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tern_broker.config import BrokerConfig
from tern_http.connection import connect_to
from tern_http.exchange import ExchangeFailed, HttpAnswer, request_head
from tern_wire.errors import TernError
from tern_wire.limits import KIB
from tern_wire.link.codec import encode_json, read_json
from tern_wire.paths import JSON, REGISTER_PATH, UNREGISTER_PATH
from tern_wire.routing.route import Registration, RegistrationReply, TopicRoute

log = logging.getLogger(__name__)
TIMEOUT_S = 2.0
# The largest registration has some megabytes, and a name server may be busy with those of other
# groups.
TOPICS_TIMEOUT_S = 10.0
# An unresponsive name server is retried after this pause, which doubles up to the longest one.
RETRY_MIN_S, RETRY_MAX_S = 0.2, 2.0
# At most 1/TOPICS_PACE of the time is spent on sending topics.
TOPICS_PACE = 10
_REPLY_SIZE_MAX_BYTES = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """This node as the core sees it at one moment: its registration without topics, and a function
    for that moment's topics.

    `topics` is called in the HTTP loop, so that thousands of topics do not delay the core.
    """

    registration: Registration
    topics: Callable[[], Mapping[str, TopicRoute]]


Describe = Callable[[], "asyncio.Future[Described]"]


class Heartbeat:
    """Owner: the HTTP loop. *describe* requests the current registration from the core."""

    def __init__(self, config: BrokerConfig, describe: Describe, tls: ssl.SSLContext | None = None) -> None:
        self._tellers = [_Registration(config, url, describe, tls) for url in config.namesrv]

    def changed(self) -> None:
        """Register now: role, term or topics have changed."""
        for teller in self._tellers:
            teller.changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until *stop*, then unregister."""
        await asyncio.gather(*(teller.run(stop) for teller in self._tellers))


class _Registration:
    """One name server and the registration that it has. Owner of its state: its own `run`."""

    def __init__(self, config: BrokerConfig, url: str, describe: Describe, tls: ssl.SSLContext | None) -> None:
        self._config, self._url, self._describe, self._tls = config, url.rstrip("/"), describe, tls
        self.changed = asyncio.Event()
        # The (term, data version) of the topics that it has, and the (is leader, term) that was
        # sent last.
        self._topics_told: tuple[int, int] | None = None
        self._role_told: tuple[bool, int] | None = None
        self._topics_from_s = 0.0
        self._retry_s = RETRY_MIN_S
        self._is_down = False

    async def run(self, stop: asyncio.Event) -> None:
        """Register, wait, repeat; unregister in the end."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self.changed.clear()
                telling = asyncio.ensure_future(self._tell())
                await asyncio.wait((telling, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not telling.done():
                    # A registration that arrives after the unregistration would stay until it
                    # expires.
                    await asyncio.wait((telling,), timeout=TIMEOUT_S)
                    if not telling.done():
                        telling.cancel()
                        break
                await self._pause(stopping, telling.result())
        finally:
            stopping.cancel()
        node = self._config
        leaving = {"cluster": node.cluster, "broker_group": node.broker_group, "node": node.node}
        with contextlib.suppress(_NotTaken):
            await self._post(UNREGISTER_PATH, leaving, TIMEOUT_S)

    async def _pause(self, stopping: "asyncio.Future[Any]", pause_s: float) -> None:
        """Wait for a change, for the stop, or for *pause_s*."""
        changed = asyncio.ensure_future(self.changed.wait())
        await asyncio.wait((changed, stopping), timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()

    async def _tell(self) -> float:
        """Send one heartbeat, followed by the topics if they are due; return the pause before the
        next one (s).
        """
        now = asyncio.get_running_loop().time
        interval_s = self._config.heartbeat_interval_ms / 1_000
        described = await self._describe()
        node = described.registration
        role, version = (node.is_leader, node.term), (node.term, node.data_version)
        owes_topics = node.is_leader and version != self._topics_told
        if owes_topics and now() < self._topics_from_s and role == self._role_told:
            return self._topics_from_s - now()
        try:
            if not owes_topics or now() < self._topics_from_s:
                owes_topics = (await self._register(node, TIMEOUT_S)).wants_topics and node.is_leader
                self._role_told = role
            if owes_topics:
                self._topics_told = None
                if now() < self._topics_from_s:
                    return self._topics_from_s - now()
                began_s = now()
                whole = replace(node, topics=dict(described.topics()), has_topics=True)
                wanted_again = (await self._register(whole, TOPICS_TIMEOUT_S)).wants_topics
                # Never later than the next heartbeat, which keeps this node registered.
                self._topics_from_s = now() + min(TOPICS_PACE * (now() - began_s), interval_s)
                self._topics_told, self._role_told = None if wanted_again else version, role
        except _NotTaken as failure:
            return self._failed(str(failure))
        if self._is_down:
            log.info("name server accepts the registration again", extra={"url": self._url})
        self._is_down, self._retry_s = False, RETRY_MIN_S
        return interval_s

    def _failed(self, reason: str) -> float:
        if not self._is_down:
            log.warning("name server does not accept the registration", extra={"url": self._url, "reason": reason})
        self._is_down, self._role_told = True, None
        pause_s, self._retry_s = self._retry_s, min(2 * self._retry_s, RETRY_MAX_S)
        return min(pause_s, self._config.heartbeat_interval_ms / 1_000)

    async def _register(self, registration: Registration, timeout_s: float) -> RegistrationReply:
        answer = await self._post(REGISTER_PATH, registration, timeout_s)
        if answer.status == 409:
            # A newer leader is registered; this node's peers will report it.
            return RegistrationReply()
        if answer.status != 200:
            raise _NotTaken(f"status {answer.status}")
        try:
            return read_json(answer.body, RegistrationReply, nodes_max=0)
        except TernError as error:
            raise _NotTaken(error.detail) from error

    async def _post(self, path: str, document: object, timeout_s: float) -> HttpAnswer:
        """Send one request on its own connection: at one request a second a pool is not worth
        it.
        """
        body = encode_json(document)
        fields = (("Content-Type", JSON), ("Connection", "close"))
        head = request_head("POST", self._url, path, fields, body_size_bytes=len(body))
        try:
            async with asyncio.timeout(timeout_s):
                connection = await connect_to(self._url, self._tls, body_size_max_bytes=_REPLY_SIZE_MAX_BYTES)
                try:
                    return await connection.ask(head, body)
                finally:
                    connection.close()
        except (OSError, ExchangeFailed, ValueError) as error:
            raise _NotTaken(type(error).__name__) from error


class _NotTaken(Exception):
    """A name server did not accept a request; the text says why."""
