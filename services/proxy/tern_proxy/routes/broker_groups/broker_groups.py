"""Handlers for adding and removing broker groups, which belong to the cluster and to no namespace.

Answers have the namespaces of topics as separate fields. Placements come from this proxy's routes;
unread messages are requested from the leaders at each call.
"""

import asyncio

from tern_proxy.core.documents.broker_groups import BrokerGroupJoined, BrokerGroupLeft, TopicPlacePage
from tern_proxy.core.draining import Hosted, Left, is_here, topic_place
from tern_proxy.core.listing import read_page, take_page
from tern_proxy.proxy import Proxy
from tern_proxy.routes.broker_groups.joining import join_groups
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import broker_group_names
from tern_wire.errors import BrokerGroupNotFound, InvalidField, WarmingUp
from tern_wire.limits import LISTED_MAX
from tern_wire.link.hosted import ListHosted

_NAME_SHOWN_MAX = 80
# Topics processed before other requests get a turn: a millisecond or two.
_TOPICS_PER_TURN = 256
HERE, ELSEWHERE = "here", "elsewhere"


async def get_broker_group(call: Call, broker_group: str) -> BrokerGroupLeft:
    """Return the unread remainder of a broker group. `is_drained`: it may be removed without loss.

    Then it has no write permission, no topic is placed there or moving away from there, every group
    that reads its topics has settled all of their messages, and nothing waits there for a delivery
    time, for the end of a transaction, or as a dead letter. `unread` counts, for each topic, the
    unsettled messages of the group with the largest backlog; `in_flight` is leased; `transactions`
    are open or expired. `unclaimed` are messages of topics that no group reads: they disappear with
    the broker group. `topics_left` names 100 topics at most, with the reasons.
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
    """List topics of every namespace that a broker group hosts, that are placed there or moving
    away from there; with `which=elsewhere` the others.

    `broker_groups`: the owners of keyed and ordered messages; `before`: the previous owners while a
    move has not ended; `hosts`: broker groups with queues of the topic. From this proxy's routes.
    Page by page: `next_cursor` is empty on the last one.
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
    """Declare in a broker group the consumer groups and producer groups, of every namespace, that
    others have and it lacks.

    They get their settings and check secrets from the other broker groups; existing groups stay as
    they are. A repeat is safe, and completes an interrupted join. Topics are added when they are
    placed there, principals automatically.
    """
    await _check_known(call.proxy, broker_group)
    return await join_groups(call.proxy, broker_group)


async def _check_known(proxy: Proxy, broker_group: str) -> None:
    """Raise BrokerGroupNotFound unless its brokers have registered.

    Raise WarmingUp, NoNameServer or NoLeader while that is unknown.
    """
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
    """Return all pages of a broker group's contents."""
    link = proxy.group(broker_group).link
    hosted, after = Hosted(), ""
    while True:
        page, _ = await link.ask(ListHosted(after=after, limit=LISTED_MAX), is_repeatable=True)
        hosted.add(page)
        if not page.more or not page.topics:
            return hosted
        after = page.topics[-1].topic
