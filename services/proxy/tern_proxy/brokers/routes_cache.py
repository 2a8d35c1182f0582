"""The topics and broker groups that this proxy knows: what name servers said, and what it did itself a moment ago.

Topics travel and are merged only when they have changed, since there are tens of thousands; leaders change more often.
Owner of the topics and of the last routes: this object, in its event loop. Stale routes serve on while no name server answers.
Law: a topic goes only when its broker group says so, which is when warm routes name the group's leader and not the topic. Routes that
are cold, or in which nobody leads the group, only add to what is known; a group that they do not name is remembered (GoneGroups): its
name server started while it was down, or lost sight of it. Requests for such topics find no leader (503), or find the group well.
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

# A topic that this proxy created is kept until the name servers know it, but not longer than this.
CREATED_KEPT_S = 30.0


def read_routes(body: bytes, before: Routes | None) -> Routes | None:
    """*body* as routes; TernError when it is none. Topics that it leaves out are those of *before*, from the same name server; None when
    they cannot be."""
    routes = read_json(body, Routes, nodes_max=0)
    if not routes.topics_known:
        return routes
    if before is None or before.topics_tag != routes.topics_tag:
        return None
    # The very same object: whoever reads it sees that nothing has changed.
    return replace(routes, topics=before.topics, orders=before.orders, topics_known=False)


class RoutesCache:
    """Polls *name_servers* for routes, every *interval_ms* and when one proves wrong. *on_routes* hears of every change.

    `wiped`: broker groups whose write permission an operator has withdrawn: nothing new is sent there.
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
        # What each broker group of the last routes hosts, and those that the routes name no more.
        self._hosted: dict[str, dict[str, TopicRoute]] = {}
        self._gone = GoneGroups()
        self._created: dict[tuple[str, str], tuple[TopicRoute, float]] = {}
        # As _created: the id of a topic that this proxy has deleted.
        self._dropped: dict[tuple[str, str], tuple[int, float]] = {}
        # The mark of the routes that were merged last.
        self._last = b""

    async def start(self) -> None:
        """Poll once, then go on polling in the background."""
        await self._polls.start()

    async def stop(self) -> None:
        """End polling."""
        await self._polls.stop()

    @property
    def endpoints(self) -> str:
        """The name servers, for people."""
        return self._polls.routing.endpoints

    @property
    def is_reachable(self) -> bool:
        """Whether a name server answered the last poll."""
        return self._polls.is_reachable

    def refresh_soon(self) -> None:
        """A route proved wrong: poll at once."""
        self._polls.refresh_soon()

    async def refresh(self) -> None:
        """Poll at once and wait for the answer, which is not older than this call."""
        await self._polls.refresh()

    async def topic(self, name: str) -> Topic:
        """The topic; TopicNotFound only when a warm name server says so and this proxy never knew it, or knew that it went.

        Else WarmingUp or NoNameServer.
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
        """A topic that was just created: known at once, and kept until the name servers know it too."""
        until = asyncio.get_running_loop().time() + CREATED_KEPT_S
        self._created[topic, broker_group] = (route, until)
        if self.routes is not None:
            if broker_group not in self._hosted:
                self._hosted[broker_group] = dict(self._forget(broker_group))
            self._hosted[broker_group][topic] = route
            route_of = {name: hosted[topic] for name, hosted in self._all_hosted() if topic in hosted}
            self.topics[topic] = self._topic_of(topic, route_of)

    def drop(self, topic: str, broker_group: str, topic_id: int) -> None:
        """A topic that was just deleted: not known from now on, and not believed of routes that are older than the deletion."""
        self._dropped[topic, broker_group] = (topic_id, asyncio.get_running_loop().time() + CREATED_KEPT_S)
        self._created.pop((topic, broker_group), None)
        self._hosted.get(broker_group, {}).pop(topic, None)
        route_of = {name: hosted[topic] for name, hosted in self._all_hosted() if topic in hosted}
        if route_of:
            self.topics[topic] = self._topic_of(topic, route_of)
        else:
            self.topics.pop(topic, None)

    # What name servers say -----------------------------------------------------------------------------------------
    def _answered(self, mark: bytes, routes: Routes) -> None:
        is_over = bool(self._gone.expire(_now_ms())) or self._is_created_over()
        if is_over or mark != self._last:
            self._last = mark
            self._take(routes, is_whole=is_over)

    def _take(self, routes: Routes, *, is_whole: bool) -> None:
        before, self.routes = self.routes, routes
        # A name server that has just started names no group yet: what an operator has withdrawn, silence does not restore.
        self.wiped = (self.wiped - routes.broker_groups.keys()) | {
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
        """The topic with this route: the same as before, if its route is."""
        old, is_whole = self.topics.get(name), self.routes is not None and self.routes.warm
        if old is not None and old.route == route_of and old.is_whole >= is_whole:
            return old
        # What was known when routes were whole is not forgotten with the next name server.
        is_whole = is_whole or (old is not None and old.is_whole and old.route.keys() <= route_of.keys())
        return Topic(name, route_of, 0 if old is None else old.turn, is_whole=is_whole)

    def _all_hosted(self) -> Iterator[tuple[str, Mapping[str, TopicRoute]]]:
        yield from self._hosted.items()
        for broker_group, group in self._gone.items():
            yield broker_group, group.topics

    def _remember(self, routes: Routes) -> None:
        """What every broker group hosts: as *routes* say where they know, and also what was known before where they do not."""
        hosted: dict[str, dict[str, TopicRoute]] = {name: {} for name in routes.broker_groups}
        for name, route_of in routes.topics.items():
            for broker_group, route in route_of.items():
                hosted.setdefault(broker_group, {})[name] = route
        for broker_group, topics in hosted.items():
            known = self._forget(broker_group)
            if not _decides(routes, broker_group):
                # What a name server has not heard yet, or heard before it lost sight of the leader, forgets nothing on our behalf.
                hosted[broker_group] = {**known, **topics}
        self._add_created(hosted, routes)
        self._leave_out_dropped(hosted)
        for broker_group, known in self._hosted.items():
            logger.warning("routes name a broker group no more", extra={"broker_group": broker_group})
            self._gone.keep(broker_group, GoneGroup(known), _now_ms())
        self._hosted = hosted

    def _forget(self, broker_group: str) -> Mapping[str, TopicRoute]:
        """What was known of the broker group's topics, which is not kept here any more."""
        gone = self._gone.take(broker_group)
        return self._hosted.pop(broker_group, {} if gone is None else gone.topics)

    def _is_created_over(self) -> bool:
        """Whether a topic that this proxy created has been waited for long enough."""
        now = asyncio.get_running_loop().time()
        return any(now > until for _, until in self._created.values())

    def _add_created(self, hosted: dict[str, dict[str, TopicRoute]], routes: Routes) -> None:
        """Topics that this proxy created and that *routes* do not know yet: a leader may die before it has told anybody else."""
        now = asyncio.get_running_loop().time()
        for (name, broker_group), (route, until) in list(self._created.items()):
            known = routes.topics.get(name, {}).get(broker_group)
            if now > until or (known is not None and _is_as_new(known, route)):
                del self._created[name, broker_group]
            else:
                hosted.setdefault(broker_group, dict(self._forget(broker_group)))[name] = route

    def _leave_out_dropped(self, hosted: dict[str, dict[str, TopicRoute]]) -> None:
        """Topics that this proxy deleted, where routes still name them: a name server hears of it a moment later."""
        now = asyncio.get_running_loop().time()
        for (name, broker_group), (topic_id, until) in list(self._dropped.items()):
            known = hosted.get(broker_group, {}).get(name)
            if now > until or (known is not None and known.topic_id != topic_id):
                del self._dropped[name, broker_group]
            elif known is not None:
                del hosted[broker_group][name]


def _hosts_the_same(before: Routes, routes: Routes) -> bool:
    """Whether *routes* say of every group's topics what *before* did, with no more authority to forget some."""
    if routes.topics is not before.topics or routes.broker_groups.keys() != before.broker_groups.keys():
        return False
    return all(not _decides(routes, name) or _decides(before, name) for name in routes.broker_groups)


def _is_as_new(known: TopicRoute, route: TopicRoute) -> bool:
    """Whether *known*, of a name server, is *route*, of a leader's answer, or newer."""
    ages = [
        (each.topic_id, each.queues, read_placement(each.placement).epoch if each.placement else 0)
        for each in (known, route)
    ]
    return known == route or ages[0] > ages[1]


def _decides(routes: Routes, broker_group: str) -> bool:
    """Whether a topic that *routes* do not name in the group is not there: only what its leader said can tell."""
    group = routes.broker_groups.get(broker_group)
    return routes.warm and group is not None and bool(group.leader)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1_000)
