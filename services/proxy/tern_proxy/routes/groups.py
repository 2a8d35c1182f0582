"""Consumer groups: declared, altered, described, listed, deleted. Ordinary FastAPI routes; a group is in every broker group that is known."""

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in, whole_topic
from tern_proxy.core.listing import PARAMETERS, Page, read_page
from tern_proxy.core.topic_documents import group_change, group_description, group_document, start_of
from tern_proxy.exchange import owner_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.documents import ask_all, read_document, read_parameters, respond
from tern_proxy.routes.filtered_lists import take_visible
from tern_proxy.routes.topics import confirm, mode_of_put, names_settings
from tern_wire.errors import GroupNotFound, QuotaExceeded
from tern_wire.link.groups import ChangeGroup, DeleteGroup, DescribeGroup, GroupChanged, KnownGroup, ListGroups
from tern_wire.messages import GroupSettings
from tern_wire.names import check_group
from tern_wire.paths import GROUPS_PATH
from tern_wire.principals.principals import ALTER as ALTER_IT
from tern_wire.principals.principals import DESCRIBE, GROUP, TOPIC
from tern_wire.settings.group_settings import read_group_change
from tern_wire.settings.topic_settings import ALTER, CREATE, DECLARE

Answers = list[tuple[str, GroupChanged]]
_LOSS = "its offsets, leases and dead letters"


def groups_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    groups = _Groups(proxy)
    router = APIRouter(default_response_class=Response)
    for method, path, handler in (
        ("GET", GROUPS_PATH, groups.list_groups),
        ("GET", "/v1/groups/{group}", groups.get_group),
        ("PUT", "/v1/groups/{group}", groups.put_group),
        ("PATCH", "/v1/groups/{group}", groups.patch_group),
        ("DELETE", "/v1/groups/{group}", groups.delete_group),
    ):
        router.add_api_route(path, handler, methods=[method], tags=["groups"])
    return router


class _Groups:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def put_group(self, request: Request, group: str) -> Response:
        """Declare a consumer group: afterwards it is there, with the settings that were named. 201 when it is new.

        `start` is where it begins in a queue that it has never read: `earliest` (default), `latest`, or a time; it is fixed at the first
        receive. `fifo` can only be changed before that. With `If-None-Match: *` a group that exists is left alone (412).
        """
        return await self._change(request, group, mode_of_put(request))

    async def patch_group(self, request: Request, group: str) -> Response:
        """Change the settings that are named of a group that exists."""
        return await self._change(request, group, ALTER)

    async def _change(self, request: Request, group: str, mode: str) -> Response:
        check_group(group)
        settings = await read_document(request, GroupSettings)
        if mode == DECLARE and names_settings(settings):
            admission_of(request).require(ALTER_IT, GROUP, group)
        packed = read_group_change(group_change(group, mode, settings, start_of(settings))).packed()
        change = msgspec.convert(packed, ChangeGroup)
        if mode == ALTER:
            answers = await self._alter(change)
        else:
            answers = await self._declare(owner_of(request.scope), change)
        created = any(found.created for _, found in answers)
        return respond(request, {**group_document(answers[0][1]), "created": created}, 201 if created else 200)

    async def _alter(self, change: ChangeGroup) -> Answers:
        return await ask_all(self._proxy, msgspec.structs.replace(change, mode=ALTER), absent=GroupNotFound)

    async def _declare(self, owner: str, change: ChangeGroup) -> Answers:
        mode = change.mode
        try:
            with self._proxy.creations.one(owner) as creation:
                answers = await ask_all(self._proxy, change, is_repeatable=mode != CREATE)
                creation.is_new = any(found.created for _, found in answers)
        except QuotaExceeded as exceeded:
            if mode == CREATE:
                raise
            # Nothing new may be made, and what is there may be declared.
            try:
                return await self._alter(change)
            except GroupNotFound:
                raise exceeded from None
        return answers

    async def get_group(self, request: Request, group: str) -> Response:
        """Settings, and for each topic that it has begun: committed offsets, lag, leased and available messages.

        With `topic` only that one; without, topics with 20,000 queues together at most (`truncated`).
        """
        query = read_parameters(request, ("topic",))
        asked = DescribeGroup(
            group=check_group(group),
            topic=whole_topic(request, query["topic"]) if query.get("topic") else "",
        )
        admission = admission_of(request)
        if asked.topic:
            admission.require(DESCRIBE, TOPIC, asked.topic)
        answers = await ask_all(self._proxy, asked, absent=GroupNotFound)
        document = group_description(answers)
        document["topics"] = [row for row in document["topics"] if admission.sees(TOPIC, row["topic"])]
        return respond(request, document)

    async def list_groups(self, request: Request) -> Response:
        """Groups in order of their names, page by page: `next_cursor` is empty on the last one. `q` finds a part of the name, in any case."""
        query = read_parameters(request, PARAMETERS)
        page = read_page(query, {"name": str})

        async def ask(part: Page) -> tuple[dict[str, KnownGroup], bool]:
            asked = ListGroups(
                namespace=namespace_in(request),
                q=part.pattern,
                after=part.after[1] if part.after is not None else "",
                limit=part.limit,
                descending=part.descending,
            )
            answers = await ask_all(self._proxy, asked)
            rows = {found.group: found for _, told in reversed(answers) for found in told.groups}
            return rows, any(told.more for _, told in answers)

        found, cursor = await take_visible(page, ask, admission_of(request), GROUP)
        return respond(request, {"groups": [group_document(group) for _, group in found], "next_cursor": cursor})

    async def delete_group(self, request: Request, group: str) -> Response:
        """Delete a consumer group with its offsets, leases and dead letters. The name is free again."""
        confirm(request, "group", check_group(group), _LOSS)
        asked = DescribeGroup(group=group, topic="")
        for name, found in await ask_all(self._proxy, asked, absent=GroupNotFound):
            # By its id: a repeat must not delete a group that was created under the name since.
            deletion = DeleteGroup(group=group, group_id=found.group_id)
            await self._proxy.group(name).link.ask(deletion, is_repeatable=True)
        return respond(request, {"group": group, "deleted": True})
