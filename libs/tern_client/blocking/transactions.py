# Made from libs/tern_client/asynchronous/transactions.py by `make blocking`: change that file, not this one.
"""Calls about transactions that have begun, and about producer groups."""

from typing import Unpack

from tern_client.blocking.client import BlockingClient
from tern_client.calls.documents import get_request, read_document
from tern_client.calls.topics import Document, all_rows
from tern_client.transactions.course import end
from tern_client.transactions.models import (
    Decision,
    EndedTransaction,
    ProducerGroupOptions,
    Transaction,
    TransactionFilter,
    TransactionPage,
)
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


class BlockingTransactionCalls(BlockingClient):
    """What transaction producers and BlockingAdmin can do about transactions that have begun."""

    def commit(self, transaction_id: str) -> EndedTransaction:
        """The messages become visible, now and for good; TransactionResolved when it was rolled back before, TransactionExpired."""
        return self._drive(end(self._course, transaction_id, Decision.COMMIT, now_ms()))

    def rollback(self, transaction_id: str) -> EndedTransaction:
        """The messages never become visible; TransactionResolved when it was committed before, TransactionExpired."""
        return self._drive(end(self._course, transaction_id, Decision.ROLLBACK, now_ms()))

    def transaction(self, transaction_id: str) -> Transaction:
        """A transaction with its messages and checks; TransactionUnknown when it ended so long ago that nobody remembers."""
        return read_transaction(read_document(self._call(transaction_request(transaction_id))))

    def transactions(self, **wanted: Unpack[TransactionFilter]) -> TransactionPage:
        """A page of transactions that have not ended, of all broker groups."""
        return read_transactions(self._call(transactions_request(**wanted)))


class BlockingProducerGroupCalls(BlockingTransactionCalls):
    """What BlockingAdmin can do about producer groups and their transactions."""

    def resolve(self, transaction_id: str, decision: Decision, reason: str) -> EndedTransaction:
        """End an open or expired transaction by hand, with a *reason* (1 to 256 characters) that stays with it."""
        return read_ended(self._call(resolve_request(transaction_id, decision, reason)))

    def create_producer_group(self, producer_group: str, **options: Unpack[ProducerGroupOptions]) -> Document:
        """Create *producer_group*, or give it what is named; CheckUrlForbidden. A `check_secret` that this sets is told here only."""
        return read_document(self._call(producer_group_request(producer_group, options)))

    def producer_group(self, producer_group: str) -> Document:
        """Its settings, and how many of its transactions are open, expired, committed, rolled back; ProducerGroupNotFound."""
        return read_document(self._call(get_request(paths.producer_group_path(check_group(producer_group)))))

    def producer_groups(self) -> list[Document]:
        """All producer groups."""
        steps = all_rows(self._course, paths.PRODUCER_GROUPS_PATH, "producer_groups", {}, now_ms())
        return self._drive(steps)

    def delete_producer_group(self, producer_group: str, *, missing_ok: bool = False) -> None:
        """Delete it; ProducerGroupBusy while transactions of it have not ended, ProducerGroupNotFound unless that is *missing_ok*."""
        try:
            self._call(Request("DELETE", paths.producer_group_path(check_group(producer_group))))
        except ProducerGroupNotFound:
            if not missing_ok:
                raise
