"""The broker groups of the cluster and their leaders: routes from the name servers, polled, and a link to every node.

Owner of the links: this object, in its event loop. Routes are asked for on an interval, at once when one proved wrong (at most ten times a
second), and every second while they are incomplete. Law: a broker group that is not named any more keeps its links: a name server that
started a moment ago knows nobody, and a group comes back where it was, mostly.
"""

import asyncio
import contextlib
import logging
import random
import ssl
from collections.abc import Callable
from typing import Protocol

from tern_remoting import Redialer
from tern_routing import GroupLink, OnDown, OnNotice, OnUp
from tern_tasks import keep_running
from tern_txn_checker.name_servers import GroupRoutes
from tern_wire.errors import NoNameServer
from tern_wire.limits import FRAME_SIZE_MAX_BYTES

logger = logging.getLogger(__name__)

POLL_INTERVAL_MIN_S = 0.1
INCOMPLETE_INTERVAL_S = 1.0
# As proxies do: a broker that takes longer is stopped, or behind a network that swallows packets.
DIAL_TIMEOUT_S = 1.0
# A checker has no client that waits for it: it looks for a leader for as long as an election takes.
LEADER_WAIT_MS = 3_000


class Routing(Protocol):
    """Where routes come from."""

    endpoints: str

    async def fetch(self) -> GroupRoutes:
        """The routes of now; NoNameServer when nobody answers."""
        ...


class BrokerLinks:
    """*on_group* hears of every broker group once, with its link."""

    def __init__(
        self,
        routing: Routing,
        *,
        name: str,
        cluster: str,
        cluster_key: bytes,
        interval_ms: int,
        rng: random.Random,
        on_group: Callable[[GroupLink], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._routing, self._interval_s, self._on_group = routing, interval_ms / 1_000, on_group
        self._name, self._cluster, self._cluster_key, self._rng = name, cluster, cluster_key, rng
        self.groups: dict[str, GroupLink] = {}
        self.is_reachable = False
        self._routes: GroupRoutes | None = None
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Ask once, then go on asking in the background; links dial by themselves."""
        await self._poll()
        self._task = keep_running("routes", self._run)

    async def stop(self) -> None:
        """Ask no more, and close all links: requests in flight fail."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for link in self.groups.values():
            link.close()

    def leaders(self) -> dict[str, str]:
        """By broker group, its leading node; "" while none is linked."""
        return {name: link.leader if link.has_leader else "" for name, link in self.groups.items()}

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    self._interval_s if self._is_complete() else min(self._interval_s, INCOMPLETE_INTERVAL_S)
                ):
                    await self._wanted.wait()
            self._wanted.clear()
            await self._poll()
            await asyncio.sleep(POLL_INTERVAL_MIN_S)

    def _is_complete(self) -> bool:
        """Whether the last answer told who leads every broker group that lives."""
        if self._routes is None or not self.is_reachable or not self._routes.warm:
            return False
        led = [bool(group.leader) for group in self._routes.broker_groups.values() if group.nodes]
        return bool(led) and all(led)

    async def _poll(self) -> None:
        try:
            routes = await self._routing.fetch()
        except NoNameServer as error:
            if self.is_reachable or self._routes is None:
                logger.warning("no name server answers", extra={"detail": error.detail})
            self.is_reachable, self._routes = False, self._routes or GroupRoutes(warm=False)
            return
        if not self.is_reachable:
            logger.info("a name server answers", extra={"warm": routes.warm})
        self.is_reachable, self._routes = True, routes
        for name, route in routes.broker_groups.items():
            link = self.groups.get(name)
            if link is None:
                link = self.groups[name] = GroupLink(
                    name, self._dial, leader_wait_ms=LEADER_WAIT_MS, on_routing_error=self._wanted.set
                )
                self._on_group(link)
            link.update(route, is_whole=routes.warm and bool(route.nodes))

    def _dial(self, host: str, port: int, on_up: OnUp, on_down: OnDown, on_notice: OnNotice) -> Redialer:
        return Redialer(
            host,
            port,
            key=self._cluster_key,
            role="checker",
            name=self._name,
            group_id=self._cluster,
            on_frame=on_notice,
            on_up=on_up,
            on_down=on_down,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
            rng=self._rng,
            timeout_s=DIAL_TIMEOUT_S,
            tls=self._tls,
        )
