"""Documents of sent messages: batches in JSON and in MessagePack.

The raw form has the same fields as parameters and headers. In JSON, exactly one of `body`, `json`,
`body_base64` carries the message; in MessagePack `body` is binary. At most one of `delay`,
`deliver_at` and `delay_level` sets its delivery time. Lengths are bytes of UTF-8, so a `maxLength`
of as many characters is necessary, not sufficient.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from tern_proxy.core.documents.values import QUEUE_PATTERN, DurationText, instead, shown
from tern_wire import limits
from tern_wire.records.compression import ENCODINGS

CONTENT_TYPE_SIZE_MAX_BYTES = 255
PINS = "Pins the queue; by default the proxy chooses."
_PROPERTIES = f"With tag and keys at most {limits.PROPERTIES_SIZE_MAX_BYTES:,} bytes."
IN_ORDER = "Messages of one message group are delivered in order."
_DAYS_MAX = limits.TIMER_DELAY_MAX_MS // 86_400_000
AFTER = f"Delay until the delivery, such as `30s`; {_DAYS_MAX} days at most."
AT = f"Delivered at this time, {_DAYS_MAX} days from now at most; at once if it is past."
LEVEL = f"RocketMQ's delay level, 1 to {len(limits.DELAY_LEVELS_MS)} (larger ones count as that)."
_ONCE = f"A repeat within {limits.IDEMPOTENCY_WINDOW_MS // 60_000} minutes is stored once."

# A list or map beyond this length is refused before its elements are decoded: in MessagePack,
# thousands of them fit into a few bytes each.
BOUNDED = Meta(max_length=limits.PACKED_ELEMENTS_MAX)
_BODY_MAX = limits.MESSAGE_BODY_SIZE_MAX_BYTES
Text = Annotated[str, shown(maxLength=_BODY_MAX)]
Base64 = Annotated[bytes, shown(maxLength=-(-_BODY_MAX // 3) * 4)]
Bytes = Annotated[
    bytes, instead(maxLength=_BODY_MAX, contentMediaType="application/octet-stream", contentEncoding=None)
]
ContentType = Annotated[str, shown(maxLength=CONTENT_TYPE_SIZE_MAX_BYTES)]
ContentEncoding = Annotated[
    str,
    shown("How the producer has compressed the body; readers get both.", pattern=f"^$|^({'|'.join(ENCODINGS)})$"),
]
Tag = Annotated[str, shown(maxLength=limits.TAG_SIZE_MAX_BYTES, pattern="^[^|]*$")]
Keys = Annotated[list[Annotated[str, shown(pattern=r"^\S+$")]], shown(maxItems=limits.KEYS_MAX)]
Properties = Annotated[
    dict[str, Annotated[str, shown(maxLength=limits.PROPERTY_VALUE_SIZE_MAX_BYTES)]],
    shown(
        _PROPERTIES,
        maxProperties=limits.PROPERTIES_MAX,
        propertyNames={"minLength": 1, "maxLength": limits.PROPERTY_NAME_SIZE_MAX_BYTES},
    ),
]
PinnedQueue = Annotated[str, shown(PINS, pattern=f"^$|{QUEUE_PATTERN}")]
IdempotencyKey = Annotated[str, shown(_ONCE, maxLength=limits.IDEMPOTENCY_KEY_SIZE_MAX_BYTES)]
MessageGroup = Annotated[str, shown(IN_ORDER, maxLength=limits.MESSAGE_GROUP_SIZE_MAX_BYTES)]
Delay = Annotated[Annotated[int, shown(minimum=0)] | DurationText | None, shown(AFTER)]
Moment = Annotated[Annotated[int, shown(minimum=0)] | Annotated[str, shown(format="date-time")] | None, shown(AT)]
DelayLevel = Annotated[Annotated[int, shown(minimum=1)] | None, shown(LEVEL)]


class JsonMessage(Struct, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """One message in a JSON or NDJSON batch.

    `json` belongs to the client: it must be JSON, no deeper than JSON_DEPTH_MAX.
    """

    body: Text | None = None
    json: Annotated[Raw, shown("Any JSON value; its bytes are the body, as they were sent.")] | UnsetType = UNSET
    body_base64: Base64 | None = None
    content_type: ContentType = ""
    content_encoding: ContentEncoding = ""
    tag: Tag = ""
    keys: Keys = []
    properties: Properties = {}
    queue: PinnedQueue = ""
    idempotency_key: IdempotencyKey = ""
    message_group: MessageGroup = ""
    delay: Delay = None
    deliver_at: Moment = None
    delay_level: DelayLevel = None


class JsonBatch(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The body of a JSON batch."""

    messages: Annotated[list[JsonMessage], shown(minItems=1, maxItems=limits.BATCH_MESSAGES_MAX)]


class PackedMessage(Struct, forbid_unknown_fields=True, gc=False):
    """One message in a MessagePack batch."""

    body: Bytes
    content_type: ContentType = ""
    content_encoding: ContentEncoding = ""
    tag: Tag = ""
    keys: Annotated[Keys, BOUNDED, instead(maxItems=limits.KEYS_MAX)] = []
    properties: Annotated[Properties, BOUNDED, instead(maxProperties=limits.PROPERTIES_MAX)] = {}
    queue: PinnedQueue = ""
    idempotency_key: IdempotencyKey = ""
    message_group: MessageGroup = ""
    delay: Delay = None
    deliver_at: Moment = None
    delay_level: DelayLevel = None


class PackedBatch(Struct, forbid_unknown_fields=True):
    """The body of a MessagePack batch."""

    messages: Annotated[list[PackedMessage], BOUNDED, instead(minItems=1, maxItems=limits.BATCH_MESSAGES_MAX)]
