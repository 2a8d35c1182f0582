"""Components of one proxy, constructed once and passed to every route: routes, broker groups,
lanes, parking, counters.
"""

import random
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tern_proxy.access.principals_cache import PrincipalsCache
from tern_proxy.auto_create import AutoCreate
from tern_proxy.brokers.callers import caller_additions
from tern_proxy.brokers.follower_reads import FollowerReads
from tern_proxy.brokers.lanes import EndLane, Lane, SendLane, SettleLane
from tern_proxy.brokers.query_homes import QueryHomes
from tern_proxy.brokers.routes_cache import RoutesCache
from tern_proxy.brokers.topic_names import TopicNames
from tern_proxy.core.access.creations import Creations
from tern_proxy.core.sending.encoding import PREFIX_LENGTH, MessageIds
from tern_proxy.core.sending.topic import Topic
from tern_proxy.counters import Counters
from tern_proxy.exchange import FlightBudget
from tern_proxy.waiting.check_polls import CheckPolls
from tern_proxy.waiting.growth import Growth
from tern_proxy.waiting.parking import ParkedPolls
from tern_proxy.waiting.read_budget import ReadBudget
from tern_proxy.waiting.reading_turns import ReadingTurns
from tern_proxy.waiting.tails import Tails
from tern_remoting import Link, Redialer
from tern_routing import Dial, GroupLink, OnDown, OnNotice, OnUp
from tern_routing.group_links import BrokerDialler, follow, leaders
from tern_routing.name_servers import Routing
from tern_service.clock import Clock
from tern_service.connections.table import ConnectionTable
from tern_wire.checks.urls import CheckHosts
from tern_wire.errors import NoLeader
from tern_wire.handles import HandleMaker
from tern_wire.kept_topics import KeptTopics
from tern_wire.limits import LEADER_WAIT_MS, PARKED_POLLS_MAX
from tern_wire.limits_namespaces import CREATIONS_BURST_DEFAULT, CREATIONS_PER_S_DEFAULT
from tern_wire.names import check_group, check_topic
from tern_wire.recall_handles import RecallMaker
from tern_wire.routing.route import Routes
from tern_wire.transactions import TransactionIds

# A maker is two small objects for each pair of topic and group; pairs seldom outnumber groups.
HANDLE_MAKERS_KEPT_MAX = 4_096


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """One broker group with its link and lanes."""

    link: GroupLink
    sends: SendLane
    settles: SettleLane
    ends: EndLane
    turns: ReadingTurns

    @property
    def lanes(self) -> dict[str, Lane[Any, Any]]:
        """Lanes by their kind."""
        return {"send": self.sends, "settle": self.settles, "end": self.ends}


