"""The registry: live nodes, and the leader and topics of each broker group.

Pure: time is an argument, in milliseconds.

Law: the leader of the highest term seen so far is the only source of a group's leadership and
topics. A follower's heartbeat keeps only the follower alive; the heartbeat of a deposed leader is
refused (StaleRegistration).

Silence deletes no topics. A group whose last node expired or left keeps its topics (GoneGroups) and
has no leader, until a leader of the group registers; from then on the topics of that leader count.

Topics carry a data version. A leader may leave its topics out of a heartbeat; the registry requests
them unless it has this version of the same reign. Versions compare only within one reign (node and
term).

Only operators change write permission, brokers do not. It is kept by name, whether the group is
alive, gone or comes back.

The state is soft: it is lost at a stop, and brokers' heartbeats bring it back within the warm-up.

One owner: the Registry mutates itself in register, unregister, expire and wipe; all results are
frozen or copies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from tern_namesrv.core.registration_rules import NODES_MAX, check_broker_group, check_registration
from tern_wire.errors import (
    BrokerGroupNotFound,
    InvalidField,
    LimitReached,
    StaleRegistration,
    TopicNotFound,
    WarmingUp,
)
from tern_wire.names import check_topic
from tern_wire.routing.gone_groups import GoneGroup, GoneGroups
from tern_wire.routing.route import BrokerGroupRoute, NodeRoute, Registration, Routes, TopicRoute

# Maximum names of broker groups in the text of an error.
_NAMES_SHOWN_MAX = 10


@dataclass(slots=True, kw_only=True)
class LiveNode:
    """One row of the live table: the node's addresses, and the time of its last heartbeat (ms)."""

    route: NodeRoute
    heard_ms: int


@dataclass(slots=True, kw_only=True)
class _Group:
    """One broker group with at least one live node.

    `term` outlives the leader, until the last node is gone; `topics` outlive that too. `has_told`:
    a leader has reported `topics`, now or before the group was gone. Until then the group's topics
    are unknown.
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

    `version` counts the changes that readers of routes can see, `topics_version` those of topics
    among them. Heartbeats that change nothing leave both alone. *wiped*: broker groups without
    write permission. *expected*: all broker groups of the cluster, if configured; the warm-up ends
    early once each of them has reported its topics.
    """

    def __init__(
        self,
        *,
        cluster: str,
        started_ms: int,
        warm_up_ms: int,
        expiry_ms: int,
        expected: frozenset[str] = frozenset(),
        wiped: frozenset[str] = frozenset(),
    ) -> None:
        self._cluster = cluster
        self._warm_at_ms = started_ms + warm_up_ms
        self._expiry_ms = expiry_ms
        self._expected = expected
        self._groups: dict[str, _Group] = {}
        self._gone = GoneGroups()
        self.wiped = wiped
        self.version = self.topics_version = 0

    @property
    def nodes_count(self) -> int:
        """The number of live nodes."""
        return sum(len(group.nodes) for group in self._groups.values())

    @property
    def gone_count(self) -> int:
        """The number of broker groups that are remembered without a live node."""
        return len(self._gone)

    @property
    def topics_count(self) -> int:
        """The number of known topics, those of gone groups included; each topic counts once."""
        return len({topic for _, _, topics in self._rows() for topic in topics})

    def is_warm(self, now_ms: int) -> bool:
        """Whether an unknown topic is known not to exist, so that "not found" is certain.

        Two conditions hold then. First, the warm-up is over, in which every live broker had the
        time to register; or every expected broker group has reported its topics. Second, at least
        one broker group is known, and the topics of each known group. The second condition covers a
        name server that started while all brokers were down, for however long: its table is empty,
        and it must not report any topic as unknown. It also covers a name server that has
        heartbeats of a group's followers only, since topics come from leaders.

        The price: in a cluster without brokers, or with a group that never had a leader, unknown
        topics stay `warming-up`. Clients then retry, which is right once the group is repaired;
        creating the topic would have to wait for that group as well.
        """
        is_told = all(group.has_told for group in self._groups.values())
        is_over = now_ms >= self._warm_at_ms or (bool(self._expected) and self._expected <= self._told())
        return is_over and is_told and bool(self._groups or self._gone)

    def register(self, registration: Registration, now_ms: int) -> bool:
        """Process one heartbeat; return whether the leader has to send the topics that it left out.

        Raises InvalidField, IllegalTopic or LimitReached for a malformed registration, and
        StaleRegistration for a claim of leadership that a newer leader has ended. A refused
        registration changes nothing.
        """
        self._check_cluster(registration.cluster)
        check_registration(registration)
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
        taken = _take_topics(group, registration)
        self.topics_version += taken
        self.version += changed or taken
        return registration.is_leader and registration.data_version > group.data_version

    def unregister(self, cluster: str, broker_group: str, node: str, now_ms: int) -> bool:
        """Forget *node* at once, as at a clean stop; return whether it was known.

        Raises InvalidField for another cluster.
        """
        self._check_cluster(cluster)
        group = self._groups.get(broker_group)
        if group is None or node not in group.nodes:
            return False
        self._remove(broker_group, group, node, now_ms)
        return True

    def expire(self, now_ms: int) -> list[tuple[str, str]]:
        """Remove nodes silent for longer than the expiry; return (broker group, node) of each.

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
        forgotten = bool(self._gone.expire(now_ms))
        self.topics_version += forgotten
        self.version += forgotten
        return silent

    def check_known(self, broker_group: str, now_ms: int) -> None:
        """Raise unless the broker group is known.

        InvalidField for a malformed name; BrokerGroupNotFound, or WarmingUp while the registry is
        not warm, for a group that never registered.
        """
        check_broker_group(broker_group)
        known = {name for name, _, _ in self._rows()}
        # A withdrawn permission can always be restored.
        if broker_group not in known | self.wiped:
            if not self.is_warm(now_ms):
                raise WarmingUp()
            shown = ", ".join(sorted(known)[:_NAMES_SHOWN_MAX])
            raise BrokerGroupNotFound(broker_group=broker_group, known=shown)

    def wipe(self, wiped: frozenset[str]) -> None:
        """Set the broker groups without write permission to exactly *wiped*."""
        self.version += wiped != self.wiped
        self.wiped = wiped

    def hosted_count(self, broker_group: str) -> int:
        """The number of topics that the broker group is known to host."""
        return sum(len(hosted) for name, _, hosted in self._rows() if name == broker_group)

    def routes(self, now_ms: int) -> Routes:
        """Return the routes for a proxy, as of `version`.

        Sorted by name: equal tables are equal bytes.

        A gone broker group has no nodes and no leader. In warm routes, each group has the topics
        that it reported last.
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
            topics_tag=str(self.topics_version),
        )

    def topic_route(self, topic: str, now_ms: int) -> Routes:
        """Return the part of `routes` that concerns *topic*.

        Raises IllegalTopic; TopicNotFound, or WarmingUp while the registry is not warm.
        """
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
        """Return a copy of the live table, by broker group and node."""
        return {name: dict(sorted(group.nodes.items())) for name, group in sorted(self._groups.items())}

    def _told(self) -> set[str]:
        """The broker groups that have reported their topics, gone groups among them."""
        return {name for name, group in self._groups.items() if group.has_told} | {
            name for name, _ in self._gone.items()
        }

    def _rows(self) -> list[tuple[str, BrokerGroupRoute, Mapping[str, TopicRoute]]]:
        """Name, route and topics of every live or remembered broker group, sorted by name."""
        rows: list[tuple[str, BrokerGroupRoute, Mapping[str, TopicRoute]]] = [
            (name, _group_route(group, writable=name not in self.wiped), group.topics)
            for name, group in self._groups.items()
        ]
        for name, gone in self._gone.items():
            size, writable = gone.group_size, name not in self.wiped
            route = BrokerGroupRoute(nodes={}, leader="", term=0, group_size=size, writable=writable)
            rows.append((name, route, gone.topics))
        return sorted(rows, key=itemgetter(0))

    def _remove(self, name: str, group: _Group, node: str, now_ms: int) -> None:
        del group.nodes[node]
        if group.leader == node:
            group.leader = ""
        if not group.nodes:
            # The term goes with the last node: a group that is rebuilt from nothing begins at term
            # 0 again.
            del self._groups[name]
            if group.has_told:
                self._gone.keep(name, GoneGroup(group.topics, group.group_size), now_ms)
            self.topics_version += 1  # others may have been forgotten to make room
        self.version += 1

    def _check_cluster(self, cluster: str) -> None:
        if cluster != self._cluster:
            reason = f"This name server is of cluster '{self._cluster}', the broker is of '{cluster[:80]}'"
            raise InvalidField(reason=reason, pointer="/cluster")


