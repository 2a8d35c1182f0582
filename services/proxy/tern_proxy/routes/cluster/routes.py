"""Rows of the cluster, and of a topic's route."""

from tern_proxy.core.documents.cluster import (
    BrokerGroupState,
    BrokerNode,
    ClusterState,
    GroupQueues,
    HostedTopic,
    RaftFacts,
    RoutedGroup,
    RoutedNode,
    TopicRoute,
)
from tern_proxy.routes.cluster.cluster import get_cluster
from tern_proxy.routes.cluster.topic_route import get_topic_route
from tern_proxy.routes.failures import ASKED, TOPIC
from tern_proxy.routes.route import Route, gives
from tern_wire.errors import NoNameServer
from tern_wire.paths import CLUSTER_PATH, topic_route_path

_RAFT = RaftFacts(
    role="leader",
    serving=True,
    term=3,
    commit_index=42,
    applied_index=42,
    last_index=43,
    synced_index=43,
    lag=0,
    fsync_ms=1.2,
)
_CLUSTER = ClusterState(
    cluster="demo",
    warm=True,
    name_server_reachable=True,
    proxy="proxy-1f2e3d4c",
    topics=1,
    broker_groups={
        "broker-a": BrokerGroupState(
            leader="broker-a-0",
            term=3,
            group_size=1,
            writable=True,
            nodes={"broker-a-0": BrokerNode(link="127.0.0.1:10911", connected=True, raft=_RAFT)},
        )
    },
)
_ROUTE = TopicRoute(
    topic="orders",
    cluster="demo",
    warm=True,
    order="broker-a:8",
    broker_groups={
        "broker-a": RoutedGroup(
            nodes={"broker-a-0": RoutedNode(link="127.0.0.1:10911", http="127.0.0.1:10913")},
            leader="broker-a-0",
            term=3,
            group_size=1,
            writable=True,
        )
    },
    topics={"orders": {"broker-a": HostedTopic(topic_id=1, queues=8, type="NORMAL", perm=6, placement="1|broker-a|")}},
    queue_data=[GroupQueues(broker_group="broker-a", read_queues=8, write_queues=8, perm=6)],
)

ROUTES = (
    Route(
        "GET",
        CLUSTER_PATH,
        get_cluster,
        id="getCluster",
        tag="cluster",
        summary="The cluster",
        asks=("DESCRIBE cluster",),
        gives={200: gives(_CLUSTER, "As this proxy sees it.")},
        errors=(*ASKED, NoNameServer),
    ),
    Route(
        "GET",
        topic_route_path("{topic}"),
        get_topic_route,
        id="getTopicRoute",
        tag="topics",
        summary="Route of a topic",
        asks=("DESCRIBE topic {topic}",),
        gives={200: gives(_ROUTE, "By broker group.")},
        errors=(*ASKED, *TOPIC),
    ),
)
