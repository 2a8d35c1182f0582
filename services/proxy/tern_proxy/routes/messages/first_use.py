"""Creation at first use: topics at the first send, consumer groups at the first receive, producer
groups at the first transaction.

Only if the settings enable it.

Law: nothing is created while it may exist. Only a warm name server's answer that a topic is
unknown, or a leader's that a group is, counts. Two proxies that create at once declare the same:
the same broker group decides a topic's placement, and without its leader there is no topic. A group
is created where a leader is; other broker groups get it with the next declaration. A topic whose
creation was interrupted is completed by its next use.
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
from tern_proxy.routes.topics.topic_places import (
    change_topic,
    complete_topic,
    create_topic_at_first_use,
    wants_completion,
)
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

# The mesh writes and reads its own topics whatever settings a client has made.
_READ_WRITE = PERM_READ | PERM_WRITE
logger = logging.getLogger(__name__)


async def find_or_create_topic(proxy: Proxy, name: str, request: Scoped) -> Topic:
    """Return a topic that is not in the routes known here; create it if it is unknown, creation is
    enabled, and the caller has the right.

    Raise the errors of `Proxy.topic`, and TopicReserved for a reserved name.
    """
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
    """Return a topic that the proxy itself needs; create it if it is unknown, whatever the
    settings.

    A topic of this name made by a client before the name was reserved is opened for all messages.
    Raise the errors of `Proxy.topic`.
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
        complete_soon(proxy, found, may_create=True)
    return found


def complete_soon(proxy: Proxy, topic: Topic, *, may_create: bool) -> None:
    """Complete a topic whose creation was interrupted, in the background: most messages can be
    stored meanwhile, and the others wait for newer routes (sending.py).
    """
    if wants_completion(proxy, topic):
        proxy.auto_create.soon(("topic", topic.name), lambda: complete_topic(proxy, topic, may_create=may_create))


async def create_group(proxy: Proxy, name: str, unknown: GroupNotFound, request: Scoped) -> None:
    """Create a consumer group that a leader does not have.

    Raise *unknown* unless creation is enabled, Forbidden unless the caller of *request* has the
    right.
    """
    if not proxy.auto_create.groups:
        raise unknown
    check_group(name)
    admission_of(request).require(CREATE, GROUP, name)
    owner = owner_of(request.scope)
    await proxy.auto_create.once(("group", name), lambda: _create_group(proxy, name, owner))


async def create_producer_group(proxy: Proxy, name: str, unknown: ProducerGroupNotFound, request: Scoped) -> None:
    """Create a producer group; settings and errors as in create_group."""
    if not proxy.auto_create.groups:
        raise unknown
    check_group(name)
    admission_of(request).require(CREATE, PRODUCER_GROUP, name)
    owner = owner_of(request.scope)
    await proxy.auto_create.once(("producer group", name), lambda: _create_producer_group(proxy, name, owner))


async def _open_topic(proxy: Proxy, name: str) -> None:
    logger.warning(
        "an internal topic of the mesh had other settings and accepts all messages now", extra={"topic": name}
    )
    await change_topic(proxy, ChangeTopic(topic=name, mode=ALTER, type=MIXED, perm=_READ_WRITE), [])


async def _create_topic(
    proxy: Proxy, name: str, check_new: Callable[[str], None] = lambda _: None, owner: str | None = None
) -> None:
    """Create a topic. *owner*: whose creation rate is charged; None for the mesh itself."""
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
    # Broker groups that joined later get the group with the settings of the others.
    known = {broker_group for broker_group, _ in told}
    for broker_group, group in sorted(proxy.groups.items()):
        if broker_group not in known and group.link.has_leader:
            await make_group(proxy, broker_group, told)
            await begin_group(proxy, name, broker_group)


async def _tell(proxy: Proxy, name: str) -> list[tuple[str, GroupDescription]]:
    """Return the descriptions of the consumer group from the broker groups that have it; errors are
    left out.
    """
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
    """Return the answers of the broker groups that have a leader.

    Raise an error only if none has succeeded.
    """
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
