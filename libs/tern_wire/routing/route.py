"""What brokers tell name servers and name servers tell proxies: registrations and routes, as frozen dataclasses."""

from dataclasses import dataclass, field

# RocketMQ's PermName: bits of a topic's permission.
PERM_READ, PERM_WRITE = 4, 2
# All bits of it: priority, read, write, inherit.
PERM_MAX = 15
TOPIC_TYPES = frozenset({"NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """A topic in one broker group: its id there, how many queues it has, which messages it takes, and RocketMQ's permission bits.

    *placement*: which broker groups take its keyed and ordered messages, as this one knows it (tern_wire/routing/placement.py).
    """

    topic_id: int
    queues: int
    type: str = "MIXED"
    perm: int = PERM_READ | PERM_WRITE
    placement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One broker node's heartbeat. `topics` is empty for followers; `term` guards against a deposed leader.

    `has_topics` False: a leader that believes its topics of `data_version` to be known; they are left out, and asked for if they are not.
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
    """What a name server answers: whether it needs the topics that were left out, and what it has become."""

    wants_topics: bool = False
    version: int = 0
    warm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoute:
    """Where one broker node listens: `host:port` of its link and of its HTTP door."""

    link: str
    http: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupRoute:
    """One broker group: nodes by name, and the leader's name ("" while there is none) with its term.

    `writable` False: an operator has withdrawn its write permission at this name server; reading and settling go on.
    """

    nodes: dict[str, NodeRoute]
    leader: str
    term: int
    group_size: int = 1
    writable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Everything that a proxy needs: broker groups, and for each topic its route in every broker group that hosts it.

    `orders` are the ordered configurations by topic. `topics_tag` names these topics and orders. `topics_known` True: they are those
    of the tag that the reader has named, and are left out.
    """

    cluster: str
    warm: bool
    broker_groups: dict[str, BrokerGroupRoute] = field(default_factory=dict)
    topics: dict[str, dict[str, TopicRoute]] = field(default_factory=dict)
    orders: dict[str, str] = field(default_factory=dict)
    topics_tag: str = ""
    topics_known: bool = False
