"""Route of one topic as answered by name servers and proxies: its Routes document and RocketMQ's
queue data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tern_wire.routing.route import PERM_WRITE, BrokerGroupRoute, Routes, TopicRoute

_GONE = BrokerGroupRoute(nodes={}, leader="", term=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueData:
    """Topic in one broker group in the form of RocketMQ's tools.

    `perm` is the topic's permission without the write bit if the group is not writable. A topic has
    as many read queues as write queues, because counts only grow.
    """

    broker_group: str
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRouteDocument:
    """Route of one topic. `order` is its ordered configuration, `broker-a:8;broker-b:8`, or ""."""

    topic: str
    cluster: str
    warm: bool
    order: str
    broker_groups: dict[str, BrokerGroupRoute]
    topics: dict[str, dict[str, TopicRoute]]
    queue_data: list[QueueData]


def route_document(topic: str, route_of: Mapping[str, TopicRoute], routes: Routes) -> TopicRouteDocument:
    """Return the route of *topic*, which has *route_of* by broker group.

    A group that is absent from *routes* has no nodes and no leader.
    """
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
