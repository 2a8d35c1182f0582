"""Transactions as people look after them: described, listed, resolved by hand. Ordinary FastAPI routes.

An id names its broker group, so one is asked; a list goes through all of them.
"""

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in, whole_group
from tern_proxy.core.transactions.documents import (
    LIST_PARAMETERS,
    Place,
    read_list,
    transaction_document,
    write_cursor,
)
from tern_proxy.core.transactions.ends import read_resolution
from tern_proxy.proxy import Proxy
from tern_proxy.routes.asking import broker_group_names
from tern_proxy.routes.documents import answer_form, read_document, read_parameters, refuse_query, respond
from tern_proxy.routes.transaction_owners import require_of_transaction
from tern_proxy.routes.transactions import describe_end, resolve
from tern_wire.errors import ProducerGroupNotFound
from tern_wire.link.transactions import DescribeTransaction
from tern_wire.messages import TransactionResolution
from tern_wire.paths import TRANSACTIONS_PATH, transaction_path
from tern_wire.principals.principals import ALTER, DESCRIBE, PRODUCER_GROUP
from tern_wire.transactions import BY_HAND


def transactions_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    transactions = _Transactions(proxy)
    router = APIRouter(default_response_class=Response)
    one = transaction_path("{transaction_id}")
    for method, path, handler in (
        ("GET", TRANSACTIONS_PATH, transactions.list_transactions),
        ("GET", one, transactions.get_transaction),
        ("POST", transaction_path("{transaction_id}", "resolve"), transactions.post_resolve),
    ):
        router.add_api_route(path, handler, methods=[method], tags=["transactions"])
    return router


class _Transactions:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def get_transaction(self, request: Request, transaction_id: str) -> Response:
        """One transaction: its state, its messages, and each time it was asked about, who asked and what the answer was.

        Of an ended one the outcome is remembered, among the 262,144 of its broker group that ended last.
        """
        refuse_query(request)
        answer_form(request)
        proxy = self._proxy
        ids = proxy.transaction_ids(namespace_in(request))
        transaction = ids.read(transaction_id)
        await require_of_transaction(proxy, admission_of(request), DESCRIBE, transaction)
        asked = DescribeTransaction(number=transaction.number, producer_group_id=transaction.producer_group_id)
        found, _ = await proxy.group(transaction.broker_group).link.ask(asked, is_repeatable=True)
        return respond(request, transaction_document(transaction.broker_group, found.transaction, ids))

    async def list_transactions(self, request: Request) -> Response:
        """Transactions that have not ended, the oldest first in each broker group: open ones, and expired ones, which nobody has answered for.

        `older_than` is an age, such as `5m`. Page by page: `next_cursor` is empty on the last one.
        """
        query = read_parameters(request, LIST_PARAMETERS)
        answer_form(request)
        if query.get("producer_group"):
            query["producer_group"] = whole_group(request, query["producer_group"])
        asked, behind = read_list(query, namespace_in(request))
        ids = self._proxy.transaction_ids(asked.namespace)
        admission = admission_of(request)
        if asked.producer_group:
            admission.require(DESCRIBE, PRODUCER_GROUP, asked.producer_group)
        rows: list[dict[str, Any]] = []
        last: Place | None = None
        unknown: ProducerGroupNotFound | None = None
        is_known = behind is not None
        names = [name for name in await broker_group_names(self._proxy) if behind is None or name >= behind[0]]
        for name in names:
            if len(rows) == asked.limit:
                # Perhaps the next broker group has nothing: the page behind the cursor says so.
                return self._page(request, rows, last)
            after = behind[1] if behind is not None and name == behind[0] else 0
            part = msgspec.structs.replace(asked, after=after, limit=asked.limit - len(rows))
            try:
                found, _ = await self._proxy.group(name).link.ask(part, is_repeatable=True)
            except ProducerGroupNotFound as error:
                unknown = error
                continue
            is_known = True
            rows += [
                transaction_document(name, one, ids)
                for one in found.transactions
                if admission.sees(PRODUCER_GROUP, one.producer_group)
            ]
            if found.transactions:
                last = (name, found.transactions[-1].number)
            if found.more:
                return self._page(request, rows, last)
        if unknown is not None and not is_known:
            raise unknown
        return self._page(request, rows, None)

    def _page(self, request: Request, rows: list[dict[str, Any]], last: Place | None) -> Response:
        return respond(request, {"transactions": rows, "next_cursor": write_cursor(last) if last is not None else ""})

    async def post_resolve(self, request: Request, transaction_id: str) -> Response:
        """End a transaction by hand, an expired one too: `outcome` commit or rollback, and the `reason`, which is kept with it."""
        outcome, reason = read_resolution(await read_document(request, TransactionResolution))
        transaction = self._proxy.transaction_ids(namespace_in(request)).read(transaction_id)
        await require_of_transaction(self._proxy, admission_of(request), ALTER, transaction)
        ended = await resolve(self._proxy, transaction, outcome, reason, BY_HAND)
        return respond(request, await describe_end(self._proxy, transaction_id, transaction, ended))
