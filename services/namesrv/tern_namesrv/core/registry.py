"""The registry: live nodes, each broker group's leader and topics. Pure: time is an argument, in milliseconds.

Law: what a name server says about leadership and topics comes from the leader of the highest term it has heard of.
A follower's heartbeat keeps only the follower alive; a deposed leader's is refused (StaleRegistration).
Silence deletes nothing: a group whose last node expired or left keeps its topics (GoneGroups), with nobody leading, until a leader of
it registers, with whatever topics it then has.
The state is soft: it is lost at a stop, and brokers' heartbeats bring it back within the warm-up.
One owner: the Registry mutates itself in register, unregister and expire; everything it returns is frozen or a copy.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from tern_wire.errors import InvalidField, LimitReached, StaleRegistration, TopicNotFound, WarmingUp
from tern_wire.gone_groups import GoneGroup, GoneGroups
from tern_wire.limits import QUEUES_PER_TOPIC_MAX, TOPICS_MAX
from tern_wire.names import check_topic
from tern_wire.route import BrokerGroupRoute, NodeRoute, Registration, Routes, TopicRoute

# Bounds the table (about 1 KiB a node) and the scan; far above any cluster whose proxies poll whole routes.
NODES_MAX = 1_000

_BROKER_GROUP = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENDPOINT = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):([1-9][0-9]{0,4})")


@dataclass(slots=True, kw_only=True)
class LiveNode:
    """One row of the live table: where the node listens and when it was last heard of (ms)."""

    route: NodeRoute
    heard_ms: int


@dataclass(slots=True, kw_only=True)
class _Group:
    """One broker group that has a living node. `term` outlives the leader, until the last node is gone; `topics` outlive that.

    `has_told`: `topics` is what a leader said, now or before the group was gone. Until then nobody here knows what it hosts.
    """

    group_size: int
    has_told: bool = False
    nodes: dict[str, LiveNode] = field(default_factory=dict)
    leader: str = ""
    term: int = -1
    data_version: int = -1
    topics: dict[str, TopicRoute] = field(default_factory=dict)


class Registry:
    """The tables of one name server, started at *started_ms*.

    `version` counts the changes that a reader of routes can see; heartbeats that change nothing leave it alone.
    """

    def __init__(self, *, cluster: str, started_ms: int, warm_up_ms: int, expiry_ms: int) -> None:
        self._cluster = cluster
        self._warm_at_ms = started_ms + warm_up_ms
        self._expiry_ms = expiry_ms
        self._groups: dict[str, _Group] = {}
        self._gone = GoneGroups()
        self.version = 0

    @property
    def nodes_count(self) -> int:
        """How many nodes live."""
        return sum(len(group.nodes) for group in self._groups.values())

    @property
    def gone_count(self) -> int:
        """How many broker groups are remembered without a living node."""
        return len(self._gone)

    @property
    def topics_count(self) -> int:
        """How many topics are known, each counted once however many broker groups host it; gone groups' topics count too."""
        return len({topic for _, _, topics in self._rows() for topic in topics})

    def is_warm(self, now_ms: int) -> bool:
        """Whether a topic that is not known here does not exist, so that "not found" means it.

        The warm-up must be over, by when every living broker had the time to register. That is not enough: a name server that
        started while all brokers were down, for however long, has an empty table and may not call anything unknown; nor may one
        that has heard a group's followers only, since topics come from leaders. So at least one broker group must be known, and
        the topics of each. The price: in a cluster that has no brokers yet, or keeps a group that never had a leader, unknown
        topics stay `warming-up`. That asks clients to come again, which is right as soon as the group is mended, and creating
        the topic would have to wait for that group as well.
        """
        is_told = all(group.has_told for group in self._groups.values())
        return now_ms >= self._warm_at_ms and is_told and bool(self._groups or self._gone)

    def register(self, registration: Registration, now_ms: int) -> None:
        """Take one heartbeat.

        InvalidField, IllegalTopic or LimitReached when it cannot be taken as it is; StaleRegistration when it claims
        a leadership that a newer leader has ended. A refused registration changes nothing.
        """
        self._check(registration)
        group = self._groups.get(registration.broker_group)
        if group is not None and registration.is_leader:
            _refuse_stale(group, registration)
        if (group is None or registration.node not in group.nodes) and self.nodes_count >= NODES_MAX:
            raise LimitReached(what="Broker nodes", actual=self.nodes_count, limit=NODES_MAX)
        if group is None:
            group = self._groups[registration.broker_group] = _Group(group_size=registration.group_size)
            gone = self._gone.take(registration.broker_group)
            if gone is not None:
                group.has_told, group.topics = True, dict(gone.topics)
        changed = _take_node(group, registration, now_ms)
        changed |= _take_leadership(group, registration)
        self.version += changed

    def unregister(self, cluster: str, broker_group: str, node: str, now_ms: int) -> bool:
        """Forget *node* at once, as at a clean stop; whether it was known. InvalidField for another cluster."""
        self._check_cluster(cluster)
        group = self._groups.get(broker_group)
        if group is None or node not in group.nodes:
            return False
        self._remove(broker_group, group, node, now_ms)
        return True

    def expire(self, now_ms: int) -> list[tuple[str, str]]:
        """Remove the nodes that were silent for longer than the expiry; returns (broker group, node) of each.

        Broker groups that have been gone for too long are forgotten.
        """
        silent = [
            (name, node)
            for name, group in self._groups.items()
            for node, live in group.nodes.items()
            if now_ms - live.heard_ms > self._expiry_ms
        ]
        for name, node in silent:
            self._remove(name, self._groups[name], node, now_ms)
        self.version += bool(self._gone.expire(now_ms))
        return silent

    def routes(self, now_ms: int) -> Routes:
        """Everything that a proxy needs, as of `version`; names in order, so that equal tables are equal bytes.

        A broker group that is gone has no nodes and no leader. If the routes are warm, each group's topics are what it last said.
        """
        rows = self._rows()
        topics: dict[str, dict[str, TopicRoute]] = {}
        for name, _, hosted in rows:
            for topic, route in hosted.items():
                topics.setdefault(topic, {})[name] = route
        return Routes(
            cluster=self._cluster,
            warm=self.is_warm(now_ms),
            broker_groups={name: route for name, route, _ in rows},
            topics=dict(sorted(topics.items())),
        )

    def topic_route(self, topic: str, now_ms: int) -> Routes:
        """The part of `routes` that concerns *topic*. IllegalTopic; TopicNotFound, or WarmingUp while this is not warm."""
        check_topic(topic)
        hosts = [row for row in self._rows() if topic in row[2]]
        if not hosts:
            raise TopicNotFound(topic=topic) if self.is_warm(now_ms) else WarmingUp()
        return Routes(
            cluster=self._cluster,
            warm=self.is_warm(now_ms),
            broker_groups={name: route for name, route, _ in hosts},
            topics={topic: {name: hosted[topic] for name, _, hosted in hosts}},
        )

    def live(self) -> dict[str, dict[str, LiveNode]]:
        """The live table: a copy, by broker group and node."""
        return {name: dict(sorted(group.nodes.items())) for name, group in sorted(self._groups.items())}

    def _rows(self) -> list[tuple[str, BrokerGroupRoute, Mapping[str, TopicRoute]]]:
        """Name, route and topics of every broker group that lives or is remembered, in order of names."""
        living = [(name, _group_route(group), group.topics) for name, group in self._groups.items()]
        gone = [
            (name, BrokerGroupRoute(nodes={}, leader="", term=0, group_size=group.group_size), group.topics)
            for name, group in self._gone.items()
        ]
        return sorted([*living, *gone], key=itemgetter(0))

    def _remove(self, name: str, group: _Group, node: str, now_ms: int) -> None:
        del group.nodes[node]
        if group.leader == node:
            group.leader = ""
        if not group.nodes:
            # With the last node the term goes too: a group rebuilt from nothing begins at term 0 again.
            del self._groups[name]
            if group.has_told:
                self._gone.keep(name, GoneGroup(group.topics, group.group_size), now_ms)
        self.version += 1

    def _check_cluster(self, cluster: str) -> None:
        if cluster != self._cluster:
            reason = f"This name server is of cluster '{self._cluster}', the broker is of '{cluster[:80]}'"
            raise InvalidField(reason=reason, pointer="/cluster")

    def _check(self, registration: Registration) -> None:
        self._check_cluster(registration.cluster)
        if _BROKER_GROUP.fullmatch(registration.broker_group) is None:
            reason = "A broker group is 1 to 31 lower-case letters, digits or '-', such as 'broker-a'"
            raise InvalidField(reason=reason, pointer="/broker_group")
        if _NODE.fullmatch(registration.node) is None:
            raise InvalidField(reason="A node is 1 to 64 letters, digits, '.', '_' or '-'", pointer="/node")
        for name, endpoint in (("link", registration.link), ("http", registration.http)):
            match = _ENDPOINT.fullmatch(endpoint)
            if match is None or int(match[1]) > 65_535:
                raise InvalidField(reason="An endpoint is host:port, such as '127.0.0.1:10911'", pointer=f"/{name}")
        for name, number in (("term", registration.term), ("data_version", registration.data_version)):
            if number < 0:
                raise InvalidField(reason=f"{number} is negative", pointer=f"/{name}")
        if not 1 <= registration.group_size <= NODES_MAX:
            raise InvalidField(reason=f"A group has 1 to {NODES_MAX} nodes", pointer="/group_size")
        if len(registration.topics) > TOPICS_MAX:
            raise LimitReached(what="Topics", actual=len(registration.topics), limit=TOPICS_MAX)
        for topic, route in registration.topics.items():
            check_topic(topic)
            if not 1 <= route.queues <= QUEUES_PER_TOPIC_MAX or route.topic_id < 0:
                reason = f"A topic has an id from 0 and 1 to {QUEUES_PER_TOPIC_MAX} queues"
                raise InvalidField(reason=reason, pointer=f"/topics/{topic}")


