"""Admin: topics, groups, offsets and the cluster, as ordinary FastAPI routes. Each asks the leaders and answers what they say."""

import asyncio
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.core.parameters import BASIC, answer_kind, invisible_of, is_packed, number_of, read_query_once
from tern_proxy.core.raft_facts import raft_facts
from tern_proxy.core.topic import Topic
from tern_proxy.exchange import encode
from tern_proxy.proxy import BrokerGroup, Proxy
from tern_proxy.routes.pull import queue_offsets
from tern_wire.codec import read_json, read_msgpack
from tern_wire.errors import InvalidField, MessageTooLarge, NoLeader, NoNameServer, OffsetMoved, WarmingUp
from tern_wire.limits import KIB, QUEUES_PER_TOPIC_MAX
from tern_wire.messages import GroupSettings, OffsetsCommit, TopicSettings
from tern_wire.names import check_group, check_topic
from tern_wire.paths import CLUSTER_PATH
from tern_wire.requests import RequestCode, body_parts
from tern_wire.route import TopicRoute

# 1,024 queues with offset and expected offset.
BODY_SIZE_MAX_BYTES = 128 * KIB
K = TypeVar("K")


def admin_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    admin = _Admin(proxy)
    router = APIRouter(default_response_class=Response)
    router.add_api_route("/v1/topics/{topic}", admin.put_topic, methods=["PUT"], tags=["topics"])
    router.add_api_route("/v1/topics/{topic}/offsets", admin.get_topic_offsets, methods=["GET"], tags=["topics"])
    router.add_api_route("/v1/groups/{group}", admin.put_group, methods=["PUT"], tags=["groups"])
    router.add_api_route("/v1/groups/{group}/offsets", admin.get_group_offsets, methods=["GET"], tags=["groups"])
    router.add_api_route("/v1/groups/{group}/offsets", admin.put_group_offsets, methods=["PUT"], tags=["groups"])
    router.add_api_route(CLUSTER_PATH, admin.get_cluster, methods=["GET"], tags=["cluster"])
    return router


