"""The operations on messages in the API document: send, batch, receive, ack, settle, pull. FastAPI does not know them.

Data, not behaviour; see operations.py.
"""

from tern_proxy.core.reading.delivery import ENCODINGS
from tern_proxy.core.sending.parameters import QUERY_FIELDS_MAX
from tern_proxy.openapi import schemas
from tern_proxy.openapi.operations import (
    ASKED,
    BROKER,
    READ,
    TOPIC,
    Operation,
    gives,
    headers,
    in_header,
    in_query,
    number,
    takes,
)
from tern_proxy.openapi.scheduled import TIMING
from tern_proxy.openapi.schemas import Schema, ref
from tern_proxy.routes.pull import MESSAGES_DEFAULT
from tern_wire import limits, messages, paths
from tern_wire.link.codec import encode_json
from tern_wire.paths import JSON, JSONL, MSGPACK, NDJSON, OCTETS, RECORDS

EXAMPLE_HANDLE = "AQABAAAAAQAAAAEAAAADAAAAAAAAACoAAAAAAAAAB2Jyb2tlci1hb3JkZXJzYmlsbGlu"
_MESSAGE_ID = "7F3A9C01D2E4B5A6978800000000002A"

# Errors of messages and handles. When all of a request meet the same one, it is the answer.
_REFUSED = (
    *("illegal-tag", "illegal-key", "illegal-property", "illegal-idempotency-key", "queue-not-found"),
    *("message-too-large", "properties-too-large", "idempotency-key-reused", "disk-full"),
    *("illegal-message-group", "illegal-delivery-time", "property-conflicts-with-type"),
)
_PLACED = ("broker-group-not-writable", "owner-unknown", "placement-changed")
SENT = (*ASKED, *READ, *TOPIC, *BROKER, *_REFUSED, *_PLACED, "unsupported-encoding", "topic-reserved")
_SETTLED = (
    *(*ASKED, *READ, *BROKER, "illegal-topic", "illegal-group", "receipt-invalid", "receipt-expired"),
    *("batch-too-large", "unsupported-encoding", "disk-full"),
)

