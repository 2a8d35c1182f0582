"""Producer groups and their checks in the API document: schemas and operations. Data, imported as late as operations.py."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import Cursor
from tern_proxy.core.listing import LISTED_DEFAULT
from tern_proxy.core.reading.delivery import ENCODINGS
from tern_proxy.core.transactions.checks import CLAIM_MS
from tern_proxy.openapi import schemas
from tern_proxy.openapi.operations import ASKED, BROKER, DECLARED, READ, Operation, gives, in_query, number, takes
from tern_proxy.openapi.schemas import Count, Queue, Schema, Time, ref
from tern_wire import limits, messages, paths
from tern_wire.paths import JSON
from tern_wire.transactions import TRANSACTION_ID_SIZE_MAX_CHARS

TransactionIdText = Annotated[
    str, Meta(max_length=TRANSACTION_ID_SIZE_MAX_CHARS, description="Opaque; any proxy of this cluster takes it.")
]
Secret = Annotated[
    str,
    Meta(
        max_length=limits.CHECK_SECRET_SIZE_MAX_BYTES,
        description="With this, Standard Webhooks verifies what is sent to `check_url`. Only in the answer of the PUT that has set it.",
    ),
]


class ProducerGroupStats(Struct, kw_only=True):
    """Transactions of a producer group, and how often it was asked."""

    open: Count
    expired: Annotated[int, Meta(ge=0, description="Asked as often as `max_checks` says, without an answer.")]
    committed: Count
    rolled_back: Count
    checks: Count


class ProducerGroupState(Struct, kw_only=True):
    """A producer group as it is set up."""

    producer_group: str
    check_url: Annotated[str, Meta(description="Empty: its producers receive their checks.")]
    has_secret: bool
    timeout_ms: Annotated[int, Meta(description="How long an answer from `check_url` may take.")]
    max_checks: Annotated[
        int, Meta(description="So often a transaction is asked about, or could have been, then it is expired.")
    ]
    check_after_ms: Annotated[int, Meta(description="From the begin to the first check.")]
    check_interval_ms: Annotated[int, Meta(description="From one check to the next.")]
    include_body: Annotated[bool, Meta(description="Whether a call to `check_url` has the messages' bodies.")]
    stats: ProducerGroupStats | UnsetType = UNSET


class ProducerGroupDeclared(ProducerGroupState, kw_only=True):
    """A producer group, and whether it is new."""

    created: bool
    check_secret: Secret | UnsetType = UNSET


class ProducerGroupPage(Struct, kw_only=True):
    """Producer groups in order of their names."""

    producer_groups: Annotated[list[ProducerGroupState], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


class HalfMessage(Struct, kw_only=True):
    """A message that nobody can receive yet. Its body is written as in a receive."""

    message_id: str
    topic: str
    queue: Queue
    body: str | UnsetType = UNSET
    json: Any | UnsetType = UNSET
    body_base64: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET
    born_at: Time
    stored_at: Time


class Check(Struct, kw_only=True):
    """A question: what became of this transaction? Commit or roll it back; no answer says that it is not known yet."""

    transaction_id: TransactionIdText
    attempt: Annotated[int, Meta(ge=1, description="Which time it is asked.")]
    producer_group: str
    begun_at: Time
    answer_by: Annotated[int, Meta(description="Afterwards it is asked again, if need be of somebody else.")]
    messages: Annotated[list[HalfMessage], Meta(max_length=limits.TRANSACTION_MESSAGES_MAX)]


class Checks(Struct, kw_only=True):
    """Questions, perhaps none."""

    checks: Annotated[list[Check], Meta(max_length=limits.CHECKS_CLAIMED_MAX)]


ANSWERS: tuple[type[Struct], ...] = (ProducerGroupDeclared, ProducerGroupPage, Checks)
REQUESTS: tuple[type[Struct], ...] = (messages.ProducerGroupSettings, messages.ChecksRequest)


def _span(least_ms: int, most_ms: int, default_ms: int) -> Schema:
    whole = {"type": "integer", "minimum": least_ms, "maximum": most_ms}
    text = (
        f"{least_ms:,} to {most_ms:,} ms, as `500ms`, `10s`, `5m`, or plain milliseconds; {default_ms:,} in a new one."
    )
    return {"anyOf": [{"type": "string", "pattern": schemas.DURATION_PATTERN}, whole], "description": text}


def keywords() -> Mapping[str, Mapping[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it."""
    after = (limits.CHECK_AFTER_MIN_MS, limits.CHECK_AFTER_MAX_MS)
    return {
        "ProducerGroupSettings": {
            "check_url": {
                "maxLength": limits.CHECK_URL_SIZE_MAX_BYTES,
                "description": "https, or http to this machine, and to private hosts with `--check-http`; a host that `--check-hosts` of the proxies allows.",
            },
            "check_secret": {
                "maxLength": limits.CHECK_SECRET_SIZE_MAX_BYTES,
                "pattern": "^$|^whsec_[A-Za-z0-9+/]+=*$",
                "description": "24 to 64 bytes in base64; with a `check_url`, the proxy makes one if there is none. Questions and answers are signed with it.",
            },
            "timeout": _span(limits.CHECK_TIMEOUT_MIN_MS, limits.CHECK_TIMEOUT_MAX_MS, limits.CHECK_TIMEOUT_DEFAULT_MS),
            "max_checks": {"minimum": 1, "maximum": limits.CHECKS_MAX},
            "check_after": _span(*after, limits.CHECK_AFTER_DEFAULT_MS),
            "check_interval": _span(*after, limits.CHECK_INTERVAL_DEFAULT_MS),
        },
        "ChecksRequest": {
            "max_messages": {"minimum": 1, "maximum": limits.CHECKS_CLAIMED_MAX, "description": "Checks, at most."},
            "wait": ref("Wait"),
        },
    }


