"""Parameters and headers of sends, receives and pulls. Transactions and requests are sends, too."""

from tern_proxy.core.documents.receives import ReceiveRequest
from tern_proxy.core.documents.sends import AFTER, AT, IN_ORDER, LEVEL, PINS
from tern_proxy.core.documents.values import DURATION_PATTERN, OFFSET_MAX, QUEUE_PATTERN
from tern_proxy.core.sending.parameters import QUERY_FIELDS_MAX
from tern_proxy.routes.failures import ASKED, BROKER, READ, TOPIC
from tern_proxy.routes.messages.bodies import ENCODING
from tern_proxy.routes.messages.pulls import MESSAGES_DEFAULT
from tern_proxy.routes.route import MOMENT, Schema, in_header, in_query, number, ref
from tern_wire import limits, paths
from tern_wire.errors import (
    BrokerGroupNotWritable,
    DiskFull,
    IdempotencyKeyReused,
    IllegalDeliveryTime,
    IllegalIdempotencyKey,
    IllegalKey,
    IllegalMessageGroup,
    IllegalProperty,
    IllegalTag,
    MessageTooLarge,
    OwnerUnknown,
    PlacementChanged,
    PropertiesTooLarge,
    PropertyConflictsWithType,
    QueueNotFound,
    TopicNotWritable,
    TopicReserved,
    UnsupportedEncoding,
)
from tern_wire.paths import JSON, OCTETS
from tern_wire.records.compression import ENCODINGS
from tern_wire.records.layout import HEAD_SIZE_BYTES

# When all messages of a request have the same error, it is the answer.
SENT = (
    *(*ASKED, *READ, *TOPIC, *BROKER),
    *(IllegalTag, IllegalKey, IllegalProperty, IllegalIdempotencyKey, QueueNotFound),
    *(MessageTooLarge, PropertiesTooLarge, IdempotencyKeyReused, DiskFull),
    *(IllegalMessageGroup, IllegalDeliveryTime, PropertyConflictsWithType),
    *(BrokerGroupNotWritable, OwnerUnknown, PlacementChanged, UnsupportedEncoding, TopicReserved, TopicNotWritable),
)
_TAG: Schema = {"type": "string", "maxLength": limits.TAG_SIZE_MAX_BYTES, "pattern": "^[^|]*$"}
_QUEUE: Schema = {"type": "string", "pattern": QUEUE_PATTERN}
_KEY: Schema = {"type": "string", "pattern": r"^\S+$"}
_ONCE_KEY: Schema = {"type": "string", "minLength": 1, "maxLength": limits.IDEMPOTENCY_KEY_SIZE_MAX_BYTES}
_ONCE = (
    f"A repeat within {limits.IDEMPOTENCY_WINDOW_MS // 60_000} minutes is stored once and returns the first receipt."
)
_PROPERTY: Schema = {"type": "string", "maxLength": limits.PROPERTY_VALUE_SIZE_MAX_BYTES}
_PROPERTIES: Schema = {"type": "object", "maxProperties": limits.PROPERTIES_MAX, "additionalProperties": _PROPERTY}
_GROUP: Schema = {"type": "string", "maxLength": limits.MESSAGE_GROUP_SIZE_MAX_BYTES}
_DELAY: Schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": DURATION_PATTERN}]}
_COMPRESSED: Schema = {"type": "string", "enum": list(ENCODINGS)}
# Delivery time and order of a message.
_TIMING: tuple[tuple[str, Schema, str], ...] = (
    ("message_group", _GROUP, IN_ORDER),
    ("delay", _DELAY, AFTER),
    ("deliver_at", MOMENT, AT),
    ("delay_level", {"type": "integer", "minimum": 1}, LEVEL),
)
SEND_PARAMETERS = (
    in_query("tag", _TAG, "Overrides MQ-Tag."),
    in_query("key", {"type": "array", "items": _KEY, "maxItems": limits.KEYS_MAX}, "May be repeated."),
    in_query("queue", _QUEUE, PINS),
    in_query("idempotency_key", _ONCE_KEY, _ONCE),
    *(in_query(name, schema, text) for name, schema, text in _TIMING),
    *(in_header("MQ-" + name.title().replace("_", "-"), schema, text) for name, schema, text in _TIMING),
    in_header(paths.HEADER_TAG, _TAG, "One tag."),
    in_header(paths.HEADER_KEY, _KEY, f"One key; the header may be repeated, {limits.KEYS_MAX} times at most."),
    in_header(paths.HEADER_QUEUE, _QUEUE, "Pins the queue."),
    in_header(paths.HEADER_CONTENT_ENCODING, _COMPRESSED, "How the body is compressed; readers get both."),
    {
        "name": paths.HEADER_PROPERTIES,
        "in": "header",
        "content": {JSON: {"schema": _PROPERTIES}},
        "description": f"Properties, with tag and keys at most {limits.PROPERTIES_SIZE_MAX_BYTES:,} bytes.",
    },
    in_header(paths.HEADER_IDEMPOTENCY_KEY, _ONCE_KEY, _ONCE),
    in_header("Prefer", {"type": "string"}, "`return=minimal`: 204, and the receipt in headers."),
)
# Any header with this prefix is a property.
SEND_EXTENSIONS = {
    "x-header-prefixes": {paths.HEADER_PROPERTY_PREFIX: {"description": "One property.", "schema": _PROPERTY}}
}
# The message itself, whatever its content type.
MESSAGE_BODY: Schema = {"type": "string", "contentMediaType": OCTETS, "maxLength": limits.MESSAGE_BODY_SIZE_MAX_BYTES}