# Parameters -------------------------------------------------------------------------------------------------------
_TAG: Schema = {"type": "string", "maxLength": limits.TAG_SIZE_MAX_BYTES, "pattern": "^[^|]*$"}
_QUEUE: Schema = {"type": "string", "pattern": schemas.QUEUE_PATTERN}
_KEY: Schema = {"type": "string", "pattern": r"^\S+$"}
_FILTER: Schema = {"type": "string", "maxLength": limits.FILTER_SIZE_MAX_BYTES}
_TERMS = f"At most {limits.FILTER_TERMS_MAX} terms: tags, or tests, of which IN has one a value."
_ONCE_KEY: Schema = {"type": "string", "minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_SIZE_MAX_BYTES}
_ONCE = (
    f"A repeat within {limits.IDEMPOTENCY_WINDOW_MS // 60_000} minutes is stored once and answers the first receipt."
)
_PROPERTY: Schema = {"type": "string", "maxLength": limits.PROPERTY_VALUE_SIZE_MAX_BYTES}
_PROPERTIES: Schema = {"type": "object", "maxProperties": limits.PROPERTIES_MAX, "additionalProperties": _PROPERTY}
SEND_PARAMETERS = (
    in_query("tag", _TAG, "Wins over MQ-Tag."),
    in_query("key", {"type": "array", "items": _KEY, "maxItems": limits.KEYS_MAX}, "May be repeated."),
    in_query("queue", _QUEUE, "Pins the queue; by default the proxy chooses."),
    in_query("idempotency_key", _ONCE_KEY, _ONCE),
    *(in_query(name, schema, text) for name, schema, text in TIMING),
    *(in_header("MQ-" + name.title().replace("_", "-"), schema, text) for name, schema, text in TIMING),
    in_header(paths.HEADER_TAG, _TAG, "One tag."),
    in_header(paths.HEADER_KEY, _KEY, f"One key; the header may be repeated, {limits.KEYS_MAX} times at most."),
    in_header(paths.HEADER_QUEUE, _QUEUE, "Pins the queue."),
    {
        "name": paths.HEADER_PROPERTIES,
        "in": "header",
        "content": {JSON: {"schema": _PROPERTIES}},
        "description": f"Properties, with tag and keys at most {limits.PROPERTIES_SIZE_MAX_BYTES:,} bytes.",
    },
    in_header(paths.HEADER_IDEMPOTENCY_KEY, _ONCE_KEY, _ONCE),
    in_header("Prefer", {"type": "string"}, "`return=minimal`: 204, and the receipt in headers."),
)
_WAIT = in_query("wait", ref("Wait"), "Answer at the first message, or empty when the time is over.")
_ENCODING = in_query(
    "encoding",
    {"type": "string", "enum": list(ENCODINGS)},
    "How bodies are written in JSON and NDJSON; by default by content type. What does not fit becomes `body_base64`.",
)
_DEFAULTS = messages.ReceiveRequest()
_RECEIVE_PARAMETERS = (
    number("max_messages", 1, limits.RECEIVE_MESSAGES_MAX, _DEFAULTS.max_messages, "Wins over the body, as all here."),
    number("max_bytes", 1, limits.RECEIVE_SIZE_MAX_BYTES, _DEFAULTS.max_bytes, "One message comes in any case."),
    _WAIT,
    in_query("invisible", ref("InvisibleTime"), "Length of the lease; by default the group's."),
    _ENCODING,
    in_query("format", {"type": "string", "enum": ["raw"]}, f"One message, as with `Accept: {OCTETS}`."),
    in_query(
        "attempt_id",
        {"type": "string"},
        f"At most {limits.ATTEMPT_ID_LENGTH_MAX} characters. The same one again gets the same messages and handles, as long as their "
        "leases last.",
    ),
    in_query(
        "tags", _FILTER, f"`A || B`. What is dropped counts as consumed by the whole group; so do with `sql`. {_TERMS}"
    ),
    in_query("sql", _FILTER, f"An SQL92 condition over properties. {_TERMS}"),
)
_OFFSETS: Schema = {"type": "integer", "minimum": 0, "maximum": schemas.OFFSET_MAX}
_FROM: Schema = {
    "anyOf": [
        _OFFSETS,
        {"type": "string", "enum": ["earliest", "latest"]},
        {"type": "string", "pattern": "^@", "description": "`@` and a time: ms since 1970, or RFC 3339."},
    ],
    "default": "earliest",
}
_PULL_PARAMETERS = (
    in_query("offset", _FROM, "Where to begin."),
    in_query("end_offset", _OFFSETS, "Where to end; this one is not included."),
    number("max_messages", 1, limits.PULL_MESSAGES_MAX, MESSAGES_DEFAULT, "At most so many."),
    number(
        *("max_bytes", 1, limits.RECEIVE_SIZE_MAX_BYTES, limits.RECEIVE_SIZE_DEFAULT_BYTES),
        "One message comes in any case.",
    ),
    _WAIT,
    in_query("tags", _FILTER, f"Only messages with one of these tags: `A || B`. {_TERMS}"),
    in_query("sql", _FILTER, f"Only messages whose properties make this SQL92 condition true. {_TERMS}"),
    in_header("If-None-Match", {"type": "string"}, "The ETag of a closed range that the client has."),
    _ENCODING,
)
_HANDLES: Schema = {"type": "array", "items": {"type": "string"}, "maxItems": QUERY_FIELDS_MAX}

# Documents --------------------------------------------------------------------------------------------------------
_BODY: Schema = {"type": "string", "contentMediaType": OCTETS, "maxLength": limits.MESSAGE_BODY_SIZE_MAX_BYTES}
_BATCH = {"messages": [{"json": {"total": 9.5}, "tag": "created"}, {"body": "plain text", "keys": ["order-7"]}]}
_PACKED = {"messages": [{"body": "bytes, as MessagePack's bin", "tag": "created"}]}
_LINES = '{"json": {"total": 9.5}, "tag": "created"}\n{"body": "plain text", "keys": ["order-7"]}\n'
_JSON_BATCH = '{"messages": [{"json": {"total": 9.5}, "tag": "created"}, {"body": "plain text", "keys": ["order-7"]}]}'
_RECEIPT = {"message_id": _MESSAGE_ID, "queue": "broker-a:3", "offset": 42, "born_at": 1_767_225_600_000}
_STORED = {
    "message_id": _MESSAGE_ID,
    "topic": "orders",
    "queue": "broker-a:3",
    "offset": 42,
    "json": {"total": 9.5},
    "content_type": JSON,
    "tag": "created",
    "born_at": 1_767_225_600_000,
    "stored_at": 1_767_225_600_003,
}
_LEASED = {**_STORED, "attempt": 1, "receipt_handle": EXAMPLE_HANDLE, "invisible_until": 1_767_225_660_003}
_OK = {"receipt_handle": EXAMPLE_HANDLE, "status": "ok"}
_FAILED = {
    "type": "/problems/receipt-expired",
    "title": "The lease is over",
    "status": 410,
    "code": "receipt-expired",
    "detail": "The message became visible again before it was settled.",
    "retryable": False,
}
_REUSED = {
    "type": "/problems/idempotency-key-reused",
    "status": 422,
    "code": "idempotency-key-reused",
    "retryable": False,
    "title": "The idempotency key belongs to another message",
    "detail": "Use a new key for a new message.",
}
_WAITED = (paths.HEADER_WAIT_APPLIED,)
_PLACE = (
    *(paths.HEADER_NEXT_OFFSET, paths.HEADER_MIN_OFFSET, paths.HEADER_MAX_OFFSET, "Link"),
    *(paths.HEADER_WAIT_APPLIED, "ETag", "Cache-Control"),
)


def _lines(kind: str, example: str) -> Schema:
    # One document a line: OpenAPI 3.2 has itemSchema for this, 3.1 has not.
    return {"schema": {"type": "string"}, "example": example, "x-itemSchema": ref(kind)}


def _line(document: Schema) -> str:
    return encode_json(document).decode() + "\n"


def _settled(done: str) -> dict[int, Schema]:
    partly = {"results": [_OK, {"receipt_handle": "AQAB", "error": _FAILED}], "failed": 1}
    return {
        200: gives(schemas.SettleResults, f"All are {done}.", {"results": [_OK], "failed": 0}),
        207: gives(schemas.SettleResults, "Some failed; each has its result.", partly),
    }


def _also(answer: Schema, **content: Schema) -> Schema:
    return {**answer, "content": {**answer["content"], **content}}


_RAW: Schema = {"schema": {"type": "string", "contentMediaType": OCTETS}}
_RECEIVED = gives(schemas.Received, "Messages, perhaps none.", {"messages": [_LEASED], "settled": []}, *_WAITED)
_PULLED = gives(
    *(schemas.Pulled, "Messages, perhaps none."),
    {"messages": [_STORED], "next_offset": 43, "min_offset": 0, "max_offset": 43},
    *_PLACE,
)

MESSAGES: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=paths.messages_path("{topic}"),
        id="sendMessage",
        tag="messages",
        summary="Send one message",
        description="The body is the message, byte for byte, whatever its content type; metadata are headers or query.",
        parameters=SEND_PARAMETERS,
        body={
            "*/*": {"schema": _BODY},
            JSON: {"schema": {}, "example": {"total": 9.5}},
            "text/plain": {"schema": {"type": "string"}, "example": "hello"},
        },
        answers={
            200: gives(schemas.SendReceipt, "Stored before: the first receipt.", _RECEIPT, paths.HEADER_REPLAYED),
            201: {
                **gives(schemas.SendReceipt, "Stored.", _RECEIPT, "Location"),
                "links": {
                    "read": {
                        "operationId": "pullMessages",
                        "parameters": {
                            "topic": "$request.path.topic",
                            "queue": "$response.body#/queue",
                            "offset": "$response.body#/offset",
                        },
                    }
                },
            },
            204: {
                "description": "Stored, and `Prefer: return=minimal` was asked for.",
                "headers": headers(
                    *("MQ-Message-Id", "MQ-Queue", "MQ-Offset", "Preference-Applied", paths.HEADER_REPLAYED),
                    *("MQ-Recall-Handle", paths.HEADER_DELIVER_AT),
                ),
            },
        },
        errors=SENT,
        query="?tag=created",
        bodies=((JSON, '{"total": 9.5}'), ("text/plain", "hello")),
        extensions={
            "x-header-prefixes": {paths.HEADER_PROPERTY_PREFIX: {"description": "One property.", "schema": _PROPERTY}}
        },
    ),
    Operation(
        method="POST",
        path=paths.batch_path("{topic}"),
        id="sendBatch",
        tag="messages",
        summary="Send many messages",
        description=(
            f"1 to {limits.BATCH_MESSAGES_MAX:,} messages in at most {limits.BATCH_SIZE_MAX_BYTES:,} bytes. Those that are not "
            "allowed fail alone; when all fail for one cause, its problem is the answer."
        ),
        body={
            JSON: {"schema": ref(messages.JsonBatch), "examples": {"batch": {"value": _BATCH}}},
            NDJSON: _lines("JsonMessage", _LINES),
            JSONL: _lines("JsonMessage", _LINES),
            MSGPACK: {"schema": ref(messages.PackedBatch), "examples": {"batch": {"value": _PACKED}}},
        },
        is_body_needed=True,
        answers={
            200: gives(schemas.BatchResults, "All are stored.", {"results": [{"index": 0, **_RECEIPT}], "failed": 0}),
            207: gives(
                *(schemas.BatchResults, "Some failed; each has its result."),
                {"results": [{"index": 0, **_RECEIPT}, {"index": 1, "error": _REUSED}], "failed": 1},
            ),
        },
        errors=(*SENT, "batch-empty", "batch-too-large", "unsupported-batch-format"),
        bodies=((JSON, _JSON_BATCH), (NDJSON, _LINES)),
    ),
    Operation(
        method="POST",
        path=paths.receive_path("{topic}", "{group}"),
        id="receiveMessages",
        tag="messages",
        summary="Receive with a lease",
        description=(
            "Messages that nobody else of the group holds. Settle them before `invisible_until`, or they come again. `settle` in "
            f"the body is applied before the wait begins. NDJSON ends with a line `settled` when it was asked for. `Accept: {OCTETS}` or "
            "`?format=raw` gives one message: its body and content type, all else in MQ-* headers."
        ),
        parameters=_RECEIVE_PARAMETERS,
        body=takes(
            messages.ReceiveRequest,
            long_poll={"max_messages": 32, "wait": "20s", "invisible": "1m"},
            settle_too={"settle": [{"receipt_handle": EXAMPLE_HANDLE}], "wait": 500},
            filtered={"filter": {"tags": ["created", "paid"]}},
        ),
        answers={
            200: {
                **_also(_RECEIVED, **{NDJSON: _lines("LeasedMessage", _line(_LEASED)), OCTETS: _RAW, "*/*": _RAW}),
                "links": {
                    "ack": {
                        "operationId": "ackMessages",
                        "parameters": {
                            "topic": "$request.path.topic",
                            "group": "$request.path.group",
                            "receipt_handle": "$response.body#/messages/0/receipt_handle",
                        },
                    }
                },
            },
            204: {"description": "Raw form: there is no message.", "headers": headers(*_WAITED)},
        },
        errors=(
            *(*ASKED, *READ, *TOPIC, *BROKER, "illegal-group", "group-not-found", "illegal-wait", "disk-full"),
            *("illegal-invisible-time", "batch-too-large", "limit-reached", "unsupported-encoding"),
            *("illegal-filter", "subscription-conflict", "broadcast-group"),
        ),
        bodies=((JSON, '{"max_messages": 32, "wait": "1s"}'),),
    ),
    Operation(
        method="POST",
        path=paths.ack_path("{topic}", "{group}"),
        id="ackMessages",
        tag="messages",
        summary="Acknowledge",
        description=f"1 to {limits.SETTLE_ENTRIES_MAX:,} receipt handles, in the body or in the query. Any proxy takes them.",
        parameters=(in_query("receipt_handle", _HANDLES, "May be repeated; instead of a body."),),
        body=takes(messages.AckRequest, ack={"receipt_handles": [EXAMPLE_HANDLE]}),
        answers=_settled("acknowledged"),
        errors=_SETTLED,
        bodies=((JSON, f'{{"receipt_handles": ["{EXAMPLE_HANDLE}"]}}'),),
    ),
    Operation(
        method="POST",
        path=paths.settle_path("{topic}", "{group}"),
        id="settleMessages",
        tag="messages",
        summary="Acknowledge, extend, give back and reject",
        description=(
            f"1 to {limits.SETTLE_ENTRIES_MAX:,} leases. `invisible` belongs to `extend`; `delay` (0 s to 12 h) to `nack`, which without one "
            "rests as long as the group's retry policy says; `reason` to `dead_letter`. After its last attempt a nacked message is a dead "
            "letter, too. `release` gives back what no handler has seen, such as what a client received ahead and does not come to: it is "
            "visible at once, and its attempt does not count. Attempts of earlier leases stay counted, and so does a lease that ends "
            "without a word. Said again, it is `receipt-expired`, as is everything else said of that lease."
        ),
        body=takes(
            messages.SettleRequest,
            settle={"entries": [{"receipt_handle": EXAMPLE_HANDLE, "action": "extend", "invisible": "1m"}]},
        ),
        is_body_needed=True,
        answers=_settled("settled"),
        errors=(*_SETTLED, "illegal-invisible-time"),
        bodies=(
            (JSON, f'{{"entries": [{{"receipt_handle": "{EXAMPLE_HANDLE}", "action": "extend", "invisible": "1m"}}]}}'),
        ),
    ),
    Operation(
        method="GET",
        path=paths.pull_path("{topic}", "{queue}"),
        id="pullMessages",
        tag="messages",
        summary="Read one queue by offset",
        description=(
            f"For readers that keep their own place; nothing is leased. `Accept: {RECORDS}` gives concatenated records in "
            "RocketMQ's layout, for which `encoding` has no meaning."
        ),
        parameters=_PULL_PARAMETERS,
        answers={
            200: _also(_PULLED, **{NDJSON: _lines("Message", _line(_STORED)), RECORDS: _RAW}),
            304: {"description": "The client has this closed range.", "headers": headers("ETag", "Cache-Control")},
        },
        errors=(
            *(*ASKED, *TOPIC, *BROKER, "queue-not-found", "illegal-wait", "illegal-filter", "offset-expired"),
            "topic-not-readable",
        ),
        query="?offset=0&max_messages=10",
    ),
)
