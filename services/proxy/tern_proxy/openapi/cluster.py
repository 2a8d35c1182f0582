"""Routes of topics, and broker groups, in the API document: schemas and operations. Data, imported as late as operations.py."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tern_proxy.openapi import broker_groups
from tern_proxy.openapi.operations import ASKED, TOPIC, Operation, gives
from tern_proxy.openapi.schemas import Count
from tern_wire import paths
from tern_wire.limits import QUEUES_PER_TOPIC_MAX
from tern_wire.routing.route import PERM_MAX

Queues = Annotated[int, Meta(ge=1, le=QUEUES_PER_TOPIC_MAX)]
Bits = Annotated[int, Meta(ge=0, le=PERM_MAX, description="RocketMQ's bits: read 4, write 2.")]


class RoutedNode(Struct, kw_only=True):
    """Where one broker listens, host:port."""

    link: str
    http: str


class RoutedGroup(Struct, kw_only=True):
    """A broker group that hosts the topic."""

    nodes: Annotated[dict[str, RoutedNode], Meta(description="Empty when all its brokers are away.")]
    leader: Annotated[str, Meta(description="Empty while none is known.")]
    term: Count
    group_size: Count
    writable: Annotated[bool, Meta(description="Whether an operator lets new messages go there.")]


class HostedTopic(Struct, kw_only=True):
    """The topic in one broker group, as its leader tells it."""

    topic_id: Count
    queues: Queues
    type: Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"]
    perm: Bits
    placement: Annotated[str, Meta(description="Epoch, broker groups, broker groups before, as this one knows them.")]


class GroupQueues(Struct, kw_only=True):
    """The topic in one broker group, as RocketMQ's tools show it."""

    broker_group: str
    read_queues: Queues
    write_queues: Queues
    perm: Annotated[int, Meta(ge=0, le=PERM_MAX, description="Without the write bit in a group that is not writable.")]


class TopicRoute(Struct, kw_only=True):
    """Where a topic lives."""

    topic: str
    cluster: str
    warm: Annotated[bool, Meta(description="Whether the name server has heard of all brokers.")]
    order: Annotated[
        str, Meta(description="The ordered configuration, `broker-a:8;broker-b:8`; empty when there is none.")
    ]
    broker_groups: dict[str, RoutedGroup]
    topics: Annotated[
        dict[str, dict[str, HostedTopic]], Meta(description="This topic alone, in the form of a name server's routes.")
    ]
    queue_data: list[GroupQueues]


_ROUTE: dict[str, Any] = {
    "topic": "orders",
    "cluster": "demo",
    "warm": True,
    "order": "broker-a:8",
    "broker_groups": {
        "broker-a": {
            "nodes": {"broker-a-0": {"link": "127.0.0.1:10911", "http": "127.0.0.1:10913"}},
            "leader": "broker-a-0",
            "term": 3,
            "group_size": 1,
            "writable": True,
        }
    },
    "topics": {
        "orders": {"broker-a": {"topic_id": 1, "queues": 8, "type": "NORMAL", "perm": 6, "placement": "1|broker-a|"}}
    },
    "queue_data": [{"broker_group": "broker-a", "read_queues": 8, "write_queues": 8, "perm": 6}],
}
ANSWERS: tuple[type[Struct], ...] = (TopicRoute, *broker_groups.ANSWERS)
CLUSTER: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path=paths.topic_route_path("{topic}"),
        id="getTopicRoute",
        summary="Where a topic lives",
        answers={200: gives(TopicRoute, "By broker group.", _ROUTE)},
        errors=(*ASKED, *TOPIC),
    ),
    *broker_groups.BROKER_GROUPS,
)
