"""Calls about transactions that have begun, and about producer groups."""

from typing import Unpack

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.documents import get_request, read_document
from tern_client.calls.topics import Document, all_rows
from tern_client.transactions.models import (
    Decision,
    EndedTransaction,
    ProducerGroupOptions,
    Transaction,
    TransactionFilter,
    TransactionPage,
)
from tern_client.transactions.transaction_flow import end
from tern_client.transactions.transactions import (
    producer_group_request,
    read_ended,
    read_transaction,
    read_transactions,
    resolve_request,
    transaction_request,
    transactions_request,
)
from tern_client.transport.clock import now_ms
from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.errors import ProducerGroupNotFound
from tern_wire.names import check_group


class TransactionCalls(AsyncClient):
    """Calls of transaction producers and Admin about transactions that have begun."""

    __slots__ = ()

    async def commit(self, transaction_id: str) -> EndedTransaction:
        """Make the messages visible for good; TransactionResolved after a rollback,
        TransactionExpired.
        """
        return await self._drive(end(self._course, transaction_id, Decision.COMMIT, now_ms()))

    async def rollback(self, transaction_id: str) -> EndedTransaction:
        """Drop the messages, which never become visible; TransactionResolved after a commit,
        TransactionExpired.
        """
        return await self._drive(end(self._course, transaction_id, Decision.ROLLBACK, now_ms()))

    async def transaction(self, transaction_id: str) -> Transaction:
        """Return a transaction with its messages and checks; TransactionUnknown when it ended so
        long ago that it is forgotten.
        """
        return read_transaction(read_document(await self._call(transaction_request(transaction_id))))

    async def transactions(self, **wanted: Unpack[TransactionFilter]) -> TransactionPage:
        """Return a page of transactions of all broker groups that have not ended; see
        TransactionFilter.
        """
        return read_transactions(await self._call(transactions_request(**wanted)))


class ProducerGroupCalls(TransactionCalls):
    """Calls of Admin about producer groups and their transactions."""

    __slots__ = ()

    async def resolve(self, transaction_id: str, decision: Decision, reason: str) -> EndedTransaction:
        """End an open or expired transaction by hand. The *reason*, 1 to 256 characters, is stored
        with it.
        """
        return read_ended(await self._call(resolve_request(transaction_id, decision, reason)))

    async def create_producer_group(self, producer_group: str, **options: Unpack[ProducerGroupOptions]) -> Document:
        """Create *producer_group*, or change the named settings of an existing one;
        CheckUrlForbidden. Only this answer contains a `check_secret` that the call sets.
        """
        return read_document(await self._call(producer_group_request(producer_group, options)))

    async def producer_group(self, producer_group: str) -> Document:
        """Return its settings, and the numbers of its transactions that are open, expired,
        committed and rolled back; ProducerGroupNotFound.
        """
        return read_document(await self._call(get_request(paths.producer_group_path(check_group(producer_group)))))

    async def producer_groups(self) -> list[Document]:
        """Return all producer groups."""
        steps = all_rows(self._course, paths.PRODUCER_GROUPS_PATH, "producer_groups", {}, now_ms())
        return await self._drive(steps)

    async def delete_producer_group(self, producer_group: str, *, missing_ok: bool = False) -> None:
        """Delete *producer_group*; ProducerGroupBusy while it has transactions that have not ended,
        ProducerGroupNotFound unless *missing_ok*.
        """
        try:
            await self._call(Request("DELETE", paths.producer_group_path(check_group(producer_group))))
        except ProducerGroupNotFound:
            if not missing_ok:
                raise
