"""Handlers for the administration of transactions: described, listed, resolved by an operator.

An id names its broker group, so one broker group is asked; a list covers all of them.
"""

import msgspec

from tern_proxy.core.documents.transactions import EndedTransaction, Transaction, TransactionPage, TransactionResolution
from tern_proxy.core.transactions.documents import Place, read_list, transaction_document, write_cursor
from tern_proxy.core.transactions.ends import read_resolution
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import broker_group_names
from tern_proxy.routes.transactions.ends import describe_end, resolve
from tern_proxy.routes.transactions.owners import require_of_transaction
from tern_wire.errors import ProducerGroupNotFound
from tern_wire.link.transactions import DescribeTransaction
from tern_wire.principals.principals import ALTER, DESCRIBE, PRODUCER_GROUP
from tern_wire.transactions import BY_HAND


async def get_transaction(call: Call, transaction_id: str) -> Transaction:
    """Return one transaction: its state, its messages, and each check with its checker and its
    answer.

    Ended transactions are remembered up to the last 262,144 of their broker group.
    """
    ids = call.proxy.transaction_ids(call.namespace)
    transaction = ids.read(transaction_id)
    await require_of_transaction(call.proxy, call.admission, DESCRIBE, transaction)
    asked = DescribeTransaction(number=transaction.number, producer_group_id=transaction.producer_group_id)
    found, _ = await call.proxy.group(transaction.broker_group).link.ask(asked, is_repeatable=True)
    return transaction_document(transaction.broker_group, found.transaction, ids)


async def list_transactions(call: Call) -> TransactionPage:
    """List transactions that have not ended, oldest first in each broker group: open ones, and
    expired ones, whose checks went unanswered.

    `older_than` is an age, such as `5m`. Page by page: `next_cursor` is empty on the last one.
    """
    query = dict(call.query)
    if query.get("producer_group"):
        query["producer_group"] = call.group(query["producer_group"])
    asked, behind = read_list(query, call.namespace)
    ids = call.proxy.transaction_ids(asked.namespace)
    admission = call.admission
    if asked.producer_group:
        admission.require(DESCRIBE, PRODUCER_GROUP, asked.producer_group)
    rows: list[Transaction] = []
    last: Place | None = None
    unknown: ProducerGroupNotFound | None = None
    is_known = behind is not None
    names = [name for name in await broker_group_names(call.proxy) if behind is None or name >= behind[0]]
    for name in names:
        if len(rows) == asked.limit:
            # The next broker group may have none: then the page behind the cursor is empty.
            return _page(rows, last)
        after = behind[1] if behind is not None and name == behind[0] else 0
        part = msgspec.structs.replace(asked, after=after, limit=asked.limit - len(rows))
        try:
            found, _ = await call.proxy.group(name).link.ask(part, is_repeatable=True)
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
            return _page(rows, last)
    if unknown is not None and not is_known:
        raise unknown
    return _page(rows, None)


def _page(rows: list[Transaction], last: Place | None) -> TransactionPage:
    return TransactionPage(transactions=rows, next_cursor=write_cursor(last) if last is not None else "")


async def post_resolve(call: Call, transaction_id: str) -> EndedTransaction:
    """End a transaction, even an expired one, as an operator: `outcome` commit or rollback, and the
    `reason`, which is stored with it.
    """
    outcome, reason = read_resolution(await call.read(TransactionResolution))
    transaction = call.proxy.transaction_ids(call.namespace).read(transaction_id)
    await require_of_transaction(call.proxy, call.admission, ALTER, transaction)
    ended = await resolve(call.proxy, transaction, outcome, reason, BY_HAND)
    return await describe_end(call.proxy, transaction_id, transaction, ended)