class Proxy:
    """Components of one proxy.

    Owner of all its state: the event loop in which `start` was called.
    """

    def __init__(
        self,
        *,
        cluster_key: bytes,
        cluster: str = "",
        name_servers: Routing[Routes],
        clock: Clock,
        route_interval_ms: int = 1_000,
        leader_wait_ms: int = LEADER_WAIT_MS,
        polls_max: int = PARKED_POLLS_MAX,
        budget: FlightBudget | None = None,
        dial: Dial | None = None,
        id_prefix: str = "",
        auto_create: AutoCreate | None = None,
        creations_per_s: int = CREATIONS_PER_S_DEFAULT,
        creations_burst: int = CREATIONS_BURST_DEFAULT,
        check_hosts: CheckHosts | None = None,
        broker_tls: ssl.SSLContext | None = None,
        authenticates: bool = False,
    ) -> None:
        self.clock = clock
        self.check_hosts = check_hosts or CheckHosts.parse("")
        self.auto_create = auto_create or AutoCreate()
        self.creations = Creations(per_s=creations_per_s, burst=creations_burst, now_ms=clock.mono_ms)
        self.ids = MessageIds(id_prefix or secrets.token_hex(PREFIX_LENGTH // 2).upper())
        self.name = f"proxy-{secrets.token_hex(4)}"
        self.budget = budget or FlightBudget()
        self.parking = ParkedPolls(polls_max)
        self.checks = CheckPolls(self.parking, self.name, clock.now_ms)
        self.tails, self.growth = Tails(), Growth()
        self._transaction_ids: dict[str, TransactionIds] = {}
        self.counters = Counters()
        self.follower_reads = FollowerReads(time.monotonic)
        self.groups: dict[str, BrokerGroup] = {}
        self._room = ReadBudget(lambda: [group.sends for group in self.groups.values()])
        self.cache = RoutesCache(name_servers, interval_ms=route_interval_ms, on_routes=self._follow)
        self.topic_names = TopicNames(self.cache)
        self.query_homes = QueryHomes()
        self.principals = PrincipalsCache(
            lambda: {name: group.link for name, group in self.groups.items() if not self.is_taken_out(name)},
            has_routes=lambda: self.cache.routes is not None and self.cache.routes.warm,
            clock=clock,
        )
        self.authenticates = authenticates
        self.is_stopping = False
        # Number of requests whose body is still arriving, from the listener.
        self.arriving: Callable[[], int] = lambda: 0
        self.cluster_key, self.cluster = cluster_key, cluster
        self.kept = KeptTopics(cluster)
        self._additions = caller_additions(cluster_key)
        # Names of producer groups, by broker group and number (routes/transactions/owners.py).
        self.producer_group_names: dict[tuple[str, int], str] = {}
        self._leader_wait_ms = leader_wait_ms
        self._dial = dial or self._dial_broker
        self._makers: dict[tuple[str, str], HandleMaker] = {}
        self._recall_makers: dict[str, RecallMaker] = {}
        self._turn = 0
        self._dialler = BrokerDialler(
            role="proxy",
            name=self.name,
            cluster=cluster,
            cluster_key=cluster_key,
            rng=random.Random(),  # noqa: S311  spreads reconnects, protects nothing
            tls=broker_tls,
            room=self._room,
        )
        self._count_gauges()

    async def start(self) -> None:
        """Load routes from the name servers and keep following them.

        Links dial in the background.
        """
        await self.cache.start()
        if self.authenticates:
            self.principals.start()

    def stop_waiting(self) -> None:
        """Handle SIGTERM: the proxy is no longer ready, parked polls are answered, tails end."""
        self.is_stopping = True
        self.parking.close()
        self.checks.close()
        self.tails.close()

    async def stop(self) -> None:
        """Close all components."""
        self.stop_waiting()
        self.growth.close()
        await self.principals.stop()
        await self.cache.stop()
        for group in self.groups.values():
            group.link.close()

    # Broker groups --------------------------------------------------------------------------------
    def _follow(self, routes: Routes) -> None:
        follow(routes, self._link_of)
        self.tails.look()

    def _link_of(self, name: str) -> GroupLink:
        group = self.groups.get(name)
        if group is None:
            link = GroupLink(
                name,
                self._dial,
                leader_wait_ms=self._leader_wait_ms,
                on_routing_error=self.cache.refresh_soon,
                additions=self._additions,
            )
            sends = SendLane(link)
            sends.on_landed = self._room.landed
            settles, ends, turns = SettleLane(link), EndLane(link), ReadingTurns(sends)
            group = self.groups[name] = BrokerGroup(link, sends, settles, ends, turns)
        return group.link

    def _dial_broker(self, host: str, port: int, on_up: OnUp, on_down: OnDown, on_notice: OnNotice) -> Redialer:
        def up(link: Link) -> None:
            self._room.up(link)
            on_up(link)

        return self._dialler(host, port, up, on_down, on_notice)

    def group(self, name: str) -> BrokerGroup:
        """Return the broker group *name*.

        Raise NoLeader while no route names it: topics and receipts refer to it, so it exists.
        """
        group = self.groups.get(name)
        if group is None:
            raise NoLeader(broker_group=name)
        return group

    def is_taken_out(self, name: str) -> bool:
        """Return whether the broker group is being removed: its write permission is withdrawn and
        all of its brokers are gone.

        Requests to all broker groups leave it out. It takes part again as soon as one of its
        brokers registers, and gets the missed changes when it joins.
        """
        routes = self.cache.routes
        if name not in self.cache.wiped or routes is None or not routes.warm:
            return False
        return name not in routes.broker_groups or not routes.broker_groups[name].nodes

    def rotated(self, topic: Topic) -> list[BrokerGroup]:
        """Return the topic's broker groups, starting with another one at every call, those without
        a leader last.

        Raise NoLeader when no route names any of them.
        """
        names = list(topic.broker_groups)
        found = self.in_turn(names)
        if not found:
            raise NoLeader(broker_group=names[0])
        return found

    def in_turn(self, names: list[str]) -> list[BrokerGroup]:
        """Return the broker groups *names* in the order of `rotated`, without those that no route
        names.
        """
        self._turn += 1
        first = self._turn % len(names)
        found = [self.groups[name] for name in names[first:] + names[:first] if name in self.groups]
        # A broker group that is gone costs a full wait for a leader; results of the others must not
        # be delayed by it.
        return sorted(found, key=lambda group: not group.link.has_leader)

    # Names ----------------------------------------------------------------------------------------
    async def topic(self, name: str) -> Topic:
        """Return the topic, from the cache if possible."""
        found = self.cache.topics.get(name)
        return found if found is not None else await self.cache.topic(name)

    def maker(self, topic: str, group: str) -> HandleMaker:
        """Return the maker of receipt handles for *topic* and *group*.

        Raise IllegalTopic or IllegalGroup.
        """
        maker = self._makers.get((topic, group))
        if maker is None:
            check_topic(topic)
            check_group(group)
            if len(self._makers) >= HANDLE_MAKERS_KEPT_MAX:
                self._makers.clear()
            maker = self._makers[topic, group] = HandleMaker(self.cluster_key, topic, group)
        return maker

    def recall_maker(self, topic: str) -> RecallMaker:
        """Return the maker of recall handles for *topic*. Raise IllegalTopic."""
        maker = self._recall_makers.get(topic)
        if maker is None:
            check_topic(topic)
            if len(self._recall_makers) >= HANDLE_MAKERS_KEPT_MAX:
                self._recall_makers.clear()
            maker = self._recall_makers[topic] = RecallMaker(self.cluster_key, topic)
        return maker

    def transaction_ids(self, namespace: str) -> TransactionIds:
        """Return the maker of transaction ids for *namespace* ("" for none).

        Ids of other namespaces are invalid.
        """
        ids = self._transaction_ids.get(namespace)
        if ids is None:
            if len(self._transaction_ids) >= HANDLE_MAKERS_KEPT_MAX:
                self._transaction_ids.clear()
            ids = self._transaction_ids[namespace] = TransactionIds(self.cluster_key, namespace)
        return ids

    def reply_topic(self, namespace: str) -> str:
        """Return the topic of the replies of *namespace*; each namespace has its own."""
        return self.kept.replies(namespace)

    # Metrics --------------------------------------------------------------------------------------
    def readiness(self) -> tuple[bool, dict[str, object]]:
        """Return whether the proxy is ready, and the reasons.

        It is ready when routes are loaded, at least one broker group has a leader, and requests of
        ordinary size find room. `room` has the state of each room: `free`, `short` (large requests,
        and owners at their share, are refused) or `full`.
        """
        found = leaders({name: group.link for name, group in self.groups.items()})
        reasons: dict[str, object] = {
            "routes": self.cache.routes is not None,
            "name_server": self.cache.is_reachable,
            "leaders": found,
            "stopping": self.is_stopping,
            "room": {room.what: room.state for room in self.budget.rooms},
        }
        has_room = not any(room.is_full for room in self.budget.rooms)
        return self.cache.routes is not None and any(found.values()) and not self.is_stopping and has_room, reasons

    def show_connections(self, table: ConnectionTable) -> None:
        """Add the counts of this proxy's listener to /metrics."""
        self.arriving = lambda: table.arriving
        gauges = self.counters.gauges
        gauges["connections", "Connections that have sent a whole head."] = lambda: {"all": float(table.known)}
        gauges["requests_arriving", "Requests whose body is not whole yet."] = lambda: {"all": float(table.arriving)}
        gauges["unsent_answer_bytes", "Bytes of answers that clients have not taken."] = lambda: {
            "all": float(table.unsent.size_bytes)
        }
        gauges["unsent_broken_off_total", "Connections closed because unsent answers were too many."] = lambda: {
            "all": float(table.unsent.broken_off)
        }

    @property
    def waiting(self) -> int:
        """Number of requests that wait for something outside this proxy: for a message, or for a
        broker's room for a read; and all tails, which have places of their own.
        """
        return len(self.parking) + len(self.tails) + sum(group.link.reading for group in self.groups.values())

    def _count_gauges(self) -> None:
        gauges = self.counters.gauges
        gauges["parked_polls", "Long polls that wait."] = lambda: {"all": float(len(self.parking))}
        gauges["tails", "Streams of topics' messages that are open."] = lambda: {"all": float(len(self.tails))}
        budget = self.budget
        gauges["in_flight_bytes", "Bytes of request bodies held."] = lambda: {"all": float(budget.bytes.used)}
        gauges["in_flight_messages", "Messages of sends held."] = lambda: {"all": float(budget.messages.used)}
        gauges["room_owners", "Principals, or addresses, that hold some of a room now."] = lambda: {
            room.what: float(room.owners) for room in budget.rooms
        }
        gauges["room_refused_total", "What was refused: there was no room, or its owner was at its share."] = lambda: {
            f"{room.what}/{reason}": float(count)
            for room in budget.rooms
            for reason, count in zip(("full", "share"), room.refused, strict=True)
        }
        gauges["follower_pulls_total", "Pulls of old data that followers have answered."] = lambda: {
            "all": float(self.follower_reads.served)
        }
        gauges["lane_waiting", "Requests that wait for a flight, by lane."] = lambda: {
            f"{name}/{kind}": float(lane.waiting)
            for name, group in self.groups.items()
            for kind, lane in group.lanes.items()
        }
        gauges["reading_held_total", "Receives that have waited so that sends need not, by broker group."] = lambda: {
            name: float(group.turns.held) for name, group in self.groups.items()
        }
        gauges["reads_under_way", "Reads that wait for an answer of their broker group."] = lambda: {
            name: float(group.link.reading) for name, group in self.groups.items()
        }
        gauges["lane_flights_total", "Flights so far, by lane."] = lambda: {
            f"{name}/{kind}": float(lane.flights)
            for name, group in self.groups.items()
            for kind, lane in group.lanes.items()
        }
        gauges["lane_carried_total", "Requests that flights have carried, by lane."] = lambda: {
            f"{name}/{kind}": float(lane.carried)
            for name, group in self.groups.items()
            for kind, lane in group.lanes.items()
        }
