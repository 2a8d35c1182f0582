"""Topics and broker groups known to this proxy, from name servers and from its own recent changes.

Topics are transferred and merged only when they have changed, since there are tens of thousands;
leaders change more often. Owner of the topics and of the last routes: this object, in its event
loop. Stale routes remain in use while no name server answers.

Law: a topic is removed only when its broker group says so, which is when warm routes name the
group's leader and not the topic. Routes that are cold, or without a leader of the group, only add
topics. A group that they do not name is remembered (GoneGroups): its name server started while the
group was down, or has lost contact with it. Requests for such topics find no leader (503), or reach
the group.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace

from tern_proxy.core.sending.topic import Topic
from tern_routing.name_servers import Routing
from tern_routing.route_polls import RoutePolls
from tern_wire.errors import NoNameServer, TopicNotFound, WarmingUp
from tern_wire.link.codec import read_json
from tern_wire.names import check_topic
from tern_wire.routing.gone_groups import GoneGroup, GoneGroups
from tern_wire.routing.placement import read_placement
from tern_wire.routing.route import Routes, TopicRoute

logger = logging.getLogger(__name__)

# Longest time for which a topic created by this proxy is kept before the name servers have it.
CREATED_KEPT_S = 30.0


def read_routes(body: bytes, before: Routes | None) -> Routes | None:
    """Parse *body* as routes. Raise TernError for other bytes.

    Omitted topics are those of *before*, from the same name server; return None when *before* does
    not have them.
    """
    routes = read_json(body, Routes, nodes_max=0)
    if not routes.topics_known:
        return routes
    if before is None or before.topics_tag != routes.topics_tag:
        return None
    # The very same object, so that readers see that nothing has changed.
    return replace(routes, topics=before.topics, orders=before.orders, topics_known=False)


class RoutesCache:
    """Poller of *name_servers*, every *interval_ms* and after a route proves wrong.

    *on_routes* receives every change. `wiped`: broker groups whose write permission an operator has
    withdrawn; nothing new is sent there.
    """

    def __init__(
        self,
        name_servers: Routing[Routes],
        *,
        interval_ms: int,
        on_routes: Callable[[Routes], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._polls = RoutePolls(name_servers, interval_ms=interval_ms, on_routes=self._answered, sleep=sleep)
        self._on_routes = on_routes
        self.topics: dict[str, Topic] = {}
        self.routes: Routes | None = None
        self.wiped: frozenset[str] = frozenset()
        # Topics of each broker group of the last routes, and those of broker groups that are absent
        # from the routes.
        self._hosted: dict[str, dict[str, TopicRoute]] = {}
        self._gone = GoneGroups()
        self._created: dict[tuple[str, str], tuple[TopicRoute, float]] = {}
        # Like _created: the id of a topic that this proxy has deleted.
        self._dropped: dict[tuple[str, str], tuple[int, float]] = {}
        # Mark of the routes that were merged last.
        self._last = b""

    async def start(self) -> None:
        """Poll once, then continue in the background."""
        await self._polls.start()

    async def stop(self) -> None:
        """Stop polling."""
        await self._polls.stop()

    @property
    def endpoints(self) -> str:
        """The name servers as text."""
        return self._polls.routing.endpoints

    @property
    def is_reachable(self) -> bool:
        """Whether a name server answered the last poll."""
        return self._polls.is_reachable

    def refresh_soon(self) -> None:
        """Poll at once, because a route proved wrong."""
        self._polls.refresh_soon()

    async def refresh(self) -> None:
        """Poll at once and wait for the answer, which is not older than this call."""
        await self._polls.refresh()

    async def topic(self, name: str) -> Topic:
        """Return the topic *name*.

        Raise TopicNotFound only when a warm name server does not have it and this proxy never had
        it, or recorded its deletion. Raise WarmingUp or NoNameServer otherwise.
        """
        found = self.topics.get(name)
        if found is not None:
            return found
        check_topic(name)
        await self.refresh()
        found = self.topics.get(name)
        if found is not None:
            return found
        if self.routes is None or not self.is_reachable:
            raise NoNameServer(endpoints=self.endpoints)
        if not self.routes.warm:
            raise WarmingUp()
        raise TopicNotFound(topic=name)

    def insert(self, topic: str, broker_group: str, route: TopicRoute) -> None:
        """Add a topic that was just created, and keep it until the name servers have it, too."""
        until = asyncio.get_running_loop().time() + CREATED_KEPT_S
        self._created[topic, broker_group] = (route, until)
        if self.routes is not None:
            if broker_group not in self._hosted:
                self._hosted[broker_group] = dict(self._forget(broker_group))
            self._hosted[broker_group][topic] = route
            route_of = {name: hosted[topic] for name, hosted in self._all_hosted() if topic in hosted}
            self.topics[topic] = self._topic_of(topic, route_of)

    def drop(self, topic: str, broker_group: str, topic_id: int) -> None:
        """Remove a topic that was just deleted, and ignore it in routes that are older than the
        deletion.
        """
        self._dropped[topic, broker_group] = (topic_id, asyncio.get_running_loop().time() + CREATED_KEPT_S)
        self._created.pop((topic, broker_group), None)
        self._hosted.get(broker_group, {}).pop(topic, None)
        route_of = {name: hosted[topic] for name, hosted in self._all_hosted() if topic in hosted}
        if route_of:
            self.topics[topic] = self._topic_of(topic, route_of)
        else:
            self.topics.pop(topic, None)

    # Routes ---------------------------------------------------------------------------------------
    def _answered(self, mark: bytes, routes: Routes) -> None:
        is_over = bool(self._gone.expire(_now_ms())) or self._is_created_over()
        if is_over or mark != self._last:
            self._last = mark
            self._take(routes, is_whole=is_over)

    def _take(self, routes: Routes, *, is_whole: bool) -> None:
        before, self.routes = self.routes, routes
        # A name server that has just started names no group yet; a withdrawn permission is restored
        # only by an explicit route.
        self.wiped = self.wiped.difference(routes.broker_groups) | {
            name for name, group in routes.broker_groups.items() if not group.writable
        }
        if is_whole or self._created or self._dropped or before is None or not _hosts_the_same(before, routes):
            self._remember(routes)
            merged: dict[str, dict[str, TopicRoute]] = {}
            for broker_group, hosted in self._all_hosted():
                for name, route in hosted.items():
                    merged.setdefault(name, {})[broker_group] = route
            self.topics = {name: self._topic_of(name, route_of) for name, route_of in merged.items()}
        self._on_routes(routes)

    def _topic_of(self, name: str, route_of: dict[str, TopicRoute]) -> Topic:
        """Return the topic with this route, the same object as before if the route is unchanged."""
        old, is_whole = self.topics.get(name), self.routes is not None and self.routes.warm
        if old is not None and old.route == route_of and old.is_whole >= is_whole:
            return old
        # A topic once known from whole routes stays whole with the next name server.
        is_whole = is_whole or (old is not None and old.is_whole and old.route.keys() <= route_of.keys())
        return Topic(name, route_of, 0 if old is None else old.turn, is_whole=is_whole)

    def _all_hosted(self) -> Iterator[tuple[str, Mapping[str, TopicRoute]]]:
        yield from self._hosted.items()
        for broker_group, group in self._gone.items():
            yield broker_group, group.topics

    def _remember(self, routes: Routes) -> None:
        """Merge the topics of every broker group: *routes* replace earlier knowledge where they are
        authoritative, else they add.
        """
        hosted: dict[str, dict[str, TopicRoute]] = {name: {} for name in routes.broker_groups}
        for name, route_of in routes.topics.items():
            for broker_group, route in route_of.items():
                hosted.setdefault(broker_group, {})[name] = route
        for broker_group, topics in hosted.items():
            known = self._forget(broker_group)
            if not _decides(routes, broker_group):
                # The name server has not received the topics yet, or has lost contact with the
                # leader: keep the known ones.
                hosted[broker_group] = {**known, **topics}
        self._add_created(hosted, routes)
        self._leave_out_dropped(hosted)
        for broker_group, known in self._hosted.items():
            logger.warning("a broker group is absent from the routes", extra={"broker_group": broker_group})
            self._gone.keep(broker_group, GoneGroup(known), _now_ms())
        self._hosted = hosted

    def _forget(self, broker_group: str) -> Mapping[str, TopicRoute]:
        """Return the topics of the broker group and remove them here."""
        gone = self._gone.take(broker_group)
        return self._hosted.pop(broker_group, {} if gone is None else gone.topics)

    def _is_created_over(self) -> bool:
        """Return whether a topic that this proxy created has been kept for its full time."""
        now = asyncio.get_running_loop().time()
        return any(now > until for _, until in self._created.values())

    def _add_created(self, hosted: dict[str, dict[str, TopicRoute]], routes: Routes) -> None:
        """Add topics that this proxy created and that *routes* do not have yet: the leader may die
        before it registers them.
        """
        now = asyncio.get_running_loop().time()
        for (name, broker_group), (route, until) in list(self._created.items()):
            known = routes.topics.get(name, {}).get(broker_group)
            if now > until or (known is not None and _is_as_new(known, route)):
                del self._created[name, broker_group]
            else:
                hosted.setdefault(broker_group, dict(self._forget(broker_group)))[name] = route

    def _leave_out_dropped(self, hosted: dict[str, dict[str, TopicRoute]]) -> None:
        """Remove topics that this proxy deleted and that routes still name: name servers learn of
        it a moment later.
        """
        now = asyncio.get_running_loop().time()
        for (name, broker_group), (topic_id, until) in list(self._dropped.items()):
            known = hosted.get(broker_group, {}).get(name)
            if now > until or (known is not None and known.topic_id != topic_id):
                del self._dropped[name, broker_group]
            elif known is not None:
                del hosted[broker_group][name]


def _hosts_the_same(before: Routes, routes: Routes) -> bool:
    """Return whether *routes* equal *before* in the topics of every group, with no more authority
    to remove some.
    """
    if routes.topics is not before.topics or routes.broker_groups.keys() != before.broker_groups.keys():
        return False
    return all(not _decides(routes, name) or _decides(before, name) for name in routes.broker_groups)


def _is_as_new(known: TopicRoute, route: TopicRoute) -> bool:
    """Return whether *known*, from a name server, is *route*, from a leader's answer, or newer."""
    ages = [
        (each.topic_id, each.queues, read_placement(each.placement).epoch if each.placement else 0)
        for each in (known, route)
    ]
    return known == route or ages[0] > ages[1]


def _decides(routes: Routes, broker_group: str) -> bool:
    """Return whether the absence of a topic from *routes* proves its deletion in the group: only
    the leader can report it.
    """
    group = routes.broker_groups.get(broker_group)
    return routes.warm and group is not None and bool(group.leader)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1_000)
