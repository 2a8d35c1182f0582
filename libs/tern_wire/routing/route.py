"""Registrations (brokers to name servers) and routes (name servers to proxies), as frozen
dataclasses.
"""

from dataclasses import dataclass, field

# RocketMQ's PermName: bits of a topic's permission.
PERM_READ, PERM_WRITE = 4, 2
# All bits of a permission: priority, read, write, inherit.
PERM_MAX = 15
TOPIC_TYPES = frozenset({"NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """Topic in one broker group: its id, number of queues, message types and RocketMQ permission
    bits there.

    *placement*: the owners of its keyed and ordered messages as this broker group has them
    (tern_wire/routing/placement.py).
    """

    topic_id: int
    queues: int
    type: str = "MIXED"
    perm: int = PERM_READ | PERM_WRITE
    placement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Heartbeat of one broker node.

    `topics` is empty for followers; `term` guards against a deposed leader. `has_topics` False: the
    leader expects its topics of `data_version` to be known and omits them; the reply requests them
    if they are not.
    """

    cluster: str
    broker_group: str
    node: str
    link: str
    http: str
    is_leader: bool
    term: int
    group_size: int = 1
    data_version: int = 0
    topics: dict[str, TopicRoute] = field(default_factory=dict)
    has_topics: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationReply:
    """Answer of a name server: whether it needs the omitted topics, its version, and whether it is
    warm.
    """

    wants_topics: bool = False
    version: int = 0
    warm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoute:
    """Addresses of one broker node: `host:port` of its link port and of its HTTP port."""

    link: str
    http: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupRoute:
    """Broker group: nodes by name, and the leader's name ("" for none) with its term.

    `writable` False: an operator has withdrawn its write permission at this name server; reads and
    settles continue.
    """

    nodes: dict[str, NodeRoute]
    leader: str
    term: int
    group_size: int = 1
    writable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Routing data of a proxy: broker groups, and each topic's route in every broker group that
    hosts it.

    `orders` are the ordered configurations by topic. `topics_tag` identifies these topics and
    orders. `topics_known` True: they match the tag of the request, and are omitted.
    """

    cluster: str
    warm: bool
    broker_groups: dict[str, BrokerGroupRoute] = field(default_factory=dict)
    topics: dict[str, dict[str, TopicRoute]] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    topics_tag: str = ""
    topics_known: bool = False
