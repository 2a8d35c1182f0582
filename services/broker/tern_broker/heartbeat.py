"""Tells every name server who this node is: at start, at each change, every interval, and at a clean stop."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from tern_broker.config import BrokerConfig
from tern_wire.codec import encode_json
from tern_wire.paths import JSON, REGISTER_PATH, UNREGISTER_PATH
from tern_wire.route import Registration

log = logging.getLogger(__name__)
TIMEOUT_S = 2.0


class Heartbeat:
    """Owner: the HTTP loop. *describe* asks the core for the registration of this moment."""

    def __init__(self, config: BrokerConfig, describe: Callable[[], "asyncio.Future[Registration]"]) -> None:
        self._config, self._describe = config, describe
        self._changed = asyncio.Event()
        self._down: set[str] = set()

    def changed(self) -> None:
        """Register now: role, term or topics are not what was last told."""
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until *stop*, then unregister."""
        while not stop.is_set():
            self._changed.clear()
            registration = await self._describe()
            await asyncio.gather(*(self._tell(url, registration) for url in self._config.namesrv))
            with contextlib.suppress(TimeoutError):
                pause_s = 0.2 if self._down else self._config.heartbeat_interval_ms / 1000
                await asyncio.wait_for(self._wait(stop), pause_s)
        document = {
            "cluster": self._config.cluster,
            "broker_group": self._config.broker_group,
            "node": self._config.node,
        }
        await asyncio.gather(*(self._post(url + UNREGISTER_PATH, document) for url in self._config.namesrv))

    async def _wait(self, stop: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, self._changed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _tell(self, url: str, registration: Registration) -> None:
        failure = await self._post(url + REGISTER_PATH, registration)
        if failure and url not in self._down:
            self._down.add(url)
            log.warning("name server does not take the registration", extra={"url": url, "reason": failure})
        elif not failure and url in self._down:
            self._down.discard(url)
            log.info("name server takes the registration again", extra={"url": url})

    async def _post(self, url: str, document: object) -> str:
        """One request on a connection of its own: a second apart, none is worth a pool, and httpx would be 7 MB of memory."""
        place, body = urlsplit(url), encode_json(document)
        head = (
            f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: {JSON}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reader, writer = await asyncio.open_connection(place.hostname, place.port or 80)
                try:
                    writer.write(head.encode() + body)
                    status = int((await reader.readline()).split()[1])
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, ValueError, IndexError) as error:
            return type(error).__name__
        # 409: a newer leader is registered; this node will learn of it from its peers.
        return "" if status in {200, 409} else f"status {status}"
