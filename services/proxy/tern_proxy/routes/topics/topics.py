"""Handlers for topics: declared, altered, described, listed, deleted.

A new topic is created in every writable broker group. A list comes from this proxy's routes: no
broker is asked, however many topics there are.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from tern_proxy.core.documents.topics import TopicDeleted, TopicDescription, TopicPage, TopicSettings
from tern_proxy.core.listing import read_page, take_page
from tern_proxy.core.sending.topic import Topic
from tern_proxy.core.topics import listed_topic, topic_change, topic_declared, topic_description
from tern_proxy.routes.call import Answer, Call
from tern_proxy.routes.confirmation import confirm
from tern_proxy.routes.fan_out import ask_all, broker_group_names
from tern_proxy.routes.topics.topic_places import change_topic
from tern_wire.errors import InvalidField, NoNameServer, TopicNotFound, WarmingUp
from tern_wire.link.topics import ChangeTopic, DeleteTopic, DescribeTopic
from tern_wire.names import check_topic, is_of, own_name
from tern_wire.principals.principals import ALTER as ALTER_IT
from tern_wire.principals.principals import GROUP, TOPIC
from tern_wire.settings.topic_settings import ALTER, CREATE, DECLARE, read_topic_change

_SORTS: Mapping[str, Callable[[Topic], Any]] = {
    "name": lambda topic: topic.name,
    "queues": lambda topic: sum(part.queues for part in topic.route.values()),
    "type": lambda topic: topic.kind,
}


async def put_topic(call: Call, topic: str) -> Answer:
    """Declare a topic: afterwards it exists, with the given settings. 201 when it is new.

    `queues` is per broker group: 8 in a new topic; it may grow, never shrink (409). `type` is MIXED
    in a new topic. With `If-None-Match: *` an existing topic is unchanged (412).
    """
    return await _change(call, topic, mode_of_put(call))


async def patch_topic(call: Call, topic: str) -> Answer:
    """Change the given settings of an existing topic."""
    return await _change(call, topic, ALTER)


async def _change(call: Call, topic: str, mode: str) -> Answer:
    proxy = call.proxy
    proxy.kept.require_clients(check_topic(topic))
    settings = await call.read(TopicSettings)
    if mode == DECLARE and names_settings(settings):
        call.admission.require(ALTER_IT, TOPIC, topic)
    change = read_topic_change(topic_change(topic, mode, settings))
    names = await broker_group_names(proxy)
    # A broker group without write permission gets no new topics.
    writable = [name for name in names if name not in proxy.cache.wiped]
    is_free = mode == ALTER or topic in proxy.cache.topics
    with proxy.creations.one(call.owner, is_free=is_free) as creation:
        asked = msgspec.convert(change.packed(), ChangeTopic)
        answers = await change_topic(proxy, asked, writable or names)
        created = creation.is_new = any(found.created for _, found in answers)
    return Answer(topic_declared(topic, answers, created=created), 201 if created else 200)


async def get_topic(call: Call, topic: str) -> TopicDescription:
    """Return settings, offsets of every queue, and the groups that have begun to read it (at most
    1,000).
    """
    answers = await ask_all(call.proxy, DescribeTopic(topic=check_topic(topic)), absent=TopicNotFound)
    described = topic_description(topic, answers)
    described.groups = [name for name in described.groups if call.admission.sees(GROUP, name)]
    return described


async def list_topics(call: Call) -> TopicPage:
    """List topics in order, page by page: `next_cursor` is empty on the last one.

    `q` is a part of the name, case-insensitive.
    """
    page = read_page(call.query, {"name": str, "queues": int, "type": str})
    cache = call.proxy.cache
    if cache.routes is None:
        await cache.refresh()
    if cache.routes is None:
        raise NoNameServer(endpoints=cache.endpoints)
    if not cache.routes.warm and not cache.topics:
        raise WarmingUp()
    admission, namespace = call.admission, call.namespace
    found = (
        topic
        for name, topic in cache.topics.items()
        if is_of(namespace, name) and page.pattern in own_name(name).lower() and admission.sees(TOPIC, name)
    )
    names, cursor = take_page(((_SORTS[page.sort](topic), topic.name) for topic in found), page)
    return TopicPage(topics=[listed_topic(name, cache.topics[name].route) for name in names], next_cursor=cursor)


async def delete_topic(call: Call, topic: str) -> TopicDeleted:
    """Delete a topic with its messages and all groups' offsets in it. The name becomes free."""
    proxy = call.proxy
    proxy.kept.require_clients(check_topic(topic))
    confirm(call, "topic", topic, "its messages")
    answers = await ask_all(proxy, DescribeTopic(topic=topic), absent=TopicNotFound)
    for name, found in answers:
        # By its id: a repeat must not delete a topic that was created under the name since.
        deletion = DeleteTopic(topic=topic, topic_id=found.topic_id)
        await proxy.group(name).link.ask(deletion, is_repeatable=True)
        proxy.cache.drop(topic, name, found.topic_id)
    return TopicDeleted(topic=topic, deleted=True)


def mode_of_put(call: Call) -> str:
    """Return declare, or create with `If-None-Match: *`.

    Raise InvalidField for another value of that header.
    """
    condition = call.request.headers.get("if-none-match")
    if condition is not None and condition.strip() != "*":
        raise InvalidField(reason="The only value of If-None-Match is *", pointer="header/If-None-Match")
    return DECLARE if condition is None else CREATE


def names_settings(settings: Struct) -> bool:
    """Return whether a body has fields that a PUT would change in an existing object."""
    return any(getattr(settings, name) is not UNSET for name in settings.__struct_fields__)
