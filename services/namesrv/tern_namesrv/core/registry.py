"""The registry: live nodes, each broker group's leader and topics. Pure: time is an argument, in milliseconds.

Law: what a name server says about leadership and topics comes from the leader of the highest term it has heard of.
A follower's heartbeat keeps only the follower alive; a deposed leader's is refused (StaleRegistration).
Silence deletes nothing: a group whose last node expired or left keeps its topics (GoneGroups), with nobody leading, until a leader of
it registers, with whatever topics it then has.
Topics are taken with a data version; a leader that leaves them out is believed in what it says of itself, and asked for them unless
this reign's version is known. Versions compare within one reign (node and term) only.
Write permission is an operator's word and no broker's: it is kept by name, whether the group lives, is gone or comes again.
The state is soft: it is lost at a stop, and brokers' heartbeats bring it back within the warm-up.
One owner: the Registry mutates itself in register, unregister, expire and wipe; everything it returns is frozen or a copy.
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

# Names of broker groups in the text of an error.
_NAMES_SHOWN_MAX = 10


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

    `version` counts the changes that a reader of routes can see, `topics_version` those of the topics among them; heartbeats that
    change nothing leave both alone. *wiped*: broker groups without write permission. *expected*: all that the cluster has, if somebody has
    told; once each has said what it hosts there is nobody left to wait for.
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

        The warm-up must be over, by when every living broker had the time to register; or every broker group that there is has said
        what it hosts. That is not enough: a name server that
        started while all brokers were down, for however long, has an empty table and may not call anything unknown; nor may one
        that has heard a group's followers only, since topics come from leaders. So at least one broker group must be known, and
        the topics of each. The price: in a cluster that has no brokers yet, or keeps a group that never had a leader, unknown
        topics stay `warming-up`. That asks clients to come again, which is right as soon as the group is mended, and creating
        the topic would have to wait for that group as well.
        """
        is_told = all(group.has_told for group in self._groups.values())
        is_over = now_ms >= self._warm_at_ms or (bool(self._expected) and self._expected <= self._told())
        return is_over and is_told and bool(self._groups or self._gone)

    def register(self, registration: Registration, now_ms: int) -> bool:
        """Take one heartbeat; whether the leader's topics are wanted, which it has left out.

        InvalidField, IllegalTopic or LimitReached when it cannot be taken as it is; StaleRegistration when it claims
        a leadership that a newer leader has ended. A refused registration changes nothing.
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
        forgotten = bool(self._gone.expire(now_ms))
        self.topics_version += forgotten
        self.version += forgotten
        return silent

    def check_known(self, broker_group: str, now_ms: int) -> None:
        """InvalidField; BrokerGroupNotFound, or WarmingUp while this is not warm, for a group that was never heard of."""
        check_broker_group(broker_group)
        known = {name for name, _, _ in self._rows()}
        # What was withdrawn before may always be restored.
        if broker_group not in known | self.wiped:
            if not self.is_warm(now_ms):
                raise WarmingUp()
            shown = ", ".join(sorted(known)[:_NAMES_SHOWN_MAX])
            raise BrokerGroupNotFound(broker_group=broker_group, known=shown)

    def wipe(self, wiped: frozenset[str]) -> None:
        """From now on these broker groups, and no others, have no write permission."""
        self.version += wiped != self.wiped
        self.wiped = wiped

    def hosted_count(self, broker_group: str) -> int:
        """How many topics the broker group hosts, as far as it is known."""
        return sum(len(hosted) for name, _, hosted in self._rows() if name == broker_group)

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
            topics_tag=str(self.topics_version),
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

    def _told(self) -> set[str]:
        """The broker groups that have said what they host, those that are gone since among them."""
        return {name for name, group in self._groups.items() if group.has_told} | {
            name for name, _ in self._gone.items()
        }

    def _rows(self) -> list[tuple[str, BrokerGroupRoute, Mapping[str, TopicRoute]]]:
        """Name, route and topics of every broker group that lives or is remembered, in order of names."""
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
            # With the last node the term goes too: a group rebuilt from nothing begins at term 0 again.
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
    """Note who leads; whether anything changed."""
    if not registration.is_leader:
        # The leader itself says that it leads no more. An older term is a heartbeat that was overtaken.
        if group.leader == registration.node and registration.term >= group.term:
            group.leader = ""
            return True
        return False
    before = (group.leader, group.term, group.group_size)
    if before[:2] != (registration.node, registration.term):
        # A new reign: whatever version was known, it is of another one.
        group.data_version = -1
    group.leader, group.term, group.group_size = registration.node, registration.term, registration.group_size
    return before != (group.leader, group.term, group.group_size)


def _take_topics(group: _Group, registration: Registration) -> bool:
    """Note the leader's topics unless they are left out, or their version is known; whether readers see others than before."""
    if not registration.is_leader or not registration.has_topics or registration.data_version <= group.data_version:
        return False  # within one reign topics only move forward: the same version, or a heartbeat overtaken
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
