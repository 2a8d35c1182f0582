"""Ends of transactions: commits and rollbacks, which are hot routes, and ends with a reason.

    commit, rollback -> one row in the lane of ends of the id's broker group -> 200 with the result

Ends are idempotent, so an end is repeated until its deadline.
"""

from tern_proxy.access.authorization import admission_of
from tern_proxy.core.access.namespaces import namespace_in
from tern_proxy.core.documents.transactions import EndedTransaction
from tern_proxy.core.sending.parameters import BASIC, answer_kind, is_packed, read_query
from tern_proxy.core.transactions.ends import (
    END_BODY_SIZE_MAX_BYTES,
    Ended,
    EndParcel,
    ended_document,
    ended_of,
    read_reason,
    refusal_of_end,
)
from tern_proxy.exchange import HotRequest, Reply, reply
from tern_proxy.proxy import Proxy
from tern_proxy.routes.transactions.owners import require_of_transaction
from tern_wire.errors import BatchTooLarge, TernError
from tern_wire.link.transactions import DescribeTransaction, ResolveTransaction
from tern_wire.principals.principals import TXN
from tern_wire.transactions import BY_CLIENT, COMMIT, ENDED, ROLLBACK, TransactionId


async def post_commit(proxy: Proxy, request: HotRequest, transaction_id: str) -> Reply:
    """200 with the transaction, all of whose messages are visible now; a repeat is 200."""
    return await _end(proxy, request, transaction_id, COMMIT)


async def post_rollback(proxy: Proxy, request: HotRequest, transaction_id: str) -> Reply:
    """200 with the transaction, none of whose messages will ever be visible; a repeat is 200."""
    return await _end(proxy, request, transaction_id, ROLLBACK)


def _end_too_large(size_bytes: int) -> TernError:
    return BatchTooLarge(actual=size_bytes, limit=END_BODY_SIZE_MAX_BYTES, unit="bytes")


async def _end(proxy: Proxy, request: HotRequest, transaction_id: str, outcome: int) -> Reply:
    kind = answer_kind(request.header(b"accept"), BASIC)
    body = await request.read_body(END_BODY_SIZE_MAX_BYTES, _end_too_large)
    read_query(request.query_string, ())
    transaction = proxy.transaction_ids(namespace_in(request)).read(transaction_id)
    reason = read_reason(body, packed=is_packed(request.header(b"content-type")))
    await require_of_transaction(proxy, admission_of(request), TXN, transaction)
    if reason:
        # The reason is stored with the outcome: such an end is rare, and is sent separately.
        ended = await resolve(proxy, transaction, outcome, reason, BY_CLIENT)
    else:
        told = await proxy.group(transaction.broker_group).ends.submit(EndParcel(transaction, outcome))
        if isinstance(told, TernError):
            raise told
        ended = told
    return reply(200, await describe_end(proxy, transaction_id, transaction, ended), kind)


async def resolve(proxy: Proxy, transaction: TransactionId, outcome: int, reason: str, by: int) -> Ended:
    """End *transaction* with a reason that is stored with it; return the verdict.

    Raise its broker group's refusals.
    """
    asked = ResolveTransaction(
        number=transaction.number,
        producer_group_id=transaction.producer_group_id,
        outcome=outcome,
        reason=reason,
        by=by,
    )
    # A repeat of the same decision has no effect.
    said, _ = await proxy.group(transaction.broker_group).link.ask(asked, is_repeatable=True)
    return ended_of(said)


async def describe_end(proxy: Proxy, transaction_id: str, transaction: TransactionId, ended: Ended) -> EndedTransaction:
    """Return the answer to an end. Raise the reason if the transaction did not end as requested."""
    refusal = refusal_of_end(ended)
    if refusal is not None:
        raise refusal
    status, outcome, _, messages, topic_id, _, offset = ended
    if status == ENDED:
        proxy.counters.messages["committed" if outcome == COMMIT else "rolled_back"] += messages
    name = ""
    if outcome == COMMIT and offset >= 0:
        name = proxy.topic_names.find(transaction.broker_group, topic_id) or await _ask_topic(proxy, transaction)
    return ended_document(transaction_id, transaction.broker_group, ended, name)


async def _ask_topic(proxy: Proxy, transaction: TransactionId) -> str:
    """Return the topic of a transaction's first message when the routes lack it; "" when the broker
    group lacks it, too.
    """
    asked = DescribeTransaction(number=transaction.number, producer_group_id=transaction.producer_group_id)
    link = proxy.group(transaction.broker_group).link
    try:
        found, _ = await link.ask(asked, is_repeatable=True)
    except TernError:
        # The transaction has ended, even if its topic is unknown.
        return ""
    messages = found.transaction.messages
    return messages[0].topic if messages else ""
