"""The first send to a topic, the first receive of a group, the first transaction of a producer group, that are not there yet: with the settings'
leave they are created.

Law: nothing is created while it may exist. Only a warm name server's word that a topic is unknown, or a leader's that a group is,
counts; and two proxies that create at once declare the same: of a topic, the same broker group decides where it is placed, without whose leader
there is no topic. A group is created where a leader is; other broker groups get it with the next declaration. A topic whose creation broke off is
completed by the next use of it.
"""

import asyncio
import logging
from collections.abc import Callable

from tern_proxy.access.authorization import Scoped, admission_of
from tern_proxy.core.sending.topic import Topic
from tern_proxy.exchange import owner_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.broker_groups.joining import make_group
from tern_proxy.routes.broker_groups.late_groups import begin_group
from tern_proxy.routes.topics.homes import change_topic, complete_topic, create_topic_at_first_use, wants_completion
from tern_wire.errors import GroupNotFound, NoLeader, ProducerGroupNotFound, TernError, TopicNotFound
from tern_wire.link.groups import ChangeGroup, DescribeGroup, GroupDescription
from tern_wire.link.heads import LinkRequest, R
from tern_wire.link.producer_groups import ChangeProducerGroup
from tern_wire.link.topics import ChangeTopic
from tern_wire.names import check_group
from tern_wire.principals.principals import CREATE, GROUP, PRODUCER_GROUP, TOPIC
from tern_wire.routing.route import PERM_READ, PERM_WRITE
from tern_wire.settings.producer_settings import ProducerChange
from tern_wire.settings.topic_settings import ALTER, DECLARE, MIXED

# What the mesh keeps for itself is written and read, whatever somebody has said.
_READ_WRITE = PERM_READ | PERM_WRITE
logger = logging.getLogger(__name__)


async def topic_to_send(proxy: Proxy, name: str, request: Scoped) -> Topic:
    """The topic, created now if it is unknown, that is wanted, and who makes *request* may. As Proxy.topic; TopicReserved for a name that is kept."""
    proxy.kept.require_clients(name)
    found = proxy.cache.topics.get(name)
    if found is not None:
        if found.late:
            _complete_soon(proxy, found, may_create=proxy.auto_create.topics)
        return found
    try:
        return await proxy.topic(name)
    except TopicNotFound:
        if not proxy.auto_create.topics:
            raise
    admission_of(request).require(CREATE, TOPIC, name)
    owner = owner_of(request.scope)
    await proxy.auto_create.once(("topic", name), lambda: _create_topic(proxy, name, proxy.kept.require_new, owner))
    return await proxy.topic(name)


async def own_topic(proxy: Proxy, name: str) -> Topic:
    """The topic, created now if it is unknown: one that the proxy itself needs, whatever the settings say. As Proxy.topic.

    One that a client has made before such names were kept takes everything from now on.
    """
    try:
        found = await proxy.topic(name)
    except TopicNotFound:
        await proxy.auto_create.once(("topic", name), lambda: _create_topic(proxy, name))
        return await proxy.topic(name)
    if found.kind != MIXED or found.perm != _READ_WRITE:
        await proxy.auto_create.once(("own topic", name), lambda: _open_topic(proxy, name))
        found = await proxy.topic(name)
    if found.late:
        _complete_soon(proxy, found, may_create=True)
    return found


def _complete_soon(proxy: Proxy, topic: Topic, *, may_create: bool) -> None:
    # Nobody waits: most messages can be stored meanwhile, and those that cannot wait for news (sending.py).
    if wants_completion(proxy, topic):
        proxy.auto_create.soon(("topic", topic.name), lambda: complete_topic(proxy, topic, may_create=may_create))


async def create_group(proxy: Proxy, name: str, unknown: GroupNotFound, request: Scoped) -> None:
    """Create the consumer group that a leader does not know; raises *unknown* unless that is wanted, Forbidden unless who makes *request* may."""
    if not proxy.auto_create.groups:
        raise unknown
    check_group(name)
    admission_of(request).require(CREATE, GROUP, name)
    owner = owner_of(request.scope)
    await proxy.auto_create.once(("group", name), lambda: _create_group(proxy, name, owner))


