"""The schemas of the API document: what answers look like, and the limits that the request documents of tern_wire are held to.

Nothing here decodes at run time; the structs exist so that msgspec describes them, as it describes tern_wire.messages.
Imported with the first request of /openapi.json and not before: start-up time and idle memory are for messages.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.messages import (
    BatchResults,
    LeasedMessage,
    Message,
    Pulled,
    RecallHandle,
    ReceiptHandle,
    Received,
    SendReceipt,
    SendResult,
    SentOffset,
    SettleResult,
    SettleResults,
)
from tern_proxy.core.documents.topics import QueueOffsets, TopicOffsets
from tern_proxy.core.documents.values import (
    DURATION_PATTERN,
    GROUP_PATTERN,
    OFFSET_MAX,
    QUEUE_PATTERN,
    TOPIC_PATTERN,
    Count,
    MessageId,
    Offset,
    Problem,
    Queue,
    Time,
)
from tern_proxy.core.sending.encoding import CONTENT_TYPE_SIZE_MAX_BYTES
from tern_proxy.routes.route import REF, Schema, ref
from tern_wire import limits, messages
from tern_wire.errors import ERRORS
from tern_wire.handles import HANDLE_SIZE_MAX_CHARS

__all__ = [
    "DURATION_PATTERN",
    "GROUP_PATTERN",
    "OFFSET_MAX",
    "QUEUE_PATTERN",
    "TOPIC_PATTERN",
    "BatchResults",
    "Count",
    "LeasedMessage",
    "Message",
    "MessageId",
    "Offset",
    "Problem",
    "Pulled",
    "Queue",
    "RecallHandle",
    "ReceiptHandle",
    "Received",
    "Schema",
    "SendReceipt",
    "SendResult",
    "SentOffset",
    "SettleResult",
    "SettleResults",
    "Time",
    "ref",
]


class GroupOffsets(Struct, kw_only=True):
    """Committed offsets by queue."""

    group: str
    topic: str
    offsets: dict[str, Offset]


class RaftFacts(Struct, kw_only=True):
    """What a broker says of its replicated log, asked for this answer."""

    role: Annotated[str, Meta(description="leader or follower")]
    serving: Annotated[bool, Meta(description="Whether it leads and takes requests.")]
    term: Count
    commit_index: Count
    applied_index: Count
    last_index: Count
    synced_index: Annotated[int, Meta(ge=0, description="The last entry that is on its disk.")]
    lag: Annotated[
        int | None,
        Meta(description="Entries of the leader's log that it lacks, as the leader says; null without a leader."),
    ]
    fsync_ms: Annotated[float, Meta(ge=0, description="How long its last fdatasync took.")]


class BrokerNode(Struct, kw_only=True):
    """One broker as this proxy sees it."""

    link: Annotated[str, Meta(description="host:port")]
    connected: bool
    raft: Annotated[RaftFacts | None, Meta(description="null when it does not answer.")]


class BrokerGroupState(Struct, kw_only=True):
    """One broker group as this proxy sees it."""

    leader: Annotated[str, Meta(description="Empty while none is known.")]
    term: Count
    group_size: Count
    writable: Annotated[bool, Meta(description="Whether an operator lets new messages go there.")]
    nodes: dict[str, BrokerNode]


class ClusterState(Struct, kw_only=True):
    """The cluster as this proxy sees it."""

    cluster: str
    warm: Annotated[bool, Meta(description="Whether the name server has heard of all brokers.")]
    name_server_reachable: bool
    proxy: str
    topics: Count
    broker_groups: dict[str, BrokerGroupState]


class Health(Struct, kw_only=True):
    """Alive. All but `status` only with `?verbose`."""

    status: Literal["alive"]
    service: str | UnsetType = UNSET
    proxy: str | UnsetType = UNSET
    notice: str | UnsetType = UNSET


class Readiness(Struct, kw_only=True):
    """Whether work is accepted, and why not."""

    ready: bool
    routes: bool
    name_server: bool
    leaders: Annotated[dict[str, str], Meta(description="Leader by broker group; empty while there is none.")]
    stopping: bool
    room: Annotated[
        dict[str, Literal["free", "short", "full"]],
        Meta(
            description="Of each room that requests share: `short` refuses large ones, `full` also small ones, and makes this 503."
        ),
    ]


ANSWERS: tuple[type[Struct], ...] = (
    *(Problem, SendReceipt, BatchResults, Message, Received, SettleResults, Pulled),
    *(TopicOffsets, GroupOffsets, ClusterState, Health, Readiness, QueueOffsets),
)
REQUESTS: tuple[type[Struct], ...] = (
    *(messages.JsonBatch, messages.PackedBatch, messages.AckRequest, messages.SettleRequest, messages.ReceiveRequest),
    messages.OffsetsCommit,
)


def build_schemas(kinds: Iterable[type[Struct]]) -> dict[str, Schema]:
    """The schemas of *kinds*, and of what they are made of, by name, in order of their names."""
    from tern_proxy.openapi import (  # noqa: PLC0415
        cluster,
        dead_letters,
        members,
        principals,
        producers,
        queries,
        scheduled,
        transactions,
    )

    old = (cluster, dead_letters, members, principals, producers, queries, scheduled, transactions)
    more = [kind for each in old for kind in (*each.ANSWERS, *getattr(each, "REQUESTS", ()))]
    keywords_of = list(keywords().items())
    for each in old:
        keywords_of += each.keywords().items() if hasattr(each, "keywords") else ()
    _, found = msgspec.json.schema_components(
        {Problem: 0, **dict.fromkeys((*ANSWERS, *REQUESTS, *more, *kinds))}, ref_template=REF
    )
    found["Problem"]["properties"]["code"]["enum"] = sorted(ERRORS)
    for name, fields in keywords_of:
        for field, said in fields.items():
            known = found[name]["properties"][field]
            # msgspec offers null wherever the default is None; leaving the field out says the same.
            plain = next((each for each in known.get("anyOf", ()) if each != {"type": "null"}), known)
            default = {"default": known["default"]} if known.get("default") is not None else {}
            is_whole = not said.keys().isdisjoint({"$ref", "contentMediaType", "anyOf"})
            found[name]["properties"][field] = (default if is_whole else plain) | said
    for name in found.keys() & {"JsonMessage", "JsonTopicMessage"}:
        found[name]["oneOf"] = [{"required": [field]} for field in ("body", "json", "body_base64")]
    found["Wait"] = _duration("How long to wait for a first message.", 0, limits.WAIT_MAX_MS)
    found["InvisibleTime"] = _duration(
        "How long a received message stays hidden from the others.", limits.INVISIBLE_MIN_MS, limits.INVISIBLE_MAX_MS
    )
    return {name: found[name] for name in sorted(found)}


def _duration(purpose: str, least_ms: int, most_ms: int) -> Schema:
    return {
        "description": f"{purpose} {least_ms:,} to {most_ms:,} ms, as `500ms`, `10s`, `5m`, `2h`, or plain milliseconds.",
        "anyOf": [
            {"type": "string", "pattern": DURATION_PATTERN},
            {"type": "integer", "minimum": least_ms, "maximum": most_ms},
        ],
    }


def keywords() -> Mapping[str, Mapping[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it, by struct and field. Lengths are bytes of UTF-8 there, so that
    a `maxLength` of as many characters is necessary, not sufficient."""
    metadata: dict[str, Schema] = {
        "content_type": {"maxLength": CONTENT_TYPE_SIZE_MAX_BYTES},
        "tag": {"maxLength": limits.TAG_SIZE_MAX_BYTES, "pattern": "^[^|]*$"},
        "keys": {"maxItems": limits.KEYS_MAX, "items": {"type": "string", "pattern": r"^\S+$"}},
        "properties": {
            "maxProperties": limits.PROPERTIES_MAX,
            "propertyNames": {"minLength": 1, "maxLength": limits.PROPERTY_NAME_SIZE_MAX_BYTES},
            "additionalProperties": {"type": "string", "maxLength": limits.PROPERTY_VALUE_SIZE_MAX_BYTES},
            "description": f"With tag and keys at most {limits.PROPERTIES_SIZE_MAX_BYTES:,} bytes.",
        },
        "queue": {"pattern": f"^$|{QUEUE_PATTERN}", "description": "Pins the queue; by default the proxy chooses."},
        "idempotency_key": {
            "maxLength": limits.IDEMPOTENCY_KEY_SIZE_MAX_BYTES,
            "description": f"A repeat within {limits.IDEMPOTENCY_WINDOW_MS // 60_000} minutes is stored once.",
        },
    }
    body = {"maxLength": limits.MESSAGE_BODY_SIZE_MAX_BYTES}
    batch = {"minItems": 1, "maxItems": limits.BATCH_MESSAGES_MAX}
    settles = {"minItems": 1, "maxItems": limits.SETTLE_ENTRIES_MAX}
    handle = {"type": "string", "maxLength": HANDLE_SIZE_MAX_CHARS}
    offsets = {
        "propertyNames": {"pattern": QUEUE_PATTERN},
        "additionalProperties": {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX},
    }
    binary = {"type": "string", "contentMediaType": "application/octet-stream", **body}
    return {
        "JsonMessage": {
            "body": body,
            "json": {"description": "Any JSON value; its bytes are the body, as they were sent."},
            "body_base64": {"maxLength": -(-limits.MESSAGE_BODY_SIZE_MAX_BYTES // 3) * 4},
            **metadata,
        },
        "PackedMessage": {"body": binary, **metadata},
        "JsonBatch": {"messages": batch},
        "PackedBatch": {"messages": batch},
        "AckRequest": {"receipt_handles": {**settles, "items": handle}},
        "SettleRequest": {"entries": settles},
        "SettleEntry": {
            "receipt_handle": handle,
            "action": {"enum": ["ack", "extend", "nack", "release", "dead_letter"]},
            "reason": {"maxLength": limits.DEAD_LETTER_REASON_SIZE_MAX_BYTES},
            "invisible": ref("InvisibleTime"),
        },
        "ReceiveRequest": {
            "max_messages": {"minimum": 1, "maximum": limits.RECEIVE_MESSAGES_MAX},
            "max_bytes": {"minimum": 1, "maximum": limits.RECEIVE_SIZE_MAX_BYTES},
            "wait": ref("Wait"),
            "invisible": ref("InvisibleTime"),
            "settle": {"maxItems": limits.SETTLE_ENTRIES_MAX},
            "attempt_id": {"maxLength": limits.ATTEMPT_ID_LENGTH_MAX},
        },
        "OffsetsCommit": {
            "topic": {"pattern": TOPIC_PATTERN},
            "offsets": {"minProperties": 1, **offsets},
            "expected": offsets,
            "epochs": {
                **offsets,
                "description": "Of the queues' locks: refused once another member has had one of them.",
            },
        },
    }
