"""Routes from the name servers: polled on an interval, and at once (coalesced, at most ten times a second) when one proves wrong.

While they are incomplete (no answer, a cold one, a group with nodes and no leader) they are asked for every second, whatever the interval.
Work is paced: what takes long, because there are tens of thousands of topics, is done less often, and topics travel and are merged
only when they have changed; leaders change more often.
Owner of the topics and of the last routes: this object, in its event loop. Stale routes serve on while no name server answers.
Law: a topic goes only when its broker group says so, which is when warm routes name the group's leader and not the topic. Routes that
are cold, or in which nobody leads the group, only add to what is known; a group that they do not name is remembered (GoneGroups): its
name server started while it was down, or lost sight of it. Requests for such topics find no leader (503), or find the group well.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import httpx

from tern_proxy.core.sending.topic import Topic
from tern_remoting import problem_of
from tern_tasks import keep_running
from tern_wire.errors import NoNameServer, TernError, TopicNotFound, WarmingUp
from tern_wire.link.codec import read_json
from tern_wire.names import check_topic
from tern_wire.paths import ROUTES_PATH
from tern_wire.routing.gone_groups import GoneGroup, GoneGroups
from tern_wire.routing.placement import read_placement
from tern_wire.routing.route import Routes, TopicRoute

logger = logging.getLogger(__name__)

POLL_INTERVAL_MIN_S = 0.1
# How often incomplete routes are asked for.
INCOMPLETE_INTERVAL_S = 1.0
# After a merge of the routes, so many times as long before the next poll: decoding takes as long again, so this is a tenth of the time.
POLL_PACE = 20
NAMESRV_TIMEOUT_S = 1.0
# A topic that this proxy created is kept until the name servers know it, but not longer than this.
CREATED_KEPT_S = 30.0


class NameServers(Protocol):
    """Where routes come from."""

    endpoints: str

    async def fetch(self) -> tuple[bytes, Routes]:
        """The answer's bytes and what they say; NoNameServer when nobody answers."""
        ...


class HttpNameServers:
    """Name servers over HTTP. The one that answered last is asked first; a warm answer is preferred to a cold one."""

    def __init__(self, urls: tuple[str, ...], client: httpx.AsyncClient) -> None:
        self.endpoints = ", ".join(urls)
        self._urls = list(urls)
        self._client = client
        # The last answer of each, so that an unchanged one costs neither bytes nor parsing.
        self._answers: dict[str, tuple[str, bytes, Routes]] = {}

    async def fetch(self) -> tuple[bytes, Routes]:
        """As NameServers.fetch."""
        cold: tuple[bytes, Routes] | None = None
        for url in list(self._urls):
            try:
                data, routes = await self._ask(url)
            except (httpx.HTTPError, httpx.InvalidURL, TernError) as error:
                logger.debug("a name server does not answer", extra={"url": url, "error": repr(error)})
                continue
            if routes.warm:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return data, routes
            cold = cold or (data, routes)
        if cold is None:
            raise NoNameServer(endpoints=self.endpoints)
        return cold

    async def _ask(self, url: str) -> tuple[bytes, Routes]:
        known = self._answers.get(url)
        headers = {} if known is None else {"if-none-match": known[0]}
        params = {} if known is None else {"topics_tag": known[2].topics_tag}
        place = url.rstrip("/") + ROUTES_PATH
        answer = await self._client.get(place, headers=headers, params=params, timeout=NAMESRV_TIMEOUT_S)
        if answer.status_code == 304 and known is not None:
            return known[1], known[2]
        if answer.status_code != 200:
            raise NoNameServer(endpoints=url)
        routes = read_json(answer.content, Routes, nodes_max=0)
        if routes.topics_known:
            if known is None or known[2].topics_tag != routes.topics_tag:
                raise NoNameServer(endpoints=url)
            # The very same object: whoever reads it sees that nothing has changed.
            routes = replace(routes, topics=known[2].topics, orders=known[2].orders, topics_known=False)
        self._answers[url] = (answer.headers.get("etag", ""), answer.content, routes)
        return answer.content, routes


class RoutesCache:
    """The topics and broker groups that this proxy knows. `on_routes` hears of every change.

    `wiped`: broker groups whose write permission an operator has withdrawn: nothing new is sent there.
    """

    def __init__(
        self,
        name_servers: NameServers,
        *,
        interval_ms: int,
        on_routes: Callable[[Routes], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name_servers = name_servers
        self._interval_s = interval_ms / 1_000
        self._on_routes = on_routes
        self._sleep = sleep
        self.topics: dict[str, Topic] = {}
        self.routes: Routes | None = None
        self.wiped: frozenset[str] = frozenset()
        self.is_reachable = False
        # What each broker group of the last routes hosts, and those that the routes name no more.
        self._hosted: dict[str, dict[str, TopicRoute]] = {}
        self._gone = GoneGroups()
        self._created: dict[tuple[str, str], tuple[TopicRoute, float]] = {}
        # As _created: the id of a topic that this proxy has deleted.
        self._dropped: dict[tuple[str, str], tuple[int, float]] = {}
        self._last = b""
        self._merge_s = 0.0
        self._wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Poll once, then go on polling in the background."""
        await self._poll()
        self._task = keep_running("routes", self._run)

    async def stop(self) -> None:
        """End polling."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @property
    def endpoints(self) -> str:
        """The name servers, for people."""
        return self._name_servers.endpoints

    def refresh_soon(self) -> None:
        """A route proved wrong: poll at once."""
        self._wanted.set()

    async def refresh(self) -> None:
        """Poll at once and wait for the answer, which is not older than this call."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wanted.set()
        await waiter

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
            raise NoNameServer(endpoints=self._name_servers.endpoints)
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

    # Polling ----------------------------------------------------------------------------------------------------
    async def _run(self) -> None:
        while True:
            # Not wait_for: in Python 3.11 it can lose a cancellation that comes together with the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    self._interval_s if self._is_complete() else min(self._interval_s, INCOMPLETE_INTERVAL_S)
                ):
                    await self._wanted.wait()
            self._wanted.clear()
            await self._poll()
            await self._sleep(max(POLL_INTERVAL_MIN_S, POLL_PACE * self._merge_s))

    def _is_complete(self) -> bool:
        """Whether the last poll told who leads every broker group that lives."""
        if self.routes is None or not self.is_reachable or not self.routes.warm:
            return False
        led = [bool(group.leader) for group in self.routes.broker_groups.values() if group.nodes]
        return bool(led) and all(led)

    async def _poll(self) -> None:
        waiters, self._waiters = self._waiters, []
        self._merge_s = 0.0
        try:
            data, routes = await self._name_servers.fetch()
            if not self.is_reachable:
                logger.info("a name server answers", extra={"warm": routes.warm, "topics": len(routes.topics)})
            self.is_reachable = True
            is_over = bool(self._gone.expire(_now_ms())) or self._is_created_over()
            if is_over or data != self._last:
                self._last = data
                began_s = asyncio.get_running_loop().time()
                self._take(routes, is_whole=is_over)
                self._merge_s = asyncio.get_running_loop().time() - began_s
        except NoNameServer as error:
            if self.is_reachable or self.routes is None:
                logger.warning("no name server answers", extra={"detail": error.detail})
            self.is_reachable = False
        except Exception as error:
            # A bug: those who wait hear of it, and the next poll comes all the same.
            problem = problem_of(error)
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(problem)
        finally:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

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
