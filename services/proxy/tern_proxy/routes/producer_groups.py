"""Producer groups: declared, described, listed, deleted. Ordinary FastAPI routes; a producer group is in every broker group that is known."""

import asyncio
import secrets

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in
from tern_proxy.core.listing import Page, read_page
from tern_proxy.core.transactions.producer_groups import (
    SECRET_SIZE_BYTES,
    Answers,
    newest,
    producer_change,
    producer_group_document,
    to_copy,
    to_decide,
    write_secret,
)
from tern_proxy.exchange import owner_of
from tern_proxy.proxy import Proxy
from tern_proxy.routes.asking import ask_all, broker_group_names
from tern_proxy.routes.documents import answer_form, read_document, read_parameters, refuse_query, respond
from tern_proxy.routes.lists import take_visible
from tern_proxy.routes.topics.topics import names_settings
from tern_wire.errors import ProducerGroupBusy, ProducerGroupNotFound
from tern_wire.link.producer_groups import (
    ChangeProducerGroup,
    DeleteProducerGroup,
    DescribeProducerGroups,
    KnownProducerGroup,
    ProducerGroupChanged,
)
from tern_wire.messages import ProducerGroupSettings
from tern_wire.names import check_group
from tern_wire.paths import PRODUCER_GROUPS_PATH, producer_group_path
from tern_wire.principals.principals import ALTER, PRODUCER_GROUP
from tern_wire.settings.producer_settings import ProducerChange


def producer_groups_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    groups = _ProducerGroups(proxy)
    router = APIRouter(default_response_class=Response)
    one = producer_group_path("{producer_group}")
    for method, path, handler, status in (
        ("GET", PRODUCER_GROUPS_PATH, groups.list_producer_groups, 200),
        ("GET", one, groups.get_producer_group, 200),
        ("PUT", one, groups.put_producer_group, 200),
        ("DELETE", one, groups.delete_producer_group, 204),
    ):
        router.add_api_route(path, handler, methods=[method], status_code=status, tags=["producer groups"])
    return router


