"""Dead letters of a group: browsed, purged, redriven by a task. Ordinary FastAPI routes.

A redrive task lives in the replicated state of each broker group that has a part in it, under one name that this proxy makes up (or
makes of the Idempotency-Key), and its leader carries it out. So nothing is lost with a proxy, and any proxy answers for any task.
"""

import asyncio
import re
import secrets
from hashlib import blake2b
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.access.authorization import OPEN, admission_of
from tern_proxy.core.access.namespaces import namespace_in, whole_topic
from tern_proxy.core.dead_letters import read_letters, read_place, redrive_selections, selection_of, task_document
from tern_proxy.core.reading.delivery import put_size
from tern_proxy.core.sending.parameters import number_of, time_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.asking import ask_all, broker_group_names
from tern_proxy.routes.documents import answer_form, read_document, read_parameters, refuse_query, respond
from tern_proxy.routes.receive import put_body_of
from tern_wire.errors import (
    ConfirmationNeeded,
    GroupNotFound,
    InvalidField,
    TaskNotFound,
)
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX, RECEIVE_SIZE_DEFAULT_BYTES
from tern_wire.link.dead_letters import DeadLetters, ListDeadLetters, PurgeDeadLetters
from tern_wire.link.redrive import CancelRedrive, GetRedrive, RedriveSelection, RedriveTask, StartRedrive
from tern_wire.messages import RedriveRequest
from tern_wire.names import check_group, is_of, own_name
from tern_wire.paths import HEADER_IDEMPOTENCY_KEY, dead_letters_path, redrive_path, task_path
from tern_wire.principals.principals import DESCRIBE, GROUP, SEEK, SUB, TOPIC

LIMIT_DEFAULT = 32
# Name and answer of each broker group that has a part in a task.
Parts = list[tuple[str, RedriveTask]]
_TASK = re.compile(r"[0-9a-f]{24}")
# Requests for one page: a broker looks at a bounded number of dead letters for each.
_ASKED_MAX = 8


def dead_letters_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    letters = _DeadLetters(proxy)
    router = APIRouter(default_response_class=Response)
    path, redrive, task = dead_letters_path("{group}"), redrive_path("{group}"), task_path("{task}")
    router.add_api_route(path, letters.get_letters, methods=["GET"], tags=["dead letters"])
    router.add_api_route(path, letters.delete_letters, methods=["DELETE"], tags=["dead letters"])
    router.add_api_route(redrive, letters.post_redrive, methods=["POST"], tags=["dead letters"])
    router.add_api_route(task, letters.get_task, methods=["GET"], tags=["dead letters"])
    router.add_api_route(task, letters.delete_task, methods=["DELETE"], tags=["dead letters"])
    return router


