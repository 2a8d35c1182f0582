"""Broker groups that come and go: one joins a running mesh, one is emptied before it is taken out. Ordinary FastAPI routes, the cluster's and no namespace's.

What is said of topics has their namespaces apart from their names. Where topics are placed is as this proxy's routes say; what is left to be read is
asked of the leaders, now.
"""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.core.draining import Hosted, Left, is_here, topic_place
from tern_proxy.core.listing import read_page, take_page
from tern_proxy.proxy import Proxy
from tern_proxy.routes.asking import broker_group_names
from tern_proxy.routes.documents import answer_form, read_parameters, refuse_query, respond
from tern_proxy.routes.joining import join_groups
from tern_wire.errors import BrokerGroupNotFound, InvalidField, WarmingUp
from tern_wire.limits import LISTED_MAX
from tern_wire.link.hosted import ListHosted
from tern_wire.paths import broker_group_path, broker_group_topics_path, join_path

_NAME_SHOWN_MAX = 80
# Looked at before other requests have their turn: a millisecond or two.
_TOPICS_PER_TURN = 256
HERE, ELSEWHERE = "here", "elsewhere"


def broker_groups_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    groups = _BrokerGroups(proxy)
    router = APIRouter(default_response_class=Response)
    for method, path, handler in (
        ("GET", broker_group_path("{broker_group}"), groups.get_broker_group),
        ("GET", broker_group_topics_path("{broker_group}"), groups.list_topics),
        ("POST", join_path("{broker_group}"), groups.join),
    ):
        router.add_api_route(path, handler, methods=[method], tags=["cluster"])
    return router


class _BrokerGroups:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def get_broker_group(self, request: Request, broker_group: str) -> Response:
        """What is left to be read in a broker group. `is_drained`: it may be taken out, and nobody misses anything.

        Then it has no write permission, no topic is placed there or on its way from there, every group that reads its topics has settled all of it, and
        nothing waits there for a delivery time, for the end of a transaction, or as a dead letter. `unread` counts, for each topic, what the
        group that is furthest behind has to settle; `in_flight` is leased; `transactions` are open or expired. `unclaimed` are messages of
        topics that no group reads: they go with the broker group. `topics_left` names 100 topics at most, and why each is left.
        """
        refuse_query(request)
        answer_form(request)
        await self._check_known(broker_group)
        proxy = self._proxy
        hosted = await self._hosted(broker_group)
        filled = [proxy.cache.topics[name] for name in hosted.with_messages() if name in proxy.cache.topics]
        others = sorted({other for topic in filled for other in topic.route} - {broker_group})
        readers: dict[str, set[str]] = {}
        for elsewhere in await asyncio.gather(*(self._hosted(other) for other in others)):
            for name, topic in elsewhere.topics.items():
                readers.setdefault(name, set()).update(topic.groups)
        left, topics = Left(broker_group, hosted), proxy.cache.topics
        for number, name in enumerate(sorted(hosted.topics.keys() | topics.keys()), 1):
            left.add(name, topics.get(name), readers.get(name, ()))
            if not number % _TOPICS_PER_TURN:
                await asyncio.sleep(0)
        link = proxy.group(broker_group).link
        leader = link.leader if link.has_leader else ""
        return respond(request, left.document(writable=broker_group not in proxy.cache.wiped, leader=leader))

    async def list_topics(self, request: Request, broker_group: str) -> Response:
        """Topics of every namespace that are hosted in a broker group, placed there or on their way from there; with `which=elsewhere` the others.

        `broker_groups`: where keyed and ordered messages go; `before`: where they went, while that is not over; `hosts`: who has queues of it. As
        this proxy's routes say. Page by page: `next_cursor` is empty on the last one.
        """
        query = read_parameters(request, ("limit", "cursor", "which"))
        page = read_page({name: query[name] for name in ("limit", "cursor") if name in query}, {"name": str})
        which = query.get("which", HERE)
        if which not in {HERE, ELSEWHERE}:
            raise InvalidField(reason=f"'which' is {HERE} or {ELSEWHERE}", pointer="query/which")
        answer_form(request)
        await self._check_known(broker_group)
        topics = self._proxy.cache.topics
        found = ((name, name) for name, topic in topics.items() if is_here(topic, broker_group) is (which == HERE))
        names, cursor = take_page(found, page)
        return respond(request, {"topics": [topic_place(topics[name]) for name in names], "next_cursor": cursor})

    async def join(self, request: Request, broker_group: str) -> Response:
        """Declare in a broker group the consumer groups and producer groups, of every namespace, that others have and it lacks.

        They get the settings, and the check secrets, that they have elsewhere; what is there is left as it is. Repeating it is safe, and completes
        what was broken off. Topics come when they are placed there, principals by themselves.
        """
        refuse_query(request)
        answer_form(request)
        await self._check_known(broker_group)
        created = await join_groups(self._proxy, broker_group)
        return respond(request, {"broker_group": broker_group, **created})

    async def _check_known(self, broker_group: str) -> None:
        """BrokerGroupNotFound unless brokers of it have registered; WarmingUp, NoNameServer or NoLeader while nobody can tell."""
        proxy = self._proxy
        if broker_group in proxy.groups:
            return
        await proxy.cache.refresh()
        known = await broker_group_names(proxy)
        if broker_group in proxy.groups:
            return
        if proxy.cache.routes is None or not proxy.cache.routes.warm:
            raise WarmingUp()
        raise BrokerGroupNotFound(broker_group=broker_group[:_NAME_SHOWN_MAX], known=", ".join(known))

    async def _hosted(self, broker_group: str) -> Hosted:
        """All pages of what a broker group says of itself."""
        link = self._proxy.group(broker_group).link
        hosted, after = Hosted(), ""
        while True:
            page, _ = await link.ask(ListHosted(after=after, limit=LISTED_MAX), is_repeatable=True)
            hosted.add(page)
            if not page.more or not page.topics:
                return hosted
            after = page.topics[-1].topic