class _ProducerGroups:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def put_producer_group(self, request: Request, producer_group: str) -> Response:
        """Declare a producer group: afterwards it is there, with the settings that were named. 201 when it is new.

        With a `check_url`, its open transactions are asked about there, signed by Standard Webhooks; without one its producers receive the
        checks. An answer counts only when it is signed, too, with the same secret, for the question's `MQ-Check-Nonce`: `MQ-Check-Signature` is
        `v1,` and the base64 of HMAC-SHA256 over `ternmq-check-answer-v1`, nonce, transaction id and body, with a line feed between each. `check_secret` is made here unless it is given, and is in the answer of the PUT that has set it, and nowhere else.
        """
        check_group(producer_group)
        settings = await read_document(request, ProducerGroupSettings)
        if names_settings(settings):
            admission_of(request).require(ALTER, PRODUCER_GROUP, producer_group)
        change = producer_change(producer_group, settings)
        if url := change.settings.get("check_url"):
            self._proxy.check_hosts.require_allowed(url)
        fresh = write_secret(secrets.token_bytes(SECRET_SIZE_BYTES))
        known = await self._describe(producer_group)
        with self._proxy.creations.one(owner_of(request.scope), is_free=bool(known)) as creation:
            answers = await self._alter(to_decide(change, known, fresh), newest(known))
            created = creation.is_new = any(found.created for _, found in answers)
        secret = answers[0][1].check_secret
        document = {**producer_group_document(producer_group, answers), "created": created}
        if secret and secret in {fresh, settings.check_secret}:
            document["check_secret"] = secret
        return respond(request, document, 201 if created else 200)

    async def _alter(
        self, change: ProducerChange, before: KnownProducerGroup | None
    ) -> list[tuple[str, ProducerGroupChanged]]:
        """The first broker group decides, the others follow. If one of them cannot, a repeat of the PUT brings it what was decided.

        *before*: what was decided last; the first one is told of it if it has not heard of it, such as one that is new.
        """
        name = change.producer_group
        first, *others = await broker_group_names(self._proxy)
        created = False
        if before is not None and before.revision:
            created = (await self._tell(first, to_copy(name, before))).created
        # Repeated, it is decided as it was, one revision later.
        decided = await self._tell(first, change)
        copied = await asyncio.gather(*(self._tell(other, to_copy(name, decided)) for other in others))
        decided = msgspec.structs.replace(decided, created=decided.created or created)
        return [(first, decided), *zip(others, copied, strict=True)]

    async def _tell(self, broker_group: str, change: ProducerChange) -> ProducerGroupChanged:
        link = self._proxy.group(broker_group).link
        found, _ = await link.ask(ChangeProducerGroup(**change.packed()), is_repeatable=True)
        return found

    async def get_producer_group(self, request: Request, producer_group: str) -> Response:
        """Settings, and how many of its transactions are open, expired, committed and rolled back, and how often it was asked."""
        refuse_query(request)
        answer_form(request)
        return respond(request, producer_group_document(producer_group, await self._found(producer_group)))

    async def list_producer_groups(self, request: Request) -> Response:
        """Producer groups in order of their names, page by page: `next_cursor` is empty on the last one."""
        page = read_page(read_parameters(request, ("limit", "cursor")), {"name": str})

        async def ask(part: Page) -> tuple[dict[str, list[tuple[str, KnownProducerGroup]]], bool]:
            after = part.after[1] if part.after is not None else ""
            asked = DescribeProducerGroups(
                producer_group="", after=after, limit=part.limit, namespace=namespace_in(request)
            )
            answers = await ask_all(self._proxy, asked)
            rows: dict[str, list[tuple[str, KnownProducerGroup]]] = {}
            for broker_group, told in answers:
                for group in told.groups:
                    rows.setdefault(group.producer_group, []).append((broker_group, group))
            return rows, any(told.more for _, told in answers)

        shown, cursor = await take_visible(page, ask, admission_of(request), PRODUCER_GROUP)
        found = [producer_group_document(name, groups) for name, groups in shown]
        return respond(request, {"producer_groups": found, "next_cursor": cursor})

    async def delete_producer_group(self, request: Request, producer_group: str) -> Response:
        """Delete a producer group, which no transaction may need any more (409 producer-group-busy). The name is free again."""
        refuse_query(request)
        found = await self._found(producer_group)
        told = [group.stats for _, group in found if group.stats is not None]
        count, expired = sum(stats.open for stats in told), sum(stats.expired for stats in told)
        if count or expired:
            # Before any broker group has deleted its part.
            raise ProducerGroupBusy(producer_group=producer_group, open=count, expired=expired)
        for name, _ in found:
            # A repeat finds it gone, which is what was asked for.
            link = self._proxy.group(name).link
            await link.ask(DeleteProducerGroup(producer_group=producer_group), is_repeatable=True)
        return Response(status_code=204)

    async def _found(self, producer_group: str) -> Answers:
        """What every broker group that has it says of it; ProducerGroupNotFound when none has."""
        check_group(producer_group)
        found = await self._describe(producer_group)
        if not found:
            raise ProducerGroupNotFound(producer_group=producer_group)
        return found

    async def _describe(self, producer_group: str) -> list[tuple[str, KnownProducerGroup]]:
        """As _found; empty when none has it."""
        names = await broker_group_names(self._proxy)
        asked = DescribeProducerGroups(producer_group=producer_group, after="", limit=1)
        links = [self._proxy.group(name).link for name in names]
        answers = await asyncio.gather(*(link.ask(asked, is_repeatable=True) for link in links), return_exceptions=True)
        found: list[tuple[str, KnownProducerGroup]] = []
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, BaseException):
                if not isinstance(answer, ProducerGroupNotFound):
                    raise answer
            else:
                found += [(name, group) for group in answer[0].groups]
        return found