class _Admin:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def put_topic(self, request: Request, topic: str) -> Response:
        """Declare a topic: it has at least `queues` queues in every broker group. 201 when it is new."""
        check_topic(topic)
        settings = await _read(request, TopicSettings)
        queues = number_of(settings.queues, "queues", 1, QUEUES_PER_TOPIC_MAX, "/")
        heads = await self._ask_all(RequestCode.CREATE_TOPIC, {"topic": topic, "queues": queues})
        for group, head in heads:
            route = TopicRoute(topic_id=int(head["topic_id"]), queues=int(head["queues"]))
            self._proxy.cache.insert(topic, group.link.broker_group, route)
        self._proxy.cache.refresh_soon()
        created = any(head["created"] for _, head in heads)
        counts = {group.link.broker_group: int(head["queues"]) for group, head in heads}
        document = {"topic": topic, "queues": sum(counts.values()), "broker_groups": counts, "created": created}
        return _respond(request, document, 201 if created else 200)

    async def put_group(self, request: Request, group: str) -> Response:
        """Declare a consumer group: its invisible time, and where it begins in queues that it has never read. 201 when new."""
        check_group(group)
        settings = await _read(request, GroupSettings)
        if settings.start not in {"earliest", "latest"}:
            raise InvalidField(reason="'start' is earliest or latest", pointer="/start")
        invisible_ms = invisible_of(settings.invisible)
        asked = {"group": group, "invisible_ms": invisible_ms, "start": settings.start}
        heads = await self._ask_all(RequestCode.CREATE_GROUP, asked)
        created = any(head["created"] for _, head in heads)
        document = {"group": group, "invisible_ms": invisible_ms, "start": settings.start, "created": created}
        return _respond(request, document, 201 if created else 200)

    async def get_topic_offsets(self, request: Request, topic: str) -> Response:
        """Oldest and next offset of every queue of the topic."""
        _refuse_query(request)
        found = await self._proxy.topic(topic)
        rows = await asyncio.gather(*(queue_offsets(self._proxy, found, name) for name in found.broker_groups))
        queues = [
            {"queue": f"{name}:{queue}", "min_offset": least, "max_offset": most}
            for name, offsets in zip(found.broker_groups, rows, strict=True)
            for queue, least, most in offsets
        ]
        return _respond(request, {"topic": topic, "queues": queues})

    async def get_group_offsets(self, request: Request, group: str) -> Response:
        """The group's committed offset in every queue of `?topic=` that it has begun."""
        check_group(group)
        query = read_query_once(request.url.query.encode(), ("topic",))
        if "topic" not in query:
            raise InvalidField(reason="The parameter 'topic' is needed", pointer="query/topic")
        topic = await self._proxy.topic(query["topic"])
        heads = await self._ask_each(topic, RequestCode.GROUP_OFFSETS, {"group": group, "topic": topic.name})
        offsets = {f"{name}:{queue}": offset for name, head in heads for queue, offset in head["offsets"].items()}
        return _respond(request, {"group": group, "topic": topic.name, "offsets": offsets})

    async def put_group_offsets(self, request: Request, group: str) -> Response:
        """Commit offsets; with `expected`, only if they are what is committed now (409 offset-moved).

        Queues of one broker group are committed together; several broker groups one after the other.
        """
        check_group(group)
        commit = await _read(request, OffsetsCommit)
        if not commit.offsets:
            raise InvalidField(reason="At least one offset is needed", pointer="/offsets")
        topic = await self._proxy.topic(commit.topic)
        parts: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        for which, field in enumerate((commit.offsets, commit.expected)):
            for name, offset in field.items():
                pointer = f"/{('offsets', 'expected')[which]}/"
                number_of(offset, name, 0, (1 << 63) - 1, pointer)
                queue = topic.pinned(name)
                parts.setdefault(queue.broker_group, ({}, {}))[which][str(queue.number)] = offset
        offsets: dict[str, int] = {}
        for name, (wanted, expected) in parts.items():
            asked = {"group": group, "topic": topic.name, "offsets": wanted, "expected": expected}
            try:
                head, _ = await self._proxy.group(name).link.request(
                    RequestCode.COMMIT_OFFSETS, body_parts(asked), is_repeatable=not expected
                )
            except OffsetMoved as error:
                raise OffsetMoved(**{**error.fields, "queue": f"{name}:{error.fields.get('queue')}"}) from error
            offsets |= {f"{name}:{queue}": int(offset) for queue, offset in head["offsets"].items()}
        return _respond(request, {"group": group, "topic": topic.name, "offsets": offsets})

    async def get_cluster(self, request: Request) -> Response:
        """Broker groups with their leaders and terms as this proxy sees them, this proxy, and how many topics there are.

        `raft` of each node is asked of the node itself, now: heartbeats at the name servers would be up to a second old, which is
        an election or ten thousand entries. A node that is not linked, or does not answer within 0.3 s, has none.
        """
        _refuse_query(request)
        proxy = self._proxy
        routes = proxy.cache.routes
        if routes is None:
            await proxy.cache.refresh()
            routes = proxy.cache.routes
        if routes is None:
            raise NoNameServer(endpoints=proxy.cache.endpoints)
        asked = list(proxy.groups.values())
        answers = await asyncio.gather(*(group.link.statuses() for group in asked))
        facts = {group.link.broker_group: raft_facts(answer) for group, answer in zip(asked, answers, strict=True)}
        groups = {
            name: {
                "leader": group.link.leader,
                "term": group.link.term,
                "group_size": routes.broker_groups[name].group_size if name in routes.broker_groups else 0,
                "nodes": {
                    node: {**place, "raft": facts.get(name, {}).get(node)} for node, place in group.link.nodes().items()
                },
            }
            for name, group in proxy.groups.items()
        }
        document = {
            "cluster": routes.cluster,
            "warm": routes.warm,
            "name_server_reachable": proxy.cache.is_reachable,
            "proxy": proxy.name,
            "topics": len(proxy.cache.topics),
            "broker_groups": groups,
        }
        return _respond(request, document)

    async def _ask_all(self, code: RequestCode, head: dict[str, Any]) -> list[tuple[BrokerGroup, dict[str, Any]]]:
        """Every broker group's answer. The requests declare, so they may be repeated; the first trouble is the answer."""
        proxy = self._proxy
        if proxy.cache.routes is None or not proxy.groups:
            await proxy.cache.refresh()
        if proxy.cache.routes is None:
            raise NoNameServer(endpoints=proxy.cache.endpoints)
        groups = list(proxy.groups.values())
        if not groups:
            raise NoLeader(broker_group="(none is registered)") if proxy.cache.routes.warm else WarmingUp()
        answers = await asyncio.gather(
            *(group.link.request(code, body_parts(head), is_repeatable=True) for group in groups),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [(group, answer[0]) for group, answer in zip(groups, answers, strict=True) if isinstance(answer, tuple)]

    async def _ask_each(
        self, topic: Topic, code: RequestCode, head: dict[str, Any]
    ) -> list[tuple[str, dict[str, Any]]]:
        names = list(topic.broker_groups)
        answers = await asyncio.gather(
            *(self._proxy.group(name).link.request(code, body_parts(head), is_repeatable=True) for name in names)
        )
        return [(name, answer) for name, (answer, _) in zip(names, answers, strict=True)]


async def _read(request: Request, kind: type[K]) -> K:
    """The request's body as *kind*; an empty one means all defaults. Whatever can be refused is refused before anything is done."""
    _refuse_query(request)
    answer_kind(request.headers.get("accept", ""), BASIC)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > BODY_SIZE_MAX_BYTES:
            raise MessageTooLarge(actual=size, limit=BODY_SIZE_MAX_BYTES)
        pieces.append(piece)
    body = b"".join(pieces)
    packed = is_packed(request.headers.get("content-type", ""))
    return read_msgpack(body, kind) if packed and body else read_json(body or b"{}", kind)


def _refuse_query(request: Request) -> None:
    read_query_once(request.url.query.encode(), ())


def _respond(request: Request, document: dict[str, Any], status: int = 200) -> Response:
    kind = answer_kind(request.headers.get("accept", ""), BASIC)
    return Response(encode(document, kind), status, media_type=kind)
