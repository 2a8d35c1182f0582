"""Messages that wait for their delivery time: listed, recalled. Ordinary FastAPI routes."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.core.scheduled import GroupPage, after_in, put_together, read_cursor, write_cursor
from tern_proxy.core.sending.parameters import TIME_MAX_MS, number_of, time_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.documents import read_parameters, refuse_query, respond
from tern_wire.errors import InvalidField
from tern_wire.limits import SCHEDULED_LISTED_MAX
from tern_wire.link.scheduled import ListScheduled, Recall

LISTED_DEFAULT = 100
_FIELDS = ("from", "to", "limit", "cursor")


def scheduled_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    scheduled = _Scheduled(proxy)
    router = APIRouter(default_response_class=Response)
    path = "/v1/topics/{topic}/scheduled"
    router.add_api_route(path, scheduled.get_scheduled, methods=["GET"], tags=["delayed messages"])
    router.add_api_route(
        path + "/{recall_handle}",
        scheduled.delete_scheduled,
        methods=["DELETE"],
        status_code=204,
        tags=["delayed messages"],
    )
    return router


class _Scheduled:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def get_scheduled(self, request: Request, topic: str) -> Response:
        """Messages that wait for their delivery time, the next ones first, without bodies; `from` and `to` bound that time.

        `next_cursor` goes on from there; without it that was all.
        """
        query = read_parameters(request, _FIELDS)
        limit = number_of(query.get("limit", LISTED_DEFAULT), "limit", 1, SCHEDULED_LISTED_MAX)
        begin_ms = time_of(query["from"], "query/from") if "from" in query else 0
        end_ms = time_of(query["to"], "query/to") if "to" in query else TIME_MAX_MS
        if begin_ms > end_ms:
            raise InvalidField(reason="'from' is later than 'to'", pointer="query/from")
        place = read_cursor(query["cursor"]) if query.get("cursor") else None
        found = await self._proxy.topic(topic)
        pages = await asyncio.gather(
            *(
                self._ask(
                    name,
                    ListScheduled(
                        topic=topic, begin_ms=begin_ms, end_ms=end_ms, count=limit, after=after_in(name, place)
                    ),
                )
                for name in found.broker_groups
            )
        )
        messages, behind = put_together(pages, limit, self._proxy.recall_maker(topic))
        document: dict[str, Any] = {"topic": topic, "messages": messages}
        if behind is not None:
            document["next_cursor"] = write_cursor(behind)
        return respond(request, document)

    async def delete_scheduled(self, request: Request, topic: str, recall_handle: str) -> Response:
        """Recall a message that still waits: it will not be delivered. 409 already-delivered when it is too late.

        404 not-scheduled when it was recalled before: so a repeat after an answer that was lost says that the first one did it.
        """
        refuse_query(request)
        await self._proxy.topic(topic)
        recall = self._proxy.recall_maker(topic).read(recall_handle)
        asked = Recall(topic=topic, deliver_ms=recall.deliver_ms, timer_id=recall.timer_id)
        await self._proxy.group(recall.broker_group).link.ask(asked, is_repeatable=False)
        return Response(status_code=204)

    async def _ask(self, name: str, asked: ListScheduled) -> GroupPage:
        found, _ = await self._proxy.group(name).link.ask(asked, is_repeatable=True)
        return GroupPage(broker_group=name, rows=found.messages, next=found.next)