async def create_producer_group(proxy: Proxy, name: str, unknown: ProducerGroupNotFound, request: Scoped) -> None:
    """As create_group, for a producer group; the same setting gives leave."""
    if not proxy.auto_create.groups:
        raise unknown
    check_group(name)
    admission_of(request).require(CREATE, PRODUCER_GROUP, name)
    owner = owner_of(request.scope)
    await proxy.auto_create.once(("producer group", name), lambda: _create_producer_group(proxy, name, owner))


async def _open_topic(proxy: Proxy, name: str) -> None:
    logger.warning(
        "a topic of the mesh itself was made for something else and takes all messages now", extra={"topic": name}
    )
    await change_topic(proxy, ChangeTopic(topic=name, mode=ALTER, type=MIXED, perm=_READ_WRITE), [])


async def _create_topic(
    proxy: Proxy, name: str, check_new: Callable[[str], None] = lambda _: None, owner: str | None = None
) -> None:
    """*owner*: who pays for it; None: the mesh itself."""
    logger.info("a topic is created at its first use", extra={"topic": name})
    writable = [each for each in sorted(proxy.groups) if each not in proxy.cache.wiped] or sorted(proxy.groups)
    if not writable:
        raise NoLeader(broker_group="(none is registered)")
    with proxy.creations.one(owner or "", is_free=owner is None):
        await create_topic_at_first_use(proxy, name, writable, check_new)


async def _create_group(proxy: Proxy, name: str, owner: str) -> None:
    logger.info("a consumer group is created at its first use", extra={"group": name})
    told = await _tell(proxy, name)
    if not told:
        with proxy.creations.one(owner):
            await _declare(proxy, ChangeGroup(group=name, mode=DECLARE))
        return
    # Broker groups that came later get it as the others have it.
    known = {broker_group for broker_group, _ in told}
    for broker_group, group in sorted(proxy.groups.items()):
        if broker_group not in known and group.link.has_leader:
            await make_group(proxy, broker_group, told)
            await begin_group(proxy, name, broker_group)


async def _tell(proxy: Proxy, name: str) -> list[tuple[str, GroupDescription]]:
    """What the broker groups that have the consumer group say of it; those that are in trouble say nothing."""
    asked = DescribeGroup(group=name, topic="")
    links = {each: group.link for each, group in sorted(proxy.groups.items()) if group.link.has_leader}
    answers = await asyncio.gather(
        *(link.ask(asked, is_repeatable=True) for link in links.values()), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, TernError):
            raise answer
    return [(each, answer[0]) for each, answer in zip(links, answers, strict=True) if isinstance(answer, tuple)]


async def _create_producer_group(proxy: Proxy, name: str, owner: str) -> None:
    logger.info("a producer group is created at its first use", extra={"producer_group": name})
    change = ProducerChange(producer_group=name, create=True, settings={})
    with proxy.creations.one(owner):
        await _declare(proxy, ChangeProducerGroup(**change.packed()))


async def _declare(proxy: Proxy, change: LinkRequest[R]) -> list[tuple[str, R]]:
    """Answers of the broker groups that are up; their trouble only if none of them has done it."""
    links = {name: group.link for name, group in sorted(proxy.groups.items())}
    up = {name: link for name, link in links.items() if link.has_leader} or links
    answers = await asyncio.gather(
        *(link.ask(change, is_repeatable=True) for link in up.values()), return_exceptions=True
    )
    done = [(name, answer[0]) for name, answer in zip(up, answers, strict=True) if isinstance(answer, tuple)]
    for answer in answers:
        if isinstance(answer, BaseException) and (not done or not isinstance(answer, TernError)):
            raise answer
    if not done:
        raise NoLeader(broker_group="(none is registered)")
    return done
