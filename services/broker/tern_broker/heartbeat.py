"""Tells every name server who this node is: at start, at each change, every interval, and at a clean stop."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

import httpx

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
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            while not stop.is_set():
                self._changed.clear()
                registration = await self._describe()
                await asyncio.gather(*(self._tell(client, url, registration) for url in self._config.namesrv))
                with contextlib.suppress(TimeoutError):
                    pause_s = 0.2 if self._down else self._config.heartbeat_interval_ms / 1000
                    await asyncio.wait_for(self._wait(stop), pause_s)
            document = {
                "cluster": self._config.cluster,
                "broker_group": self._config.broker_group,
                "node": self._config.node,
            }
            await asyncio.gather(*(self._post(client, url + UNREGISTER_PATH, document) for url in self._config.namesrv))

    async def _wait(self, stop: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, self._changed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _tell(self, client: httpx.AsyncClient, url: str, registration: Registration) -> None:
        failure = await self._post(client, url + REGISTER_PATH, registration)
        if failure and url not in self._down:
            self._down.add(url)
            log.warning("name server does not take the registration", extra={"url": url, "reason": failure})
        elif not failure and url in self._down:
            self._down.discard(url)
            log.info("name server takes the registration again", extra={"url": url})

    async def _post(self, client: httpx.AsyncClient, url: str, document: object) -> str:
        try:
            reply = await client.post(url, content=encode_json(document), headers={"content-type": JSON})
        except httpx.HTTPError as error:
            return type(error).__name__
        # 409: a newer leader is registered; this node will learn of it from its peers.
        return "" if reply.status_code in (200, 409) else f"{reply.status_code} {reply.text[:200]}"
