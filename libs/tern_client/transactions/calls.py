"""Ending and looking at transactions, and producer groups: the calls of both shells. Requests are in transactions.py.

What is left out (None) of a producer group's settings stays as it is, or gets its default in a new one.
"""

from typing import TypedDict, Unpack

from tern_client.calls.documents import get_request, read_document
from tern_client.calls.topics import Document, all_rows
from tern_client.client import AsyncClient, BlockingClient
from tern_client.transactions.course import end
from tern_client.transactions.models import Decision, EndedTransaction, Span, Transaction, TransactionPage
from tern_client.transactions.transactions import (
    producer_group_request,
    read_ended,
    read_transaction,
    read_transactions,
    resolve_request,
    transaction_request,
    transactions_request,
)
from tern_client.transport.exchange import Request
from tern_client.transport.transport import now_ms
from tern_wire import paths
from tern_wire.errors import ProducerGroupNotFound
from tern_wire.names import check_group


class ProducerGroupOptions(TypedDict, total=False):
    """Settings of a producer group. `check_url`: asked there by callback, "" by pull; `check_secret` signs callbacks, made by the proxy
    when there is none. `timeout`: how long a callback may take (3s); `max_checks` (15); `check_after`: first check (6s); `check_interval` (30s)."""

    check_url: str | None
    check_secret: str | None
    timeout: Span | None
    max_checks: int | None
    check_after: Span | None
    check_interval: Span | None
    include_body: bool | None


class TransactionFilter(TypedDict, total=False):
    """Which transactions to list: `state` open or expired, both by default; `older_than`: begun at least so long ago."""

    producer_group: str
    state: str
    older_than: Span | None
    limit: int
    cursor: str


# Transactions -----------------------------------------------------------------------------------------------------
class TransactionCalls(AsyncClient):
    """What the async TransactionProducer and Admin can do about transactions that have begun."""

    __slots__ = ()

    async def commit(self, transaction_id: str) -> EndedTransaction:
        """The messages become visible, now and for good; TransactionResolved when it was rolled back before, TransactionExpired."""
        return await self._drive(end(self._course, transaction_id, Decision.COMMIT, now_ms()))

    async def rollback(self, transaction_id: str) -> EndedTransaction:
        """The messages never become visible; TransactionResolved when it was committed before, TransactionExpired."""
        return await self._drive(end(self._course, transaction_id, Decision.ROLLBACK, now_ms()))

    async def transaction(self, transaction_id: str) -> Transaction:
        """A transaction with its messages and checks; TransactionUnknown when it ended so long ago that nobody remembers."""
        return read_transaction(read_document(await self._call(transaction_request(transaction_id))))

    async def transactions(self, **wanted: Unpack[TransactionFilter]) -> TransactionPage:
        """A page of transactions that have not ended, of all broker groups."""
        return read_transactions(await self._call(transactions_request(**wanted)))


class BlockingTransactionCalls(BlockingClient):
    """As TransactionCalls, for threads."""

    def commit(self, transaction_id: str) -> EndedTransaction:
        """As TransactionCalls.commit."""
        return self._drive(end(self._course, transaction_id, Decision.COMMIT, now_ms()))

    def rollback(self, transaction_id: str) -> EndedTransaction:
        """As TransactionCalls.rollback."""
        return self._drive(end(self._course, transaction_id, Decision.ROLLBACK, now_ms()))

    def transaction(self, transaction_id: str) -> Transaction:
        """As TransactionCalls.transaction."""
        return read_transaction(read_document(self._call(transaction_request(transaction_id))))

    def transactions(self, **wanted: Unpack[TransactionFilter]) -> TransactionPage:
        """As TransactionCalls.transactions."""
        return read_transactions(self._call(transactions_request(**wanted)))


# Administration ---------------------------------------------------------------------------------------------------
class ProducerGroupCalls(TransactionCalls):
    """What the async Admin can do about producer groups and their transactions."""

    __slots__ = ()

    async def resolve(self, transaction_id: str, decision: Decision, reason: str) -> EndedTransaction:
        """End an open or expired transaction by hand, with a *reason* (1 to 256 characters) that stays with it."""
        return read_ended(await self._call(resolve_request(transaction_id, decision, reason)))

    async def create_producer_group(self, producer_group: str, **options: Unpack[ProducerGroupOptions]) -> Document:
        """Create *producer_group*, or give it what is named; CheckUrlForbidden. A `check_secret` that this sets is told here only."""
        return read_document(await self._call(producer_group_request(producer_group, options)))

    async def producer_group(self, producer_group: str) -> Document:
        """Its settings, and how many of its transactions are open, expired, committed, rolled back; ProducerGroupNotFound."""
        return read_document(await self._call(get_request(paths.producer_group_path(check_group(producer_group)))))

    async def producer_groups(self) -> list[Document]:
        """All producer groups."""
        steps = all_rows(self._course, paths.PRODUCER_GROUPS_PATH, "producer_groups", {}, now_ms())
        return await self._drive(steps)

    async def delete_producer_group(self, producer_group: str, *, missing_ok: bool = False) -> None:
        """Delete it; ProducerGroupBusy while transactions of it have not ended, ProducerGroupNotFound unless that is *missing_ok*."""
        try:
            await self._call(Request("DELETE", paths.producer_group_path(check_group(producer_group))))
        except ProducerGroupNotFound:
            if not missing_ok:
                raise


class BlockingProducerGroupCalls(BlockingTransactionCalls):
    """As ProducerGroupCalls, for threads."""

    def resolve(self, transaction_id: str, decision: Decision, reason: str) -> EndedTransaction:
        """As ProducerGroupCalls.resolve."""
        return read_ended(self._call(resolve_request(transaction_id, decision, reason)))

    def create_producer_group(self, producer_group: str, **options: Unpack[ProducerGroupOptions]) -> Document:
        """As ProducerGroupCalls.create_producer_group."""
        return read_document(self._call(producer_group_request(producer_group, options)))

    def producer_group(self, producer_group: str) -> Document:
        """As ProducerGroupCalls.producer_group."""
        return read_document(self._call(get_request(paths.producer_group_path(check_group(producer_group)))))

    def producer_groups(self) -> list[Document]:
        """As ProducerGroupCalls.producer_groups."""
        steps = all_rows(self._course, paths.PRODUCER_GROUPS_PATH, "producer_groups", {}, now_ms())
        return self._drive(steps)

    def delete_producer_group(self, producer_group: str, *, missing_ok: bool = False) -> None:
        """As ProducerGroupCalls.delete_producer_group."""
        try:
            self._call(Request("DELETE", paths.producer_group_path(check_group(producer_group))))
        except ProducerGroupNotFound:
            if not missing_ok:
                raise