# Reading ------------------------------------------------------------------------------------------
FILTER: Schema = {"type": "string", "maxLength": limits.FILTER_SIZE_MAX_BYTES}
TERMS = f"At most {limits.FILTER_TERMS_MAX} terms: tags, or tests, of which IN has one for each value."
_WAIT = in_query("wait", ref("Wait"), "Answer at the first message, or empty at the end of the time.")
_DEFAULTS = ReceiveRequest()
RECEIVE_PARAMETERS = (
    number(
        "max_messages",
        1,
        limits.RECEIVE_MESSAGES_MAX,
        _DEFAULTS.max_messages,
        "Overrides the body, like all parameters here.",
    ),
    number("max_bytes", 1, limits.RECEIVE_SIZE_MAX_BYTES, _DEFAULTS.max_bytes, "One message is returned in any case."),
    _WAIT,
    in_query("invisible", ref("InvisibleTime"), "Length of the lease; by default the group's."),
    ENCODING,
    in_query("format", {"type": "string", "enum": ["raw"]}, f"One message, as with `Accept: {OCTETS}`."),
    in_query(
        "attempt_id",
        {"type": "string"},
        f"At most {limits.ATTEMPT_ID_LENGTH_MAX} characters. A repeat gets the same messages and handles, as long as their "
        "leases last.",
    ),
    in_query(
        "tags", FILTER, f"`A || B`. Dropped messages count as consumed by the whole group, also with `sql`. {TERMS}"
    ),
    in_query("sql", FILTER, f"An SQL92 condition over properties. {TERMS}"),
)
_OFFSETS: Schema = {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX}
_FROM: Schema = {
    "anyOf": [
        _OFFSETS,
        {"type": "string", "enum": ["earliest", "latest"]},
        {"type": "string", "pattern": "^@", "description": "`@` and a time: ms since 1970, or RFC 3339."},
    ],
    "default": "earliest",
}
PULL_PARAMETERS = (
    in_query("offset", _FROM, "The first offset."),
    in_query("end_offset", _OFFSETS, "The end offset, exclusive."),
    number("max_messages", 1, limits.PULL_MESSAGES_MAX, MESSAGES_DEFAULT, "Largest number of messages."),
    number(
        *("max_bytes", 1, limits.RECEIVE_SIZE_MAX_BYTES, limits.RECEIVE_SIZE_DEFAULT_BYTES),
        "One message is returned in any case.",
    ),
    _WAIT,
    in_query("tags", FILTER, f"Only messages with one of these tags: `A || B`. {TERMS}"),
    in_query("sql", FILTER, f"Only messages whose properties make this SQL92 condition true. {TERMS}"),
    in_header("If-None-Match", {"type": "string"}, "The ETag of a closed range that the client has."),
    ENCODING,
    in_query(
        "fields",
        {"type": "string", "enum": ["heads"]},
        f"Of records: only their heads, {HEAD_SIZE_BYTES} bytes each, without body and properties. `max_bytes` counts those.",
    ),
)
HANDLES: Schema = {"type": "array", "items": {"type": "string"}, "maxItems": QUERY_FIELDS_MAX}
