"""Documents of the cluster as a proxy sees it, and of a topic's route."""

from typing import Annotated

from msgspec import Meta, Struct

from tern_proxy.core.documents.values import Count, words
from tern_wire.limits import QUEUES_PER_TOPIC_MAX
from tern_wire.routing.route import PERM_MAX

Leader = Annotated[str, Meta(description="Empty while there is none.")]
Writable = Annotated[bool, Meta(description="Whether new messages may be stored there.")]
Warm = Annotated[
    bool, Meta(description="Whether the name server has had the time to receive registrations of all brokers.")
]
Queues = Annotated[int, Meta(ge=1, le=QUEUES_PER_TOPIC_MAX)]
Bits = Annotated[int, Meta(ge=0, le=PERM_MAX, description="RocketMQ's bits: read 4, write 2.")]


# The cluster --------------------------------------------------------------------------------------
class RaftFacts(Struct, kw_only=True):
    """State of a broker's replicated log, requested for this answer."""

    role: Annotated[str, Meta(description="leader or follower")]
    serving: Annotated[bool, Meta(description="Whether it leads and accepts requests.")]
    term: Count
    commit_index: Count
    applied_index: Count
    last_index: Count
    synced_index: Annotated[int, Meta(ge=0, description="The last entry that is on its disk.")]
    lag: Annotated[
        int | None,
        Meta(description="Entries of the leader's log that it lacks, according to the leader; null without a leader."),
    ]
    fsync_ms: Annotated[float, Meta(ge=0, description="Duration of its last fdatasync.")]


class BrokerNode(Struct, kw_only=True):
    """One broker as this proxy sees it."""

    link: Annotated[str, Meta(description="host:port")]
    connected: bool
    raft: Annotated[RaftFacts | None, Meta(description="null when it does not answer.")]


class BrokerGroupState(Struct, kw_only=True):
    """One broker group as this proxy sees it."""

    leader: Leader
    term: Count
    group_size: Count
    writable: Writable
    nodes: dict[str, BrokerNode]


class ClusterState(Struct, kw_only=True):
    """The cluster as this proxy sees it."""

    cluster: str
    warm: Warm
    name_server_reachable: bool
    proxy: str
    topics: Count
    broker_groups: dict[str, BrokerGroupState]


# Where a topic lives ------------------------------------------------------------------------------
class RoutedNode(Struct, kw_only=True):
    """Addresses of one broker, host:port."""

    link: str
    http: str


class RoutedGroup(Struct, kw_only=True):
    """A broker group that hosts the topic."""

    nodes: Annotated[dict[str, RoutedNode], Meta(description="Empty when all its brokers are gone.")]
    leader: Leader
    term: Count
    group_size: Count
    writable: Writable


class HostedTopic(Struct, kw_only=True):
    """The topic in one broker group, from its leader."""

    topic_id: Count
    queues: Queues
    type: Annotated[str, words("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")]
    perm: Bits
    placement: Annotated[
        str, Meta(description="Epoch, broker groups, previous broker groups, according to this broker group.")
    ]


class GroupQueues(Struct, kw_only=True):
    """The topic in one broker group, in the form of RocketMQ's tools."""

    broker_group: str
    read_queues: Queues
    write_queues: Queues
    perm: Annotated[int, Meta(ge=0, le=PERM_MAX, description="Without the write bit in a group that is not writable.")]


class TopicRoute(Struct, kw_only=True):
    """Route of a topic."""

    topic: str
    cluster: str
    warm: Warm
    order: Annotated[str, Meta(description="The ordered configuration, `broker-a:8;broker-b:8`; empty for none.")]
    broker_groups: dict[str, RoutedGroup]
    topics: Annotated[
        dict[str, dict[str, HostedTopic]], Meta(description="This topic alone, in the form of a name server's routes.")
    ]
    queue_data: list[GroupQueues]