def _refuse_stale(group: _Group, registration: Registration) -> None:
    """Raft elects one leader a term: an older term is over, and a second leader of the same term is not one."""
    other_in_term = registration.term == group.term and group.leader not in {"", registration.node}
    if registration.term < group.term or other_in_term:
        raise StaleRegistration(
            broker_group=registration.broker_group, actual=group.term, term=registration.term, leader=group.leader
        )


def _take_node(group: _Group, registration: Registration, now_ms: int) -> bool:
    """Note the node as alive; whether its addresses are new."""
    route = NodeRoute(link=registration.link, http=registration.http)
    known = group.nodes.get(registration.node)
    if known is not None and known.route == route:
        known.heard_ms = now_ms
        return False
    group.nodes[registration.node] = LiveNode(route=route, heard_ms=now_ms)
    return True


def _take_leadership(group: _Group, registration: Registration) -> bool:
    """Note who leads, and the leader's topics unless their version is known; whether anything changed."""
    if not registration.is_leader:
        # The leader itself says that it leads no more. An older term is a heartbeat that was overtaken.
        if group.leader == registration.node and registration.term >= group.term:
            group.leader = ""
            return True
        return False
    same_reign = (group.leader, group.term) == (registration.node, registration.term)
    if same_reign and registration.data_version <= group.data_version:
        return False  # within one reign topics only move forward: the same version, or a heartbeat overtaken
    before = (group.leader, group.term, group.topics, group.group_size)
    group.leader, group.term = registration.node, registration.term
    group.data_version, group.group_size = registration.data_version, registration.group_size
    group.has_told, group.topics = True, dict(registration.topics)
    return before != (group.leader, group.term, group.topics, group.group_size)


def _group_route(group: _Group) -> BrokerGroupRoute:
    return BrokerGroupRoute(
        nodes={name: live.route for name, live in sorted(group.nodes.items())},
        leader=group.leader,
        term=max(group.term, 0),
        group_size=group.group_size,
    )
