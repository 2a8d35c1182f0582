"""Broker groups that come and go: one joins a running mesh, one is emptied before it is taken out. They are the cluster's and no namespace's.

What is said of topics has their namespaces apart from their names. Where topics are placed is as this proxy's routes say; what is left to be read is
asked of the leaders, now.
"""

import asyncio

from tern_proxy.core.documents.broker_groups import BrokerGroupJoined, BrokerGroupLeft, TopicPlacePage
from tern_proxy.core.draining import Hosted, Left, is_here, topic_place
from tern_proxy.core.listing import read_page, take_page
from tern_proxy.proxy import Proxy
from tern_proxy.routes.asking import broker_group_names
from tern_proxy.routes.broker_groups.joining import join_groups
from tern_proxy.routes.call import Call
from tern_wire.errors import BrokerGroupNotFound, InvalidField, WarmingUp
from tern_wire.limits import LISTED_MAX
from tern_wire.link.hosted import ListHosted

_NAME_SHOWN_MAX = 80
# Looked at before other requests have their turn: a millisecond or two.
_TOPICS_PER_TURN = 256
HERE, ELSEWHERE = "here", "elsewhere"


async def get_broker_group(call: Call, broker_group: str) -> BrokerGroupLeft:
    """What is left to be read in a broker group. `is_drained`: it may be taken out, and nobody misses anything.

    Then it has no write permission, no topic is placed there or on its way from there, every group that reads its topics has settled all of it, and
    nothing waits there for a delivery time, for the end of a transaction, or as a dead letter. `unread` counts, for each topic, what the
    group that is furthest behind has to settle; `in_flight` is leased; `transactions` are open or expired. `unclaimed` are messages of
    topics that no group reads: they go with the broker group. `topics_left` names 100 topics at most, and why each is left.
    """
    proxy = call.proxy
    await _check_known(proxy, broker_group)
    hosted = await _hosted(proxy, broker_group)
    filled = [proxy.cache.topics[name] for name in hosted.with_messages() if name in proxy.cache.topics]
    others = sorted({other for topic in filled for other in topic.route} - {broker_group})
    readers: dict[str, set[str]] = {}
    for elsewhere in await asyncio.gather(*(_hosted(proxy, other) for other in others)):
        for name, topic in elsewhere.topics.items():
            readers.setdefault(name, set()).update(topic.groups)
    left, topics = Left(broker_group, hosted), proxy.cache.topics
    for number, name in enumerate(sorted(hosted.topics.keys() | topics.keys()), 1):
        left.add(name, topics.get(name), readers.get(name, ()))
        if not number % _TOPICS_PER_TURN:
            await asyncio.sleep(0)
    link = proxy.group(broker_group).link
    leader = link.leader if link.has_leader else ""
    return left.document(writable=broker_group not in proxy.cache.wiped, leader=leader)


async def list_broker_group_topics(call: Call, broker_group: str) -> TopicPlacePage:
    """Topics of every namespace that are hosted in a broker group, placed there or on their way from there; with `which=elsewhere` the others.

    `broker_groups`: where keyed and ordered messages go; `before`: where they went, while that is not over; `hosts`: who has queues of it. As
    this proxy's routes say. Page by page: `next_cursor` is empty on the last one.
    """
    page = read_page(call.query, {"name": str})
    which = call.query.get("which", HERE)
    if which not in {HERE, ELSEWHERE}:
        raise InvalidField(reason=f"'which' is {HERE} or {ELSEWHERE}", pointer="query/which")
    await _check_known(call.proxy, broker_group)
    topics = call.proxy.cache.topics
    found = ((name, name) for name, topic in topics.items() if is_here(topic, broker_group) is (which == HERE))
    names, cursor = take_page(found, page)
    return TopicPlacePage(topics=[topic_place(topics[name]) for name in names], next_cursor=cursor)


async def join_broker_group(call: Call, broker_group: str) -> BrokerGroupJoined:
    """Declare in a broker group the consumer groups and producer groups, of every namespace, that others have and it lacks.

    They get the settings, and the check secrets, that they have elsewhere; what is there is left as it is. Repeating it is safe, and completes
    what was broken off. Topics come when they are placed there, principals by themselves.
    """
    await _check_known(call.proxy, broker_group)
    return await join_groups(call.proxy, broker_group)


async def _check_known(proxy: Proxy, broker_group: str) -> None:
    """BrokerGroupNotFound unless brokers of it have registered; WarmingUp, NoNameServer or NoLeader while nobody can tell."""
    if broker_group in proxy.groups:
        return
    await proxy.cache.refresh()
    known = await broker_group_names(proxy)
    if broker_group in proxy.groups:
        return
    if proxy.cache.routes is None or not proxy.cache.routes.warm:
        raise WarmingUp()
    raise BrokerGroupNotFound(broker_group=broker_group[:_NAME_SHOWN_MAX], known=", ".join(known))


async def _hosted(proxy: Proxy, broker_group: str) -> Hosted:
    """All pages of what a broker group says of itself."""
    link = proxy.group(broker_group).link
    hosted, after = Hosted(), ""
    while True:
        page, _ = await link.ask(ListHosted(after=after, limit=LISTED_MAX), is_repeatable=True)
        hosted.add(page)
        if not page.more or not page.topics:
            return hosted
        after = page.topics[-1].topic
