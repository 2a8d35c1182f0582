"""Topics: declared, altered, described, listed, deleted. Ordinary FastAPI routes; a new topic is in every broker group that may be written.

A list comes from the routes that this proxy has: no broker is asked, however many topics there are.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import UNSET
from starlette.responses import Response

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in
from tern_proxy.core.listing import PARAMETERS, read_page, take_page
from tern_proxy.core.sending.parameters import BASIC, answer_kind
from tern_proxy.core.sending.topic import Topic
from tern_proxy.core.topic_documents import topic_change, topic_description, topic_document, topic_row
from tern_proxy.exchange import owner_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.documents import (
    ask_all,
    broker_group_names,
    read_document,
    read_parameters,
    refuse_query,
    respond,
)
from tern_proxy.routes.topic_homes import change_topic
from tern_wire.errors import ConfirmationNeeded, InvalidField, NoNameServer, TopicNotFound, WarmingUp
from tern_wire.link.topics import ChangeTopic, DeleteTopic, DescribeTopic
from tern_wire.messages import TopicSettings
from tern_wire.names import check_topic, is_of, own_name
from tern_wire.paths import TOPICS_PATH
from tern_wire.principals.principals import ALTER as ALTER_IT
from tern_wire.principals.principals import GROUP, TOPIC
from tern_wire.settings.topic_settings import ALTER, CREATE, DECLARE, read_topic_change

_LOSS = "its messages"
_SORTS: Mapping[str, Callable[[Topic], Any]] = {
    "name": lambda topic: topic.name,
    "queues": lambda topic: sum(part.queues for part in topic.route.values()),
    "type": lambda topic: topic.kind,
}


def topics_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    topics = _Topics(proxy)
    router = APIRouter(default_response_class=Response)
    for method, path, handler in (
        ("GET", TOPICS_PATH, topics.list_topics),
        ("GET", "/v1/topics/{topic}", topics.get_topic),
        ("PUT", "/v1/topics/{topic}", topics.put_topic),
        ("PATCH", "/v1/topics/{topic}", topics.patch_topic),
        ("DELETE", "/v1/topics/{topic}", topics.delete_topic),
    ):
        router.add_api_route(path, handler, methods=[method], tags=["topics"])
    return router


class _Topics:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def put_topic(self, request: Request, topic: str) -> Response:
        """Declare a topic: afterwards it is there, with the settings that were named. 201 when it is new.

        `queues` is per broker group: 8 in a new topic; it may grow, never shrink (409). `type` is MIXED in a new topic. With
        `If-None-Match: *` a topic that exists is left alone (412).
        """
        return await self._change(request, topic, mode_of_put(request))

    async def patch_topic(self, request: Request, topic: str) -> Response:
        """Change the settings that are named of a topic that exists."""
        return await self._change(request, topic, ALTER)

    async def _change(self, request: Request, topic: str, mode: str) -> Response:
        self._proxy.kept.require_clients(check_topic(topic))
        settings = await read_document(request, TopicSettings)
        if mode == DECLARE and names_settings(settings):
            admission_of(request).require(ALTER_IT, TOPIC, topic)
        change = read_topic_change(topic_change(topic, mode, settings))
        names = await broker_group_names(self._proxy)
        # What an operator drains gets no new topics.
        writable = [name for name in names if name not in self._proxy.cache.wiped]
        is_free = mode == ALTER or topic in self._proxy.cache.topics
        with self._proxy.creations.one(owner_of(request.scope), is_free=is_free) as creation:
            asked = msgspec.convert(change.packed(), ChangeTopic)
            answers = await change_topic(self._proxy, asked, writable or names)
            created = creation.is_new = any(found.created for _, found in answers)
        return respond(request, {**topic_document(topic, answers), "created": created}, 201 if created else 200)

    async def get_topic(self, request: Request, topic: str) -> Response:
        """Settings, offsets of every queue, and the groups that have begun to read it (at most 1,000)."""
        refuse_query(request)
        asked = DescribeTopic(topic=check_topic(topic))
        answers = await ask_all(self._proxy, asked, absent=TopicNotFound)
        document = topic_description(topic, answers)
        document["groups"] = [name for name in document["groups"] if admission_of(request).sees(GROUP, name)]
        return respond(request, document)

    async def list_topics(self, request: Request) -> Response:
        """Topics in order, page by page: `next_cursor` is empty on the last one. `q` finds a part of the name, in any case."""
        query = read_parameters(request, PARAMETERS)
        page = read_page(query, {"name": str, "queues": int, "type": str})
        cache = self._proxy.cache
        if cache.routes is None:
            await cache.refresh()
        if cache.routes is None:
            raise NoNameServer(endpoints=cache.endpoints)
        if not cache.routes.warm and not cache.topics:
            raise WarmingUp()
        admission, namespace = admission_of(request), namespace_in(request)
        found = (
            topic
            for name, topic in cache.topics.items()
            if is_of(namespace, name) and page.pattern in own_name(name).lower() and admission.sees(TOPIC, name)
        )
        names, cursor = take_page(((_SORTS[page.sort](topic), topic.name) for topic in found), page)
        rows = [topic_row(name, cache.topics[name].route) for name in names]
        return respond(request, {"topics": rows, "next_cursor": cursor})

    async def delete_topic(self, request: Request, topic: str) -> Response:
        """Delete a topic with its messages; every group's place in it is forgotten. The name is free again."""
        self._proxy.kept.require_clients(check_topic(topic))
        confirm(request, "topic", topic, _LOSS)
        answers = await ask_all(self._proxy, DescribeTopic(topic=topic), absent=TopicNotFound)
        for name, found in answers:
            # By its id: a repeat must not delete a topic that was created under the name since.
            deletion = DeleteTopic(topic=topic, topic_id=found.topic_id)
            await self._proxy.group(name).link.ask(deletion, is_repeatable=True)
            self._proxy.cache.drop(topic, name, found.topic_id)
        return respond(request, {"topic": topic, "deleted": True})


def mode_of_put(request: Request) -> str:
    """Declare, or with `If-None-Match: *` create only; InvalidField for another value of that header."""
    condition = request.headers.get("if-none-match")
    if condition is not None and condition.strip() != "*":
        raise InvalidField(reason="The only value of If-None-Match is *", pointer="header/If-None-Match")
    return DECLARE if condition is None else CREATE


def names_settings(settings: Any) -> bool:
    """Whether a body names anything that a PUT would change of something that is there already."""
    return any(getattr(settings, name) is not UNSET for name in settings.__struct_fields__)


def confirm(request: Request, what: str, name: str, loss: str) -> None:
    """ConfirmationNeeded unless the query repeats the name of what is to be deleted."""
    query = read_parameters(request, ("confirm",))
    answer_kind(request.headers.get("accept", ""), BASIC)
    # As the client writes it: the name alone, whatever its namespace is.
    if query.get("confirm") != own_name(name):
        raise ConfirmationNeeded(what=what, name=name, loss=loss)