def _refuse_stale(group: _Group, registration: Registration) -> None:
    """Raise StaleRegistration for a claim of an ended term, or of a second leader in one term.

    Raft elects at most one leader in each term.
    """
    other_in_term = registration.term == group.term and group.leader not in {"", registration.node}
    if registration.term < group.term or other_in_term:
        raise StaleRegistration(
            broker_group=registration.broker_group, actual=group.term, term=registration.term, leader=group.leader
        )


def _take_node(group: _Group, registration: Registration, now_ms: int) -> bool:
    """Mark the node as alive; return whether its addresses are new."""
    route = NodeRoute(link=registration.link, http=registration.http)
    known = group.nodes.get(registration.node)
    if known is not None and known.route == route:
        known.heard_ms = now_ms
        return False
    group.nodes[registration.node] = LiveNode(route=route, heard_ms=now_ms)
    return True


def _take_leadership(group: _Group, registration: Registration) -> bool:
    """Record the leader; return whether anything changed."""
    if not registration.is_leader:
        # The leader itself reports the end of its reign. An older term belongs to an overtaken
        # heartbeat.
        if group.leader == registration.node and registration.term >= group.term:
            group.leader = ""
            return True
        return False
    before = (group.leader, group.term, group.group_size)
    if before[:2] != (registration.node, registration.term):
        # A new reign: a known version belongs to the reign before.
        group.data_version = -1
    group.leader, group.term, group.group_size = registration.node, registration.term, registration.group_size
    return before != (group.leader, group.term, group.group_size)


def _take_topics(group: _Group, registration: Registration) -> bool:
    """Store the leader's topics unless they are left out or their version is known.

    Returns whether readers see other topics than before.
    """
    if not registration.is_leader or not registration.has_topics or registration.data_version <= group.data_version:
        return False  # within one reign topics only move forward: this is the same version, or an overtaken heartbeat
    changed = not group.has_told or group.topics != registration.topics
    group.data_version, group.has_told, group.topics = registration.data_version, True, dict(registration.topics)
    return changed


def _group_route(group: _Group, *, writable: bool) -> BrokerGroupRoute:
    return BrokerGroupRoute(
        nodes={name: live.route for name, live in sorted(group.nodes.items())},
        leader=group.leader,
        term=max(group.term, 0),
        group_size=group.group_size,
        writable=writable,
    )