class _DeadLetters:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def get_letters(self, request: Request, group: str) -> Response:
        """The group's dead letters, the oldest first within a broker group: each message with where it came from and why it died.

        Nothing is consumed. A page may hold fewer than `limit`, even none, and still have a `next_cursor` to go on with.
        """
        check_group(group)
        names = ("topic", "tag", "reason", "from", "to", "limit", "cursor", "encoding")
        query = read_parameters(request, names)
        admission = admission_of(request)
        put_body = put_body_of(query, answer_form(request))
        if query.get("topic"):
            query["topic"] = whole_topic(request, query["topic"])
        if not admission.may(SUB, GROUP, group):
            put_body = put_size
        limit = number_of(query.get("limit", LIMIT_DEFAULT), "limit", 1, DEAD_LETTERS_PAGE_MAX)
        selection = selection_of(query, time_of)
        broker_groups = await broker_group_names(self._proxy)
        first, offset = read_place(query["cursor"], "query/cursor") if "cursor" in query else (broker_groups[0], 0)
        left = [name for name in broker_groups if name >= first]
        if not left or left[0] != first:
            offset = 0  # that broker group is gone: on with the next
        messages: list[dict[str, Any]] = []
        unknown = 0
        for _ in range(_ASKED_MAX + len(left)):
            if not left or len(messages) >= limit:
                break
            asked = ListDeadLetters(
                group=group,
                offset=offset,
                count=limit - len(messages),
                max_bytes=RECEIVE_SIZE_DEFAULT_BYTES,
                topic=selection.topic,
                tag=selection.tag,
                reason=selection.reason,
                from_ms=selection.from_ms,
                to_ms=selection.to_ms,
            )
            try:
                found, raw = await self._proxy.group(left[0]).link.ask(asked, is_repeatable=True)
            except GroupNotFound:
                unknown += 1
                if unknown == len(broker_groups):
                    raise
                found, raw = DeadLetters(letters=[], next=-1, count=0), memoryview(b"")
            messages += read_letters(found.letters, bytes(raw), left[0], put_body)
            offset = max(0, found.next)
            if found.next < 0:
                left.pop(0)
        cursor = f"{left[0]}:{offset}" if left else None
        document = {"group": group, "messages": messages}
        return respond(request, document if cursor is None else {**document, "next_cursor": cursor})

    async def delete_letters(self, request: Request, group: str) -> Response:
        """Drop all dead letters of the group, for good. `confirm` must repeat the group's name."""
        check_group(group)
        query = read_parameters(request, ("confirm",))
        answer_form(request)
        if query.get("confirm") != own_name(group):
            raise ConfirmationNeeded(
                what="the dead letters of group", name=group, loss="the only place where they can be found"
            )
        parts = await ask_all(self._proxy, PurgeDeadLetters(group=group), absent=GroupNotFound)
        return respond(request, {"group": group, "purged": sum(part.purged for _, part in parts)})

    async def post_redrive(self, request: Request, group: str) -> Response:
        """Deliver dead letters to this group again, from their own queues, as if they had never been received. 202 and a task.

        Each dead letter is redriven once, whatever is repeated. The same Idempotency-Key is answered with the same task.
        """
        check_group(group)
        asked = await read_document(request, RedriveRequest)
        if asked.topic:
            asked.topic = whole_topic(request, asked.topic)
            admission_of(request).require(DESCRIBE, TOPIC, asked.topic)
        key = request.headers.get(HEADER_IDEMPOTENCY_KEY, "")
        if len(key) > 255:
            raise InvalidField(reason="A key has at most 255 characters", pointer=f"header/{HEADER_IDEMPOTENCY_KEY}")
        seed = f"{group}\x00{key}".encode("utf-8", "surrogateescape")
        task = blake2b(seed, digest_size=12).hexdigest() if key else secrets.token_hex(12)
        selections = redrive_selections(asked, await broker_group_names(self._proxy), time_of)
        answers = await asyncio.gather(
            *(
                self._proxy.group(name).link.ask(
                    StartRedrive(
                        task=task,
                        group=group,
                        selection=RedriveSelection(**selection.pack()),
                        rate=rate,
                        dry_run=asked.dry_run,
                    ),
                    is_repeatable=True,
                )
                for name, (selection, rate) in selections.items()
            ),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException) and not (isinstance(answer, GroupNotFound) and len(answers) > 1):
                raise answer
        parts = [
            (name, answer[0]) for name, answer in zip(selections, answers, strict=True) if isinstance(answer, tuple)
        ]
        if not parts:
            raise GroupNotFound(group=group)
        reply = respond(request, task_document(parts), 202)
        reply.headers["Location"] = task_path(task)
        return reply

    async def get_task(self, request: Request, task: str) -> Response:
        """How a task is going, in all broker groups together."""
        parts = await self._get(request, task)
        self._require(request, task, parts, DESCRIBE)
        return respond(request, task_document(parts))

    async def delete_task(self, request: Request, task: str) -> Response:
        """Cancel a task: what was redriven stays so. One that has ended stays as it is."""
        parts = await self._get(request, task)
        if admission_of(request) is not OPEN:
            self._require(request, task, parts, SEEK)
        parts = await ask_all(self._proxy, CancelRedrive(task=task), absent=TaskNotFound)
        return respond(request, task_document(parts))

    def _require(self, request: Request, task: str, parts: Parts, action: str) -> None:
        """Forbidden, or TaskNotFound as of one that is not there, unless *action* may be done to the group of the task."""
        try:
            admission_of(request).require(action, GROUP, parts[0][1].group)
        except GroupNotFound as error:
            raise TaskNotFound(task=task) from error

    async def _get(self, request: Request, task: str) -> Parts:
        refuse_query(request)
        answer_form(request)
        if _TASK.fullmatch(task) is None:
            raise TaskNotFound(task=task[:80])
        parts = await ask_all(self._proxy, GetRedrive(task=task), absent=TaskNotFound)
        if not is_of(namespace_in(request), parts[0][1].group):
            # Another namespace's: it is not even looked at any more.
            raise TaskNotFound(task=task)
        return parts
