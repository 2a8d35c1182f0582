"""Offsets: what queues hold, where groups are, and groups moved. Ordinary FastAPI routes."""

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import whole_topic
from tern_proxy.core.reading.seeking import plan_seek
from tern_proxy.core.sending.parameters import number_of, time_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.asking import ask_each
from tern_proxy.routes.documents import read_document, read_parameters, respond
from tern_wire.errors import InvalidField, OffsetMoved, QueueLockLost
from tern_wire.link.consumer_offsets import CommitOffsets, ListGroupOffsets, SeekGroup
from tern_wire.link.pulls import ListOffsets
from tern_wire.messages import OffsetsCommit, SeekRequest
from tern_wire.names import check_group
from tern_wire.principals.principals import DESCRIBE, SUB, TOPIC

OFFSET_MAX = (1 << 63) - 1


def offsets_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    offsets = _Offsets(proxy)
    router = APIRouter(default_response_class=Response)
    router.add_api_route("/v1/topics/{topic}/offsets", offsets.get_topic_offsets, methods=["GET"], tags=["topics"])
    router.add_api_route("/v1/groups/{group}/offsets", offsets.get_group_offsets, methods=["GET"], tags=["groups"])
    router.add_api_route("/v1/groups/{group}/offsets", offsets.put_group_offsets, methods=["PUT"], tags=["groups"])
    router.add_api_route("/v1/groups/{group}/seek", offsets.post_seek, methods=["POST"], tags=["groups"])
    return router


class _Offsets:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def get_topic_offsets(self, request: Request, topic: str) -> Response:
        """Oldest and next offset of every queue of the topic; with `time`, also the first offset visible from then on.

        `time` is in ms since 1970 (UTC) or as `2026-01-31T12:00:00Z`. `offset_at` is max_offset where nothing is that young.
        """
        query = read_parameters(request, ("time",))
        time_ms = time_of(query["time"], "query/time") if "time" in query else -1
        found = await self._proxy.topic(topic)
        answers = await ask_each(self._proxy, found, ListOffsets(topic=topic, time_ms=time_ms))
        names = ("min_offset", "max_offset", "offset_at")
        queues = [
            {"queue": f"{name}:{queue}", **dict(zip(names, offsets, strict=False))}
            for name, told, _ in answers
            for queue, *offsets in told.queues
        ]
        return respond(request, {"topic": topic, "queues": queues})

    async def get_group_offsets(self, request: Request, group: str) -> Response:
        """The group's committed offset in every queue of `?topic=` that it has begun."""
        check_group(group)
        query = read_parameters(request, ("topic",), needed=("topic",))
        name = whole_topic(request, query["topic"])
        admission_of(request).require(DESCRIBE, TOPIC, name)
        topic = await self._proxy.topic(name)
        answers = await ask_each(self._proxy, topic, ListGroupOffsets(group=group, topic=topic.name))
        offsets = {f"{name}:{queue}": offset for name, told, _ in answers for queue, offset in told.offsets.items()}
        return respond(request, {"group": group, "topic": topic.name, "offsets": offsets})

    async def put_group_offsets(self, request: Request, group: str) -> Response:
        """Commit offsets; with `expected`, only if they are what is committed now (409 offset-moved); with `epochs`, only if nobody else has
        locked those queues since (409 queue-lock-lost).

        Queues of one broker group are committed together; several broker groups one after the other.
        """
        check_group(group)
        commit = await read_document(request, OffsetsCommit)
        if not commit.offsets:
            raise InvalidField(reason="At least one offset is needed", pointer="/offsets")
        name = whole_topic(request, commit.topic)
        admission_of(request).require(SUB, TOPIC, name)
        topic = await self._proxy.topic(name)
        fields = {"offsets": commit.offsets, "expected": commit.expected, "epochs": commit.epochs}
        parts: dict[str, dict[str, dict[str, int]]] = {}
        for field, numbers in fields.items():
            for name, number in numbers.items():
                number_of(number, name, 0, OFFSET_MAX, f"/{field}/")
                queue = topic.pinned(name)
                parts.setdefault(queue.broker_group, {field: {} for field in fields})[field][str(queue.number)] = number
        offsets: dict[str, int] = {}
        for name, part in parts.items():
            commits = CommitOffsets(group=group, topic=topic.name, **part)
            try:
                told, _ = await self._proxy.group(name).link.ask(commits, is_repeatable=not commits.expected)
            except (OffsetMoved, QueueLockLost) as error:
                raise type(error)(**{**error.fields, "queue": f"{name}:{error.fields.get('queue')}"}) from error
            offsets |= {f"{name}:{queue}": offset for queue, offset in told.offsets.items()}
        return respond(request, {"group": group, "topic": topic.name, "offsets": offsets})

    async def post_seek(self, request: Request, group: str) -> Response:
        """Move the group: to earliest, latest, a time, by a shift, or to explicit offsets; all queues of a broker group at once, or none.

        `before` is null where the group has not begun; it begins there now. Leases there are over, and their handles are answered
        receipt-expired. With `dry_run` nothing moves. Several broker groups move one after the other; on an error, ask again.
        """
        check_group(group)
        seek = await read_document(request, SeekRequest)
        name = whole_topic(request, seek.topic)
        admission_of(request).require(DESCRIBE, TOPIC, name)
        topic = await self._proxy.topic(name)
        plan = plan_seek(seek, topic, time_of)
        rows: list[dict[str, Any]] = []
        for name, part in plan.parts.items():
            asked = SeekGroup(group=group, topic=topic.name, to=part.to, dry_run=seek.dry_run, queues=part.queues)
            is_repeatable = plan.is_repeatable or seek.dry_run
            try:
                told, _ = await self._proxy.group(name).link.ask(asked, is_repeatable=is_repeatable)
            except InvalidField as error:
                raise InvalidField(**{**error.fields, "pointer": plan.pointer(name, error)}) from error
            rows += [
                {
                    "queue": f"{name}:{move.queue}",
                    "before": move.before if move.before >= 0 else None,
                    "after": move.after,
                }
                for move in told.queues
            ]
        document = {"group": group, "topic": topic.name, "dry_run": seek.dry_run, "queues": rows}
        return respond(request, document)
