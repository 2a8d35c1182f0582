"""One topic's route as name servers and proxies answer it: a Routes document of that topic, and what RocketMQ's route query tells."""

from collections.abc import Mapping
from dataclasses import dataclass

from tern_wire.routing.route import PERM_WRITE, BrokerGroupRoute, Routes, TopicRoute

_GONE = BrokerGroupRoute(nodes={}, leader="", term=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """A topic in one broker group as RocketMQ's tools show it; `perm` is what is left of the topic's when the group may not be written.

    A topic of ours has as many queues to read as to write: counts only grow.
    """

    broker_group: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRouteDocument:
    """Where one topic lives. `order` is its ordered configuration, `broker-a:8;broker-b:8`, "" when it has none."""

    topic: str
    cluster: str
    warm: bool
    order: str
    broker_groups: dict[str, BrokerGroupRoute]
    topics: dict[str, dict[str, TopicRoute]]
    queue_data: list[QueueData]


def route_document(topic: str, route_of: Mapping[str, TopicRoute], routes: Routes) -> TopicRouteDocument:
    """The route of *topic*, which has *route_of* by broker group; a group that *routes* do not name has no nodes and no leader."""
    groups = {name: routes.broker_groups.get(name, _GONE) for name in sorted(route_of)}
    return TopicRouteDocument(
        topic=topic,
        cluster=routes.cluster,
        warm=routes.warm,
        order=routes.orders.get(topic, ""),
        broker_groups=groups,
        topics={topic: dict(route_of)},
        queue_data=[
            QueueData(
                broker_group=name,
                read_queues=route_of[name].queues,
                write_queues=route_of[name].queues,
                perm=route_of[name].perm if group.writable else route_of[name].perm & ~PERM_WRITE,
            )
            for name, group in groups.items()
        ],
    )