# Operations -------------------------------------------------------------------------------------------------------
EXAMPLE_ID = "AQAAAAAGQAAAAAAABwAAAAAAAAAAYnJva2VyLWEAAAAAAAAAAAAAAAA"
_GROUP: dict[str, Any] = {
    "producer_group": "shop",
    "check_url": "https://hooks.example.com/checks",
    "has_secret": True,
    "timeout_ms": 3_000,
    "max_checks": 15,
    "check_after_ms": 6_000,
    "check_interval_ms": 30_000,
    "include_body": False,
}
_STATS = {"open": 2, "expired": 0, "committed": 940, "rolled_back": 12, "checks": 31}
_NEW = {**_GROUP, "created": True, "check_secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
_CHECK = {
    "transaction_id": EXAMPLE_ID,
    "attempt": 1,
    "producer_group": "shop",
    "begun_at": 1_767_225_600_000,
    "answer_by": 1_767_225_616_000,
    "messages": [
        {
            "message_id": "7F3A9C01D2E4B5A6978800000000002A",
            "topic": "orders",
            "queue": "broker-a:3",
            "json": {"total": 9.5},
            "content_type": JSON,
            "keys": ["order-7"],
            "born_at": 1_767_225_600_000,
            "stored_at": 1_767_225_600_003,
        }
    ],
}
_FOUND = ("illegal-group", "producer-group-not-found", "no-name-server", "warming-up")

PRODUCERS: tuple[Operation, ...] = (
    Operation(
        method="PUT",
        path=paths.producer_group_path("{producer_group}"),
        id="putProducerGroup",
        summary="Declare a producer group",
        body=takes(
            messages.ProducerGroupSettings,
            pull={"check_after": "10s", "max_checks": 15},
            callback={"check_url": "https://hooks.example.com/checks", "timeout": "3s"},
        ),
        answers={
            200: gives(ProducerGroupDeclared, "It was there; it has these settings now.", {**_GROUP, "created": False}),
            201: gives(ProducerGroupDeclared, "It is new.", _NEW),
        },
        errors=(*DECLARED, "illegal-group", "check-url-forbidden"),
        bodies=((JSON, '{"check_after": "10s", "max_checks": 15}'),),
    ),
    Operation(
        method="GET",
        path=paths.producer_group_path("{producer_group}"),
        id="getProducerGroup",
        summary="Describe a producer group",
        answers={200: gives(ProducerGroupState, "Settings and numbers.", {**_GROUP, "stats": _STATS})},
        errors=(*ASKED, *BROKER, *_FOUND),
    ),
    Operation(
        method="DELETE",
        path=paths.producer_group_path("{producer_group}"),
        id="deleteProducerGroup",
        summary="Delete a producer group",
        answers={204: {"description": "It is gone."}},
        errors=(*ASKED, *BROKER, *_FOUND, "producer-group-busy", "disk-full"),
    ),
    Operation(
        method="GET",
        path=paths.PRODUCER_GROUPS_PATH,
        id="listProducerGroups",
        summary="List producer groups",
        parameters=(
            number("limit", 1, limits.LISTED_MAX, LISTED_DEFAULT, "Rows on a page."),
            in_query("cursor", {"type": "string"}, "`next_cursor` of the page before."),
        ),
        answers={
            200: gives(
                ProducerGroupPage,
                "As the leaders know them.",
                {"producer_groups": [{**_GROUP, "stats": _STATS}], "next_cursor": ""},
            )
        },
        errors=(*ASKED, *BROKER, "no-name-server", "warming-up"),
        query="?limit=10",
    ),
    Operation(
        method="POST",
        path=paths.checks_path("{producer_group}"),
        id="receiveChecks",
        tag="producer groups",
        summary="Receive questions about open transactions",
        description=(
            "For producers that have no `check_url`. A check is its receiver's for "
            f"{CLAIM_MS // 1_000} s (`answer_by`): commit or roll the transaction back, as with any transaction. Who does not answer says that "
            "the outcome is not known yet, and is asked again later."
        ),
        parameters=(
            number(
                "max_messages", 1, limits.CHECKS_CLAIMED_MAX, messages.ChecksRequest().max_messages, "Checks, at most."
            ),
            in_query("wait", ref("Wait"), "Answer at the first check, or empty when the time is over."),
            in_query("encoding", {"type": "string", "enum": list(ENCODINGS)}, "How bodies are written in JSON."),
        ),
        body=takes(messages.ChecksRequest, long_poll={"max_messages": 16, "wait": "20s"}),
        answers={200: gives(Checks, "Questions, perhaps none.", {"checks": [_CHECK]}, paths.HEADER_WAIT_APPLIED)},
        errors=(
            *(*ASKED, *READ, *BROKER, *_FOUND, "illegal-wait", "batch-too-large", "unsupported-encoding", "disk-full"),
        ),
        bodies=((JSON, '{"max_messages": 16, "wait": "100ms"}'),),
    ),
)
