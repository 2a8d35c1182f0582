"""The broker groups of the cluster and their leaders: a link to every node that the routes name.

Owner of the links: this object, in its event loop.
"""

import random
import ssl
from collections.abc import Callable

from tern_routing import GroupLink
from tern_routing.group_links import BrokerDialler, follow, leaders
from tern_routing.name_servers import GroupRoutes, Routing
from tern_routing.route_polls import RoutePolls

# No client waits for a checker, so it looks for a leader for as long as an election takes.
LEADER_WAIT_MS = 3_000


class BrokerLinks:
    """Links to all broker groups. *on_group* is called once for each group, with its link."""

    def __init__(
        self,
        routing: Routing[GroupRoutes],
        *,
        name: str,
        cluster: str,
        cluster_key: bytes,
        interval_ms: int,
        rng: random.Random,
        on_group: Callable[[GroupLink], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.groups: dict[str, GroupLink] = {}
        self.polls = RoutePolls(
            routing, interval_ms=interval_ms, on_routes=lambda _, routes: follow(routes, self._link_of)
        )
        self._on_group = on_group
        self._dial = BrokerDialler(
            role="checker", name=name, cluster=cluster, cluster_key=cluster_key, rng=rng, tls=tls
        )

    async def start(self) -> None:
        """Fetch the routes once, then go on polling in the background; links dial by themselves."""
        await self.polls.start()

    async def stop(self) -> None:
        """Stop polling and close all links: requests in flight fail."""
        await self.polls.stop()
        for link in self.groups.values():
            link.close()

    @property
    def is_reachable(self) -> bool:
        """Whether a name server answered the last poll."""
        return self.polls.is_reachable

    def leaders(self) -> dict[str, str]:
        """The leading node of each broker group; "" while no leader is linked."""
        return leaders(self.groups)

    def _link_of(self, broker_group: str) -> GroupLink:
        link = self.groups.get(broker_group)
        if link is None:
            link = self.groups[broker_group] = GroupLink(
                broker_group, self._dial, leader_wait_ms=LEADER_WAIT_MS, on_routing_error=self.polls.refresh_soon
            )
            self._on_group(link)
        return link
