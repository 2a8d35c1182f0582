"""What brokers tell name servers and name servers tell proxies: registrations and routes, as frozen dataclasses."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRoute:
    """A topic in one broker group: its id there and how many queues it has."""

    topic_id: int
    queues: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One broker node's heartbeat. `topics` is empty for followers; `term` guards against a deposed leader."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoute:
    """Where one broker node listens: `host:port` of its link and of its HTTP door."""

    link: str
    http: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerGroupRoute:
    """One broker group: nodes by name, and the leader's name ("" while there is none) with its term."""

    nodes: dict[str, NodeRoute]
    leader: str
    term: int
    group_size: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Everything that a proxy needs: broker groups, and for each topic its route in every broker group that hosts it."""

    cluster: str
    warm: bool
    broker_groups: dict[str, BrokerGroupRoute] = field(default_factory=dict)
    topics: dict[str, dict[str, TopicRoute]] = field(default_factory=dict)
