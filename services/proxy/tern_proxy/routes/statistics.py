"""Numbers of topics and groups: what is there, how fast it moves, how far groups are behind. Ordinary FastAPI routes.

Each broker group says its own; here they are put together. Rates are those of the last minute. What went out is counted by a leader since it
leads; everything else outlives it.
"""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import whole_topic
from tern_proxy.proxy import Proxy
from tern_proxy.routes.asking import ask_all, ask_each
from tern_proxy.routes.documents import answer_form, read_parameters, refuse_query, respond
from tern_wire.errors import GroupNotFound
from tern_wire.link.statistics import FlowNumbers, GetGroupStatistics, GetTopicStatistics, TopicLag
from tern_wire.names import check_group
from tern_wire.principals.principals import DESCRIBE, GROUP, TOPIC


def statistics_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    statistics = _Statistics(proxy)
    router = APIRouter(default_response_class=Response)
    router.add_api_route("/v1/topics/{topic}/stats", statistics.get_topic_stats, methods=["GET"], tags=["topics"])
    router.add_api_route("/v1/groups/{group}/lag", statistics.get_group_lag, methods=["GET"], tags=["groups"])
    return router


class _Statistics:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def get_topic_stats(self, request: Request, topic: str) -> Response:
        """How many messages every queue of the topic holds, when the last one came, and what goes in and out."""
        refuse_query(request)
        answer_form(request)
        found = await self._proxy.topic(topic)
        admission = admission_of(request)
        answers = await ask_each(self._proxy, found, GetTopicStatistics(topic=topic))
        queues: list[dict[str, Any]] = [
            {
                "queue": f"{name}:{row.queue}",
                "min_offset": row.min_offset,
                "max_offset": row.max_offset,
                "messages": row.max_offset - row.min_offset,
                "last_visible_at": row.last_visible_ms or None,
                "in_messages_per_s": row.messages_per_s,
            }
            for name, told, _ in answers
            for row in told.queues
        ]
        document = {
            "topic": topic,
            "messages": sum(queue["messages"] for queue in queues),
            "scheduled": sum(told.scheduled for _, told, _ in answers),
            "in": _flow(told.came_in for _, told, _ in answers),
            "out": _flow(told.went_out for _, told, _ in answers),
            "groups": sorted({name for _, told, _ in answers for name in told.groups if admission.sees(GROUP, name)}),
            "queues": queues,
        }
        return respond(request, document)

    async def get_group_lag(self, request: Request, group: str) -> Response:
        """How far the group is behind in each queue of `?topic=`, or of every topic that it reads: in messages and in time.

        `lag` counts what the group has not settled: never received, leased, resting, dying. `lag_ms`: since when the first of these was
        visible. `committed` is null where the group has not begun.
        """
        check_group(group)
        query = read_parameters(request, ("topic",))
        answer_form(request)
        admission = admission_of(request)
        if "topic" in query:
            name = whole_topic(request, query["topic"])
            admission.require(DESCRIBE, TOPIC, name)
            topic = await self._proxy.topic(name)
            asked = GetGroupStatistics(group=group, topic=topic.name)
            answers = [(name, told) for name, told, _ in await ask_each(self._proxy, topic, asked)]
        else:
            answers = await ask_all(self._proxy, GetGroupStatistics(group=group), absent=GroupNotFound)
        topics: dict[str, list[tuple[str, TopicLag]]] = {}
        for name, told in answers:
            for part in (part for part in told.topics if admission.sees(TOPIC, part.topic)):
                topics.setdefault(part.topic, []).append((name, part))
        rows = [_topic_lag(name, parts) for name, parts in sorted(topics.items())]
        document = {
            "group": group,
            "lag": sum(row["lag"] for row in rows),
            "lag_ms": max((row["lag_ms"] for row in rows), default=0),
            "dead_letters": sum(told.dead_letters for _, told in answers),
            "topics": rows,
        }
        return respond(request, document)


def _topic_lag(topic: str, parts: list[tuple[str, TopicLag]]) -> dict[str, Any]:
    queues: list[dict[str, Any]] = [
        {
            "queue": f"{name}:{row.queue}",
            "committed": row.committed if row.committed >= 0 else None,
            "max_offset": row.max_offset,
            "lag": row.lag,
            "lag_ms": row.lag_ms,
            "leased": row.leased,
            "resting": row.resting,
            "dying": row.dying,
        }
        for name, part in parts
        for row in part.queues
    ]
    return {
        "topic": topic,
        **{field: sum(queue[field] for queue in queues) for field in ("lag", "leased", "resting", "dying")},
        "lag_ms": max((queue["lag_ms"] for queue in queues), default=0),
        "out": _flow(part.went_out for _, part in parts),
        "again": _flow(part.went_again for _, part in parts),
        "queues": queues,
    }


def _flow(flows: Iterable[FlowNumbers]) -> dict[str, Any]:
    """Several flows as one."""
    known = list(flows)
    return {
        "messages": sum(flow.messages for flow in known),
        "bytes": sum(flow.size_bytes for flow in known),
        "messages_per_s": round(sum(flow.messages_per_s for flow in known), 2),
        "bytes_per_s": round(sum(flow.bytes_per_s for flow in known), 2),
    }
