"""Transactions in the HTTP API: receipts of begins, descriptions, and pages of those that have not
ended.

A list proceeds through the broker groups in the order of their names, and within each by number,
oldest first. A cursor names the last returned transaction, so an end or a begin between two pages
neither repeats nor skips one.
"""

import re
from collections.abc import Mapping

from msgspec import UNSET

from tern_proxy.core.documents import transactions
from tern_proxy.core.documents.transactions import Begun, BegunTransaction, BegunTransactions, Links, TransactionCheck
from tern_proxy.core.documents.values import extended
from tern_proxy.core.listing import LISTED_DEFAULT
from tern_proxy.core.sending.parameters import TIME_MAX_MS, number_of
from tern_proxy.core.sending.results import Outcome, refusal_of
from tern_proxy.core.transactions.begins import Begin, Encoded, seconds_of
from tern_wire.errors import InvalidField, ProducerGroupNotFound, TooManyOpenTransactions
from tern_wire.limits import LISTED_MAX
from tern_wire.link.rows import NO_PRODUCER_GROUP, PREPARED, PREPARED_BEFORE, TOO_MANY_OPEN
from tern_wire.link.transactions import ListTransactions, Transaction, TransactionMessage
from tern_wire.names import check_group
from tern_wire.paths import transaction_path
from tern_wire.times import parse_duration_ms
from tern_wire.transactions import EXPIRED, NUMBER_MAX, OPEN, TransactionId, TransactionIds

_PLACE = re.compile(r"([a-z0-9][a-z0-9-]{0,30}):(0|[1-9][0-9]{0,18})", re.ASCII)
# Broker group and number.
Place = tuple[str, int]


# Begins -------------------------------------------------------------------------------------------
def begun_document(
    begin: Begin, encoded: Encoded, outcome: Outcome, born_ms: int, ids: TransactionIds, principal: int = 0
) -> tuple[BegunTransaction | BegunTransactions, bool]:
    """Return the receipt of a begin, and whether an earlier begin with its key had stored it.

    Raise its refusal. *outcome*: of *encoded*'s parcel. *principal*: the owner's number. A repeat
    gets the first receipt, as of its begin.
    """
    if outcome.error is not None:
        raise outcome.error
    parcel = encoded.parcel
    status, queue, number = outcome.verdicts[0]
    if status == TOO_MANY_OPEN:
        raise TooManyOpenTransactions(producer_group=begin.producer_group)
    if status == NO_PRODUCER_GROUP:
        raise ProducerGroupNotFound(producer_group=begin.producer_group)
    if status not in {PREPARED, PREPARED_BEFORE}:
        # The refused one of several messages is unknown: all have the status of the first refused
        # one.
        raise refusal_of(status, ", ".join(parcel.topics), f"{parcel.broker_group}:{queue}")
    producer_group_id, check_after_ms, check_interval_ms, max_checks = outcome.producer_group
    message_ids, own_check_after_ms = encoded.message_ids, begin.check_after_ms
    is_replay = status == PREPARED_BEFORE
    if is_replay:
        firsts = [outcome.replays.get(row, ("", born_ms, 0)) for row in range(len(parcel.rows))]
        message_ids = [message_id for message_id, _, _ in firsts]
        _, born_ms, first_check_after_ms = firsts[0]
        # The record has whole seconds: a repeat with the same delay is more exact.
        if seconds_of(own_check_after_ms) * 1_000 != first_check_after_ms:
            own_check_after_ms = first_check_after_ms
    check_at = born_ms + (own_check_after_ms or check_after_ms)
    transaction_id = ids.make(TransactionId(parcel.broker_group, number, producer_group_id, principal))
    begun = Begun(
        transaction_id=transaction_id,
        producer_group=begin.producer_group,
        state=OPEN,
        born_at=born_ms,
        check_at=check_at,
        expires_at=check_at + max_checks * check_interval_ms,
        links=links_of(transaction_id),
    )
    if not begin.halves[0].at:
        return extended(begun, BegunTransaction, message_id=message_ids[0], topic=parcel.topics[0]), is_replay
    known = [message_id for message_id in message_ids if message_id]
    return extended(begun, BegunTransactions, message_ids=known, broker_group=parcel.broker_group), is_replay


def links_of(transaction_id: str) -> Links:
    """Return the paths that end a transaction."""
    return Links(
        commit=transaction_path(transaction_id, "commit"), rollback=transaction_path(transaction_id, "rollback")
    )


# Descriptions -------------------------------------------------------------------------------------
def transaction_document(broker_group: str, found: Transaction, ids: TransactionIds) -> transactions.Transaction:
    """Return the document of a transaction from its broker group's description."""
    return transactions.Transaction(
        transaction_id=ids.make(TransactionId(broker_group, found.number, found.producer_group_id)),
        producer_group=found.producer_group,
        state=found.state,
        begun_at=found.begun_ms,
        check_at=found.check_at_ms or UNSET,
        attempts=found.attempts,
        ended_at=found.ended_ms or UNSET,
        by=found.by or UNSET,
        reason=found.reason or UNSET,
        message_count=found.message_count,
        messages=[_message(broker_group, message) for message in found.messages],
        checks=[
            TransactionCheck(
                attempt=check.attempt,
                at=check.at_ms,
                checker=check.checker,
                answer=check.answer,
                latency_ms=check.latency_ms,
            )
            for check in found.checks
        ],
    )


def _message(broker_group: str, told: TransactionMessage) -> transactions.TransactionMessage:
    return transactions.TransactionMessage(
        topic=told.topic,
        queue=f"{broker_group}:{told.queue}",
        size=told.size_bytes,
        offset=told.offset if told.offset >= 0 else UNSET,
    )


# Lists --------------------------------------------------------------------------------------------
def read_list(query: Mapping[str, str], namespace: str) -> tuple[ListTransactions, Place | None]:
    """Return the request to all broker groups, from the first transaction on, and the position to
    continue behind.

    Raise InvalidField, IllegalGroup.
    """
    state = query.get("state", "")
    if state not in {"", OPEN, EXPIRED}:
        raise InvalidField(
            reason=f"'state' is {OPEN} or {EXPIRED}; what has ended is not listed", pointer="query/state"
        )
    try:
        older_than_ms = parse_duration_ms(query.get("older_than", 0))
    except ValueError as error:
        raise InvalidField(reason=str(error)[:120], pointer="query/older_than") from error
    producer_group = query.get("producer_group", "")
    asked = ListTransactions(
        producer_group=check_group(producer_group) if producer_group else "",
        state=state,
        older_than_ms=min(older_than_ms, TIME_MAX_MS),
        after=0,
        limit=number_of(query.get("limit", LISTED_DEFAULT), "limit", 1, LISTED_MAX),
        namespace=namespace,
    )
    return asked, _read_cursor(query["cursor"]) if query.get("cursor") else None


def write_cursor(place: Place) -> str:
    """Return *place* as `next_cursor`."""
    return f"{place[0]}:{place[1]}"


def _read_cursor(text: str) -> Place:
    match = _PLACE.fullmatch(text)
    if match is None or int(match[2]) > NUMBER_MAX:
        raise InvalidField(reason="Use 'next_cursor' of the page before", pointer="query/cursor")
    return match[1], int(match[2])
