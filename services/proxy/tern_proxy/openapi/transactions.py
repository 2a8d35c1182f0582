"""Transactions in the API document: schemas and operations. Data, imported as late as operations.py."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import Cursor
from tern_proxy.core.transactions.documents import LISTED_DEFAULT
from tern_proxy.openapi import scheduled, schemas
from tern_proxy.openapi.messages import MESSAGES, SEND_PARAMETERS, SENT
from tern_proxy.openapi.operations import ASKED, BROKER, READ, Operation, gives, in_header, in_query, number, takes
from tern_proxy.openapi.producers import EXAMPLE_ID, TransactionIdText
from tern_proxy.openapi.schemas import Count, MessageId, Offset, Queue, Schema, Time, ref
from tern_wire import limits, messages, paths
from tern_wire.paths import JSON, MSGPACK, OCTETS

By = Literal["client", "check", "hand"]


class Links(Struct, kw_only=True):
    """POST to one of them ends the transaction."""

    commit: str
    rollback: str


class Begun(Struct, kw_only=True):
    """A transaction that has begun: it is on the disks of a majority, and nobody can receive it."""

    transaction_id: TransactionIdText
    producer_group: str
    state: Literal["open"]
    born_at: Time
    check_at: Annotated[int, Meta(description="Not before, its producer group is asked about it.")]
    expires_at: Annotated[int, Meta(description="Not before, it is expired: then only a person ends it.")]
    links: Links


class BegunTransaction(Begun, kw_only=True):
    """A transaction of one message."""

    message_id: MessageId
    topic: str


class BegunTransactions(Begun, kw_only=True):
    """A transaction of several messages. Of a repeat, those ids that are still known."""

    message_ids: Annotated[list[MessageId], Meta(max_length=limits.TRANSACTION_MESSAGES_MAX)]
    broker_group: str


class EndedTransaction(Struct, kw_only=True):
    """What a transaction has become. Committed: where its first message is."""

    transaction_id: TransactionIdText
    state: Literal["committed", "rolled-back"]
    by: Annotated[By, Meta(description="Who has ended it: the client, the client when it was asked, a person.")]
    messages: Count
    topic: str | UnsetType = UNSET
    queue: Queue | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET


class TransactionMessage(Struct, kw_only=True):
    """One message of a transaction. It has an offset when it is visible."""

    topic: str
    queue: Queue
    size: Annotated[int, Meta(ge=0, description="Of its record, bytes.")]
    offset: Offset | UnsetType = UNSET


class TransactionCheck(Struct, kw_only=True):
    """One time that the producer group was asked."""

    attempt: Annotated[int, Meta(ge=1)]
    at: Time
    checker: str
    answer: Annotated[
        str,
        Meta(description="Such as unknown, timeout, http-503; lost: nobody told; not-asked: no client asked for it."),
    ]
    latency_ms: Count


class Transaction(Struct, kw_only=True):
    """A transaction as its broker group knows it."""

    transaction_id: TransactionIdText
    producer_group: str
    state: Literal["open", "committed", "rolled-back", "expired"]
    begun_at: Time
    check_at: Annotated[int, Meta(description="The next check.")] | UnsetType = UNSET
    attempts: Annotated[int, Meta(ge=0, description="How often it was asked about.")]
    ended_at: Time | UnsetType = UNSET
    by: By | UnsetType = UNSET
    reason: Annotated[str, Meta(description="Why, as whoever ended it has said.")] | UnsetType = UNSET
    message_count: Count
    messages: Annotated[
        list[TransactionMessage], Meta(description="Of an ended one the first; in a list some of them.")
    ]
    checks: Annotated[list[TransactionCheck], Meta(max_length=limits.CHECKS_KEPT_MAX, description="The newest.")]


class TransactionPage(Struct, kw_only=True):
    """Transactions that have not ended."""

    transactions: Annotated[list[Transaction], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


ANSWERS: tuple[type[Struct], ...] = (BegunTransaction, BegunTransactions, EndedTransaction, TransactionPage)
REQUESTS: tuple[type[Struct], ...] = (
    *(messages.JsonTransaction, messages.PackedTransaction, messages.TransactionEnd, messages.TransactionResolution),
)
_REASON: Schema = {"maxLength": limits.RESOLVE_REASON_LENGTH_MAX}
_PRODUCER_GROUP: Schema = {"type": "string", "pattern": schemas.GROUP_PATTERN}
_CHECK_AFTER: Schema = {
    "anyOf": [
        {"type": "string", "pattern": schemas.DURATION_PATTERN},
        {"type": "integer", "minimum": limits.CHECK_AFTER_MIN_MS, "maximum": limits.CHECK_AFTER_MAX_MS},
    ]
}
_AFTER_TEXT = "How long after the begin the producer group is first asked; by default as long as its settings say."


def keywords() -> Mapping[str, Mapping[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it."""
    of_message = schemas.keywords()
    whole: Mapping[str, Schema] = {
        "producer_group": {"pattern": schemas.GROUP_PATTERN},
        "check_after": {**_CHECK_AFTER, "description": _AFTER_TEXT},
        "messages": {"minItems": 1, "maxItems": limits.TRANSACTION_MESSAGES_MAX},
    }
    found: dict[str, Mapping[str, Schema]] = {"JsonTransaction": whole, "PackedTransaction": whole}
    for form in ("Json", "Packed"):
        timing = scheduled.keywords()[f"{form}Message"]
        topic = {"topic": {"pattern": schemas.TOPIC_PATTERN}}
        found[f"{form}TopicMessage"] = {**of_message[f"{form}Message"], **timing, **topic}
    return {
        **found,
        "TransactionEnd": {"reason": _REASON},
        "TransactionResolution": {"outcome": {"enum": ["commit", "rollback"]}, "reason": {"minLength": 1, **_REASON}},
    }


