"""Documents of transactions: begun, ended, described and listed, and their checks."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.messages import Body, ContentEncoding
from tern_proxy.core.documents.sends import BOUNDED, JsonMessage, PackedMessage
from tern_proxy.core.documents.values import (
    GROUP_PATTERN,
    TOPIC_PATTERN,
    Count,
    Cursor,
    DurationText,
    MessageId,
    Offset,
    Queue,
    Time,
    Wait,
    instead,
    shown,
    span,
    words,
)
from tern_wire import limits
from tern_wire.transactions import TRANSACTION_ID_SIZE_MAX_CHARS

CHECKED_AFTER = "Delay from the begin to the first check; by default the producer group's setting."
CHECKS = "The largest number of checks."
TransactionIdText = Annotated[
    str, Meta(max_length=TRANSACTION_ID_SIZE_MAX_CHARS, description="Opaque; valid at any proxy of this cluster.")
]
By = Annotated[str, words("client", "check", "hand")]
_SEVERAL = instead(minItems=1, maxItems=limits.TRANSACTION_MESSAGES_MAX)
_NamedTopic = Annotated[str, shown(pattern=TOPIC_PATTERN)]
_NamedProducerGroup = Annotated[str, shown(pattern=GROUP_PATTERN)]
_CheckAfter = Annotated[
    DurationText | Annotated[int, span(limits.CHECK_AFTER_MIN_MS, limits.CHECK_AFTER_MAX_MS)] | None,
    shown(CHECKED_AFTER),
]


# Requests -----------------------------------------------------------------------------------------
class JsonTopicMessage(JsonMessage, forbid_unknown_fields=True, gc=False, kw_only=True, omit_defaults=True):
    """One message of a transaction over several topics, in JSON."""

    topic: _NamedTopic


class PackedTopicMessage(PackedMessage, forbid_unknown_fields=True, gc=False, kw_only=True):
    """One message of a transaction over several topics, in MessagePack."""

    topic: _NamedTopic


class JsonTransaction(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of POST /v1/transactions in JSON.

    All messages become visible together, or none. Only the first one may have an `idempotency_key`,
    which stands for all.
    """

    producer_group: _NamedProducerGroup
    messages: Annotated[list[JsonTopicMessage], _SEVERAL]
    check_after: _CheckAfter = None


class PackedTransaction(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/transactions in MessagePack."""

    producer_group: _NamedProducerGroup
    messages: Annotated[list[PackedTopicMessage], BOUNDED, _SEVERAL]
    check_after: _CheckAfter = None


class TransactionEnd(Struct, forbid_unknown_fields=True):
    """The body of commit and rollback, which may be missing.

    `reason` is stored with the transaction.
    """

    reason: Annotated[str, shown(maxLength=limits.RESOLVE_REASON_LENGTH_MAX)] = ""


class TransactionResolution(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/transactions/{transaction_id}/resolve: `outcome` commit or rollback, and
    the `reason`, which is stored.
    """

    outcome: Annotated[str, words("commit", "rollback")]
    reason: Annotated[str, shown(minLength=1, maxLength=limits.RESOLVE_REASON_LENGTH_MAX)]


class ChecksRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/producer-groups/{producer_group}/checks/receive; every field has a
    default.
    """

    max_messages: Annotated[int, shown(CHECKS, minimum=1, maximum=limits.CHECKS_CLAIMED_MAX)] = 16
    wait: Wait = 0


# Answers ------------------------------------------------------------------------------------------
class Links(Struct, kw_only=True):
    """POST to one of them ends the transaction."""

    commit: str
    rollback: str


class Begun(Struct, kw_only=True):
    """A transaction that has begun: it is on the disks of a majority, and no consumer can receive
    it.
    """

    transaction_id: TransactionIdText
    producer_group: str
    state: Annotated[str, words("open")]
    born_at: Time
    check_at: Annotated[int, Meta(description="Earliest time of the first check.")]
    expires_at: Annotated[int, Meta(description="Earliest time of its expiry; then only an operator ends it.")]
    links: Links


class BegunTransaction(Begun, kw_only=True):
    """A transaction of one message."""

    message_id: MessageId
    topic: str


class BegunTransactions(Begun, kw_only=True):
    """A transaction of several messages. After a repeat, those ids that are still known."""

    message_ids: Annotated[list[MessageId], Meta(max_length=limits.TRANSACTION_MESSAGES_MAX)]
    broker_group: str


class EndedTransaction(Struct, kw_only=True):
    """Outcome of a transaction. If committed, the place of its first message."""

    transaction_id: TransactionIdText
    state: Annotated[str, words("committed", "rolled-back")]
    by: Annotated[By, Meta(description="Origin of the end: the client, its answer to a check, or an operator.")]
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
    """One check of the transaction."""

    attempt: Annotated[int, Meta(ge=1)]
    at: Time
    checker: str
    answer: Annotated[
        str,
        Meta(
            description="Such as unknown, timeout, http-503; lost: never reported; not-asked: no client requested it."
        ),
    ]
    latency_ms: Count


class Transaction(Struct, kw_only=True):
    """A transaction as its broker group has it."""

    transaction_id: TransactionIdText
    producer_group: str
    state: Annotated[str, words("open", "committed", "rolled-back", "expired")]
    begun_at: Time
    check_at: Annotated[int, Meta(description="The next check.")] | UnsetType = UNSET
    attempts: Annotated[int, Meta(ge=0, description="Number of checks so far.")]
    ended_at: Time | UnsetType = UNSET
    by: By | UnsetType = UNSET
    reason: Annotated[str, Meta(description="The reason given with the end.")] | UnsetType = UNSET
    message_count: Count
    messages: Annotated[
        list[TransactionMessage], Meta(description="After the end only the first; in a list some of them.")
    ]
    checks: Annotated[list[TransactionCheck], Meta(max_length=limits.CHECKS_KEPT_MAX, description="The newest.")]


class TransactionPage(Struct, kw_only=True):
    """Transactions that have not ended."""

    transactions: Annotated[list[Transaction], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


# Checks -------------------------------------------------------------------------------------------
class HalfMessage(Struct, kw_only=True, gc=False):
    """A message that no consumer can receive yet. Its body is written as in a receive."""

    message_id: str
    topic: str
    queue: Queue
    body: Body | UnsetType = UNSET
    json: Any | UnsetType = UNSET
    body_base64: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    content_encoding: ContentEncoding | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET
    born_at: Time
    stored_at: Time


class Check(Struct, kw_only=True):
    """A request to commit or roll back this transaction.

    Without an answer its outcome stays unknown.
    """

    transaction_id: TransactionIdText
    attempt: Annotated[int, Meta(ge=1, description="Number of this check.")]
    producer_group: str
    begun_at: Time
    answer_by: Annotated[int, Meta(description="Afterwards it is issued again, possibly to another client.")]
    messages: Annotated[list[HalfMessage], Meta(max_length=limits.TRANSACTION_MESSAGES_MAX)]


class Checks(Struct, kw_only=True):
    """Checks, possibly none."""

    checks: Annotated[list[Check], Meta(max_length=limits.CHECKS_CLAIMED_MAX)]
