"""Reads what the proof needs from both banks, once nothing moves any more."""

from collections.abc import Mapping

from tests.chaos.transfer.bank_a import BankA
from tests.chaos.transfer.bank_b import BankB
from tests.chaos.transfer.orders import START_CENTS
from tests.chaos.transfer.proof import Books, Debit, Delivery


def read_books(
    bank_a: BankA,
    bank_b: BankB,
    *,
    transfers: int,
    topic_messages: int,
    settled_messages: int,
    stats: Mapping[str, int],
) -> Books:
    """The books of both banks beside the broker's counts. *stats*: of the producer group."""
    debits = {
        transfer: Debit(attempt=attempt, debtor=debtor, creditor=creditor, amount_cents=amount)
        for transfer, attempt, debtor, creditor, amount in bank_a.debits()
    }
    credits = {
        transfer: Debit(attempt=attempt, creditor=creditor, amount_cents=amount)
        for transfer, attempt, creditor, amount in bank_b.credits()
    }
    deliveries = [
        Delivery(message_id=message_id, transfer=transfer, attempt=attempt, deliveries=count)
        for message_id, transfer, attempt, count in bank_b.messages()
    ]
    return Books(
        transfers=transfers,
        refused=bank_a.counts()[1],
        opening_a=START_CENTS,
        balances_a=bank_a.balances(),
        balances_b=bank_b.balances(),
        debits=debits,
        credits=credits,
        deliveries=deliveries,
        topic_messages=topic_messages,
        settled_messages=settled_messages,
        open=stats["open"],
        expired=stats["expired"],
        committed=stats["committed"],
    )
