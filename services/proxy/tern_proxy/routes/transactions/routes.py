"""Rows of transactions and their checks."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tern_proxy.core.documents.transactions import (
    CHECKED_AFTER,
    CHECKS,
    Begun,
    BegunTransaction,
    BegunTransactions,
    Check,
    Checks,
    ChecksRequest,
    EndedTransaction,
    HalfMessage,
    JsonTransaction,
    PackedTransaction,
    Transaction,
    TransactionCheck,
    TransactionEnd,
    TransactionMessage,
    TransactionPage,
    TransactionResolution,
)
from tern_proxy.core.documents.values import DURATION_PATTERN, GROUP_PATTERN, extended
from tern_proxy.core.transactions.checks import CLAIM_MS
from tern_proxy.core.transactions.documents import links_of
from tern_proxy.routes.failures import ASKED, BROKER, READ, ROUTED, Errors
from tern_proxy.routes.lists import CURSOR, LIMIT
from tern_proxy.routes.messages.bodies import ENCODING_IN_JSON
from tern_proxy.routes.messages.parameters import MESSAGE_BODY, SEND_EXTENSIONS, SEND_PARAMETERS, SENT
from tern_proxy.routes.route import Handler, Route, Schema, Takes, gives, in_header, in_query, number, ref, takes
from tern_proxy.routes.transactions.begins import post_begin, post_begin_several
from tern_proxy.routes.transactions.checks import post_receive_checks
from tern_proxy.routes.transactions.ends import post_commit, post_rollback
from tern_proxy.routes.transactions.states import get_transaction, list_transactions, post_resolve
from tern_wire import limits, paths
from tern_wire.errors import (
    BatchEmpty,
    BatchTooLarge,
    DiskFull,
    IllegalGroup,
    IllegalWait,
    MessageTooLarge,
    ProducerGroupNotFound,
    TooManyOpenTransactions,
    TopicsApart,
    TransactionExpired,
    TransactionIdInvalid,
    TransactionResolved,
    TransactionUnknown,
    UnsupportedBatchFormat,
    UnsupportedEncoding,
)
from tern_wire.paths import JSON, MSGPACK, TRANSACTIONS_PATH, transaction_path

# Examples -----------------------------------------------------------------------------------------
_ID, _MESSAGE_ID = "AQAAAAAGQAAAAAAABwAAAAAAAAAAYnJva2VyLWEAAAAAAAAAAAAAAAA", "7F3A9C01D2E4B5A6978800000000002A"
_BEGUN = Begun(
    transaction_id=_ID,
    producer_group="shop",
    state="open",
    born_at=1_767_225_600_000,
    check_at=1_767_225_606_000,
    expires_at=1_767_226_056_000,
    links=links_of(_ID),
)
_WITH_ONE = extended(_BEGUN, BegunTransaction, message_id=_MESSAGE_ID, topic="orders")
_WITH_TWO = extended(
    _BEGUN,
    BegunTransactions,
    message_ids=[_MESSAGE_ID, "7F3A9C01D2E4B5A6978800000000002B"],
    broker_group="broker-a",
)
_COMMITTED = EndedTransaction(
    transaction_id=_ID, state="committed", by="client", messages=1, topic="orders", queue="broker-a:3", offset=42
)
_ROLLED_BACK = EndedTransaction(transaction_id=_ID, state="rolled-back", by="client", messages=1)
_OPEN = Transaction(
    transaction_id=_ID,
    producer_group="shop",
    state="open",
    begun_at=1_767_225_600_000,
    check_at=1_767_225_636_000,
    attempts=1,
    message_count=1,
    messages=[TransactionMessage(topic="orders", queue="broker-a:3", size=180)],
    checks=[TransactionCheck(attempt=1, at=1_767_225_606_000, checker="checker-1", answer="timeout", latency_ms=3_000)],
)
_CHECK = Check(
    transaction_id=_ID,
    attempt=1,
    producer_group="shop",
    begun_at=1_767_225_600_000,
    answer_by=1_767_225_616_000,
    messages=[
        HalfMessage(
            message_id=_MESSAGE_ID,
            topic="orders",
            queue="broker-a:3",
            json={"total": 9.5},
            content_type=JSON,
            keys=["order-7"],
            born_at=1_767_225_600_000,
            stored_at=1_767_225_600_003,
        )
    ],
)
_SEVERAL = {
    "producer_group": "shop",
    "messages": [{"topic": "orders", "json": {"total": 9.5}}, {"topic": "orders", "body": "two", "keys": ["order-7"]}],
}
_SEVERAL_TEXT = (
    '{"producer_group": "shop", "messages": [{"topic": "orders", "body": "1"}, {"topic": "orders", "body": "2"}]}'
)
_PACKED = {"producer_group": "shop", "messages": [{"topic": "orders", "body": "bytes, as MessagePack's bin"}]}
_RESOLUTION = {"outcome": "commit", "reason": "the bank has confirmed the payment"}

# Parameters and bodies ----------------------------------------------------------------------------
_PRODUCER_GROUP: Schema = {"type": "string", "pattern": GROUP_PATTERN}
_DURATION: Schema = {"type": "string", "pattern": DURATION_PATTERN}
_AFTER_MS: Schema = {
    "type": "integer",
    "minimum": limits.CHECK_AFTER_MIN_MS,
    "maximum": limits.CHECK_AFTER_MAX_MS,
}
_CHECK_AFTER: Schema = {"anyOf": [_DURATION, _AFTER_MS]}
_WHO = "The producer group, which gets its checks."
_BEGIN_PARAMETERS = (
    in_query("producer_group", _PRODUCER_GROUP, f"{_WHO} Parameter or header is needed."),
    in_query("check_after", _CHECK_AFTER, CHECKED_AFTER),
    in_header(paths.HEADER_PRODUCER_GROUP, _PRODUCER_GROUP, _WHO),
    in_header(paths.HEADER_CHECK_AFTER, _CHECK_AFTER, CHECKED_AFTER),
    *(parameter for parameter in SEND_PARAMETERS if parameter["name"] != "Prefer"),
)
_ONCE = in_header(
    paths.HEADER_IDEMPOTENCY_KEY,
    {"type": "string", "minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_SIZE_MAX_BYTES},
    "For the whole transaction; a repeat returns the first one. The first message may carry it instead.",
)


def _example(kind: type[msgspec.Struct], example: Mapping[str, Any]) -> Schema:
    return {"schema": ref(kind), "examples": {"several": {"value": example}}}


# Errors -------------------------------------------------------------------------------------------
_REFUSED: Errors = (IllegalGroup, ProducerGroupNotFound, TooManyOpenTransactions)
_FOUND: Errors = (IllegalGroup, ProducerGroupNotFound, *ROUTED)
_OF_ID: Errors = (*ASKED, *BROKER, TransactionIdInvalid, TransactionUnknown)
_ENDED: Errors = (*_OF_ID, *READ, TransactionResolved, DiskFull)

_CREATE = "CREATE producer-group {} if it is created by its first use"
_TOPIC, _ONE = paths.begin_path("{topic}"), transaction_path("{transaction_id}")


def _end(handler: Handler, verb: str, summary: str, about: str, example: EndedTransaction) -> Route:
    return Route(
        "POST",
        transaction_path("{transaction_id}", verb),
        handler,
        id=f"{verb}Transaction",
        tag="transactions",
        summary=summary,
        about=about,
        hot=verb,
        asks=("TXN producer-group of the transaction",),
        takes=takes(TransactionEnd, reason={"reason": "the order is paid"}),
        gives={200: gives(example, "It has ended so, now or before.")},
        errors=(*_ENDED, BatchTooLarge, UnsupportedEncoding, TransactionExpired),
        bodies=((JSON, '{"reason": "order 7"}'),),
    )


ROUTES = (
    Route(
        "POST",
        paths.checks_path("{producer_group}"),
        post_receive_checks,
        id="receiveChecks",
        tag="producer groups",
        summary="Receive checks of open transactions",
        about=(
            "For producers without a `check_url`. A check is assigned to its receiver for "
            f"{CLAIM_MS // 1_000} s (`answer_by`): commit or roll the transaction back, as with any transaction. No answer means that "
            "the outcome is not known yet; the check is issued again later."
        ),
        hot="checks",
        asks=("TXN producer-group {producer_group}", _CREATE.format("{producer_group}")),
        parameters=(
            number("max_messages", 1, limits.CHECKS_CLAIMED_MAX, ChecksRequest().max_messages, CHECKS),
            in_query("wait", ref("Wait"), "Answer at the first check, or empty at the end of the time."),
            ENCODING_IN_JSON,
        ),
        takes=takes(ChecksRequest, long_poll={"max_messages": 16, "wait": "20s"}),
        gives={200: gives(Checks(checks=[_CHECK]), "Checks, possibly none.", paths.HEADER_WAIT_APPLIED)},
        errors=(*ASKED, *READ, *BROKER, *_FOUND, IllegalWait, BatchTooLarge, UnsupportedEncoding, DiskFull),
        bodies=((JSON, '{"max_messages": 16, "wait": "100ms"}'),),
    ),
    Route(
        "POST",
        _TOPIC,
        post_begin,
        id="beginTransaction",
        tag="transactions",
        summary="Begin a transaction with one message",
        about=(
            "The body is the message, as in a send. It is stored, and invisible until the transaction is committed. The topic is of "
            "type TRANSACTION or MIXED; a message group or a delivery time cannot be combined with a transaction."
        ),
        hot="begin",
        asks=(
            *("PUB topic {topic}", "TXN producer-group of the header"),
            *("CREATE topic {topic} if it is created by its first use", _CREATE.format("of the header")),
        ),
        parameters=_BEGIN_PARAMETERS,
        takes=Takes(content={"*/*": {"schema": MESSAGE_BODY}}),
        gives={
            200: gives(_WITH_ONE, "Begun before: the first receipt.", paths.HEADER_REPLAYED),
            201: gives(_WITH_ONE, "Begun.", "Location"),
        },
        errors=(*SENT, *_REFUSED),
        query="?producer_group=shop&check_after=10s",
        bodies=(("text/plain", "order 7"),),
        extensions=SEND_EXTENSIONS,
    ),
    Route(
        "POST",
        TRANSACTIONS_PATH,
        post_begin_several,
        id="beginTransactionOfSeveral",
        tag="transactions",
        summary="Begin a transaction with several messages",
        about=(
            f"1 to {limits.TRANSACTION_MESSAGES_MAX} messages for one or several topics, all stored in one broker group, at most "
            f"{limits.TRANSACTION_SIZE_MAX_BYTES:,} bytes with their properties. They become visible together, or not at all."
        ),
        hot="begin_several",
        asks=(
            *("PUB topic of the body", "TXN producer-group of the body"),
            *("CREATE topic of the body if it is created by its first use", _CREATE.format("of the body")),
        ),
        parameters=(_ONCE,),
        takes=Takes(
            content={JSON: _example(JsonTransaction, _SEVERAL), MSGPACK: _example(PackedTransaction, _PACKED)},
            kinds=(JsonTransaction, PackedTransaction),
            is_needed=True,
        ),
        gives={
            200: gives(_WITH_TWO, "Begun before: the first receipt.", paths.HEADER_REPLAYED),
            201: gives(_WITH_TWO, "Begun.", "Location"),
        },
        errors=(*SENT, *_REFUSED, BatchEmpty, BatchTooLarge, UnsupportedBatchFormat, TopicsApart),
        bodies=((JSON, _SEVERAL_TEXT),),
    ),
    Route(
        "GET",
        TRANSACTIONS_PATH,
        list_transactions,
        id="listTransactions",
        tag="transactions",
        summary="List transactions that have not ended",
        parameters=(
            in_query("producer_group", _PRODUCER_GROUP, "Only of this producer group."),
            in_query("state", {"enum": ["open", "expired"]}, "Only these; both by default."),
            in_query("older_than", _DURATION, "Only those with at least this age, such as `5m`."),
            *(LIMIT, CURSOR),
        ),
        gives={200: gives(TransactionPage(transactions=[_OPEN], next_cursor=""), "Oldest first.")},
        errors=(*ASKED, *BROKER, *_FOUND),
        query="?producer_group=shop&older_than=0s&limit=10",
    ),
    Route(
        "GET",
        _ONE,
        get_transaction,
        id="getTransaction",
        tag="transactions",
        summary="Describe a transaction",
        asks=("DESCRIBE producer-group of the transaction",),
        gives={200: gives(_OPEN, "Its state.")},
        errors=_OF_ID,
    ),
    _end(
        *(post_commit, "commit", "Commit"),
        "All messages are visible afterwards. A repeat has the same answer.",
        _COMMITTED,
    ),
    _end(
        *(post_rollback, "rollback", "Roll back"),
        "No message will ever be visible. A repeat has the same answer.",
        _ROLLED_BACK,
    ),
    Route(
        "POST",
        transaction_path("{transaction_id}", "resolve"),
        post_resolve,
        id="resolveTransaction",
        tag="transactions",
        summary="Resolve a transaction",
        # A resolution can contradict the producers, so it is an operator's right and not a
        # producer's.
        asks=("ALTER producer-group of the transaction",),
        is_admin=True,
        takes=takes(TransactionResolution, is_needed=True, commit=_RESOLUTION),
        gives={200: gives(msgspec.structs.replace(_COMMITTED, by="hand"), "It has ended so, now or before.")},
        errors=(*_ENDED, MessageTooLarge),
        bodies=((JSON, '{"outcome": "commit", "reason": "the bank has confirmed the payment"}'),),
    ),
)