# Operations -------------------------------------------------------------------------------------------------------
_BEGUN: dict[str, Any] = {
    "transaction_id": EXAMPLE_ID,
    "producer_group": "shop",
    "state": "open",
    "born_at": 1_767_225_600_000,
    "check_at": 1_767_225_606_000,
    "expires_at": 1_767_226_056_000,
    "links": {verb: paths.transaction_path(EXAMPLE_ID, verb) for verb in ("commit", "rollback")},
}
_ONE = {**_BEGUN, "message_id": "7F3A9C01D2E4B5A6978800000000002A", "topic": "orders"}
_BOTH = {
    **_BEGUN,
    "message_ids": ["7F3A9C01D2E4B5A6978800000000002A", "7F3A9C01D2E4B5A6978800000000002B"],
    "broker_group": "broker-a",
}
_COMMITTED = {
    "transaction_id": EXAMPLE_ID,
    "state": "committed",
    "by": "client",
    "messages": 1,
    "topic": "orders",
    "queue": "broker-a:3",
    "offset": 42,
}
_ROLLED_BACK = {"transaction_id": EXAMPLE_ID, "state": "rolled-back", "by": "client", "messages": 1}
_OPEN = {
    "transaction_id": EXAMPLE_ID,
    "producer_group": "shop",
    "state": "open",
    "begun_at": 1_767_225_600_000,
    "check_at": 1_767_225_636_000,
    "attempts": 1,
    "message_count": 1,
    "messages": [{"topic": "orders", "queue": "broker-a:3", "size": 180}],
    "checks": [
        {"attempt": 1, "at": 1_767_225_606_000, "checker": "checker-1", "answer": "timeout", "latency_ms": 3_000}
    ],
}
_SEVERAL = {
    "producer_group": "shop",
    "messages": [{"topic": "orders", "json": {"total": 9.5}}, {"topic": "orders", "body": "two", "keys": ["order-7"]}],
}
_SEVERAL_TEXT = (
    '{"producer_group": "shop", "messages": [{"topic": "orders", "body": "1"}, {"topic": "orders", "body": "2"}]}'
)
_PACKED = {"producer_group": "shop", "messages": [{"topic": "orders", "body": "bytes, as MessagePack's bin"}]}
_REFUSED = ("illegal-group", "producer-group-not-found", "too-many-open-transactions")
_OF_ID = (*ASKED, *BROKER, "transaction-id-invalid", "transaction-unknown")
_ENDED = (*_OF_ID, *READ, "transaction-resolved", "batch-too-large", "unsupported-encoding", "disk-full")
_BODY: Schema = {"type": "string", "contentMediaType": OCTETS, "maxLength": limits.MESSAGE_BODY_SIZE_MAX_BYTES}


def _end(verb: str, summary: str, description: str, example: Any) -> Operation:
    return Operation(
        method="POST",
        path=paths.transaction_path("{transaction_id}", verb),
        id=f"{verb}Transaction",
        tag="transactions",
        summary=summary,
        description=description,
        body=takes(messages.TransactionEnd, reason={"reason": "the order is paid"}),
        answers={200: gives(EndedTransaction, "It has ended so, now or before.", example)},
        errors=(*_ENDED, "transaction-expired"),
        bodies=((JSON, '{"reason": "order 7"}'),),
    )


TRANSACTIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=paths.begin_path("{topic}"),
        id="beginTransaction",
        tag="transactions",
        summary="Begin a transaction with one message",
        description=(
            "The body is the message, as in a send. It is stored, and nobody receives it until the transaction is committed. The topic is of "
            "type TRANSACTION or MIXED; a message group or a delivery time does not go together with a transaction."
        ),
        parameters=(
            in_query(
                "producer_group", _PRODUCER_GROUP, "Who is asked what became of it. Parameter or header is needed."
            ),
            in_query("check_after", _CHECK_AFTER, _AFTER_TEXT),
            in_header(paths.HEADER_PRODUCER_GROUP, _PRODUCER_GROUP, "Who is asked what became of it."),
            in_header(paths.HEADER_CHECK_AFTER, _CHECK_AFTER, _AFTER_TEXT),
            *(parameter for parameter in SEND_PARAMETERS if parameter["name"] != "Prefer"),
        ),
        body={"*/*": {"schema": _BODY}},
        answers={
            200: gives(BegunTransaction, "Begun before: the first receipt.", _ONE, paths.HEADER_REPLAYED),
            201: gives(BegunTransaction, "Begun.", _ONE, "Location"),
        },
        errors=(*SENT, *_REFUSED),
        query="?producer_group=shop&check_after=10s",
        bodies=(("text/plain", "order 7"),),
        extensions=MESSAGES[0].extensions,
    ),
    Operation(
        method="POST",
        path=paths.TRANSACTIONS_PATH,
        id="beginTransactionOfSeveral",
        tag="transactions",
        summary="Begin a transaction with several messages",
        description=(
            f"1 to {limits.TRANSACTION_MESSAGES_MAX} messages for one or several topics, all stored in one broker group, at most "
            f"{limits.TRANSACTION_SIZE_MAX_BYTES:,} bytes with their properties. They become visible together, or none does."
        ),
        parameters=(
            in_header(
                paths.HEADER_IDEMPOTENCY_KEY,
                {"type": "string", "minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_SIZE_MAX_BYTES},
                "Stands for the whole transaction; a repeat is answered with the first one. The first message may carry it instead.",
            ),
        ),
        body={
            JSON: {"schema": ref(messages.JsonTransaction), "examples": {"several": {"value": _SEVERAL}}},
            MSGPACK: {"schema": ref(messages.PackedTransaction), "examples": {"several": {"value": _PACKED}}},
        },
        is_body_needed=True,
        answers={
            200: gives(BegunTransactions, "Begun before: the first receipt.", _BOTH, paths.HEADER_REPLAYED),
            201: gives(BegunTransactions, "Begun.", _BOTH, "Location"),
        },
        errors=(*SENT, *_REFUSED, "batch-empty", "batch-too-large", "unsupported-batch-format", "topics-apart"),
        bodies=((JSON, _SEVERAL_TEXT),),
    ),
    Operation(
        method="GET",
        path=paths.TRANSACTIONS_PATH,
        id="listTransactions",
        summary="List transactions that have not ended",
        parameters=(
            in_query("producer_group", _PRODUCER_GROUP, "Only of this one."),
            in_query("state", {"enum": ["open", "expired"]}, "Only these; both by default."),
            in_query("older_than", _CHECK_AFTER["anyOf"][0], "Only those that began so long ago, such as `5m`."),
            number("limit", 1, limits.LISTED_MAX, LISTED_DEFAULT, "Rows on a page."),
            in_query("cursor", {"type": "string"}, "`next_cursor` of the page before."),
        ),
        answers={200: gives(TransactionPage, "The oldest first.", {"transactions": [_OPEN], "next_cursor": ""})},
        errors=(*ASKED, *BROKER, "illegal-group", "producer-group-not-found", "no-name-server", "warming-up"),
        query="?producer_group=shop&older_than=0s&limit=10",
    ),
    Operation(
        method="GET",
        path=paths.transaction_path("{transaction_id}"),
        id="getTransaction",
        summary="Describe a transaction",
        answers={200: gives(Transaction, "Its state.", _OPEN)},
        errors=_OF_ID,
    ),
    _end(
        "commit", "Commit", "All messages are visible afterwards. The same again is answered the same way.", _COMMITTED
    ),
    _end(
        *("rollback", "Roll back", "No message will ever be visible. The same again is answered the same way."),
        _ROLLED_BACK,
    ),
    Operation(
        method="POST",
        path=paths.transaction_path("{transaction_id}", "resolve"),
        id="resolveTransaction",
        summary="End a transaction by hand",
        body=takes(
            messages.TransactionResolution, commit={"outcome": "commit", "reason": "the bank says that it is paid"}
        ),
        is_body_needed=True,
        answers={200: gives(EndedTransaction, "It has ended so, now or before.", {**_COMMITTED, "by": "hand"})},
        errors=(
            *(code for code in _ENDED if code not in {"batch-too-large", "unsupported-encoding"}),
            "message-too-large",
        ),
        bodies=((JSON, '{"outcome": "commit", "reason": "the bank says that it is paid"}'),),
    ),
)
