"""Links that follow routes: how a process dials brokers, and which nodes of a group it dials.

Law: a broker group that routes no longer name keeps its links. A name server that has just started
knows no group, and a group mostly returns at its old address.
"""

import random
import ssl
from collections.abc import Callable, Mapping

from tern_remoting import Redialer, Room
from tern_routing.group_link import GroupLink, OnDown, OnNotice, OnUp
from tern_routing.name_servers import KnownRoutes
from tern_wire.limits import FRAME_SIZE_MAX_BYTES

# Brokers are near, so a slower link means dropped packets or a stopped process. A new attempt
# succeeds as soon as the way is open; the old one would be retransmitted only after doubling
# pauses.
DIAL_TIMEOUT_S = 1.0


class BrokerDialler:
    """A `Dial` of the process *name* in its *role*. *tls* None: no encryption.
    *room*: for the reads of each link, None for any.
    """

    def __init__(
        self,
        *,
        role: str,
        name: str,
        cluster: str,
        cluster_key: bytes,
        rng: random.Random,
        tls: ssl.SSLContext | None,
        room: Callable[[], Room] | None = None,
    ) -> None:
        self._role, self._name, self._cluster, self._cluster_key = role, name, cluster, cluster_key
        self._rng, self._tls, self._room = rng, tls, room

    def __call__(self, host: str, port: int, on_up: OnUp, on_down: OnDown, on_notice: OnNotice) -> Redialer:
        """Keep dialling *host*:*port*."""
        return Redialer(
            host,
            port,
            key=self._cluster_key,
            role=self._role,
            name=self._name,
            group_id=self._cluster,
            on_frame=on_notice,
            on_up=on_up,
            on_down=on_down,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
            rng=self._rng,
            timeout_s=DIAL_TIMEOUT_S,
            tls=self._tls,
            room=self._room,
        )


def follow(routes: KnownRoutes, link_of: Callable[[str], GroupLink]) -> None:
    """Update the link of every broker group from *routes*. *link_of* makes missing ones."""
    for name, route in routes.broker_groups.items():
        # The nodes of a group that is gone keep their old addresses.
        link_of(name).update(route, is_whole=routes.warm and bool(route.nodes))


def leaders(links: Mapping[str, GroupLink]) -> dict[str, str]:
    """The leading node by broker group; "" while none is linked."""
    return {name: link.leader if link.has_leader else "" for name, link in links.items()}
