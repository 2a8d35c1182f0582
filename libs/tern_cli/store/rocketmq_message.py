"""A RocketMQ record as a message for TernMQ. Pure.

The body is unpacked, tag, keys and user properties are kept, bookkeeping is dropped:

  RocketMQ                         here
  TAGS, KEYS                       tag, keys
  UNIQ_KEY, else the offset id     idempotency key, and the property rocketmq-message-id
  born time, flag                  the properties rocketmq-born-ms, rocketmq-flag (if it is not 0)
  other names of MessageConst      dropped: they control RocketMQ's own delivery
  everything else                  a property

Values that TernMQ would refuse (a tag with `|`, control characters in a property, a value above 8
KiB, more than 64 properties) become one JSON object, in pieces, in the properties rocketmq-rest-0,
rocketmq-rest-1 and so on: no message is lost because of a property. Reference: Apache RocketMQ 5,
MessageConst.
"""

import json
from dataclasses import replace

from tern_client.calls.models import OutgoingMessage
from tern_wire.limits import (
    IDEMPOTENCY_KEY_SIZE_MAX_BYTES,
    KEYS_MAX,
    PROPERTIES_MAX,
    PROPERTIES_SIZE_MAX_BYTES,
    PROPERTY_NAME_SIZE_MAX_BYTES,
    PROPERTY_VALUE_SIZE_MAX_BYTES,
    ROCKETMQ_RECORD_SIZE_MAX_BYTES,
    TAG_SIZE_MAX_BYTES,
)
from tern_wire.records.properties import CONTENT_TYPE, KEYS, MESSAGE_ID, RESERVED_PROPERTIES, TAGS
from tern_wire.records.read import RocketRecord

PREFIX = "rocketmq-"
# A letter has at most four bytes.
_PIECE_LETTERS = PROPERTY_VALUE_SIZE_MAX_BYTES // 4
# Properties left to the user beside the pieces of the rest (16 KiB) and our three facts.
_USER_PROPERTIES_MAX = PROPERTIES_MAX - PROPERTIES_SIZE_MAX_BYTES // _PIECE_LETTERS - 3
_FACTS_SIZE_BYTES = IDEMPOTENCY_KEY_SIZE_MAX_BYTES + 128
OWN_PROPERTIES = RESERVED_PROPERTIES | {
    *("MQ2_FLAG", "EXTEND_UNIQ_INFO", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES", "__transactionId__"),
    *("CHECK_IMMUNITY_TIME_IN_SECONDS", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE"),
    *("POP_CK_OFFSET", "1ST_POP_TIME", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
    *("TIMER_DEL_UNIQKEY", "TIMER_DEL_MS", "TIMER_ENGINE_TYPE", "DLQ_ORIGIN_MESSAGE_ID", "INNER_BASE", "INNER_NUM"),
    *("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "TRACE_CONTEXT", "BORN_TIMESTAMP", "__BORNHOST"),
    *("ORIGIN_GROUP", "MSG_REAL_TOPIC", "REAL_TAG", "LITE_TOPIC", "__PRIORITY"),
}


def message_of(record: RocketRecord, queue: str) -> OutgoingMessage:
    """Return *record* as a message for *queue* (`broker-a:3`).
    RecordMalformed or CompressionNotInstalled if its body cannot be unpacked. Records that cannot
    be mapped (a body above 4 MiB, properties above 16 KiB) are left for the proxy to refuse.
    """
    found = record.property_map()
    properties, rest = _user_properties(found)
    tag, keys = found.get(TAGS, ""), [key for key in found.get(KEYS, "").split(" ") if key]
    if not _is_legal(tag, TAG_SIZE_MAX_BYTES) or "|" in tag:
        rest[TAGS], tag = tag, ""
    # RocketMQ separates keys by spaces only, TernMQ by any white space.
    if (
        len(keys) > KEYS_MAX
        or " ".join(keys).split() != keys
        or not _is_legal("".join(keys), PROPERTIES_SIZE_MAX_BYTES)
    ):
        rest[KEYS], keys = found[KEYS], []
    if rest:
        # JSON escapes every control character but this one.
        text = json.dumps(rest, ensure_ascii=False).replace("\x7f", "\\u007f")
        pieces = range(0, len(text), _PIECE_LETTERS)
        properties |= {f"{PREFIX}rest-{number}": text[at : at + _PIECE_LETTERS] for number, at in enumerate(pieces)}
    message_id = found.get(MESSAGE_ID, "")
    if not message_id or not _is_legal(message_id, IDEMPOTENCY_KEY_SIZE_MAX_BYTES - len(record.offset_id) - 1):
        message_id = record.offset_id
    facts = {"message-id": message_id, "born-ms": str(record.born_ms)}
    if record.flag:
        facts["flag"] = str(record.flag)
    size_bytes = sum(len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items())
    # The sender's properties have priority: our notes must not make a message too large.
    if (
        size_bytes + len(tag.encode()) + len(found.get(KEYS, "").encode()) + _FACTS_SIZE_BYTES
        < PROPERTIES_SIZE_MAX_BYTES
    ):
        properties |= {PREFIX + name: value for name, value in facts.items()}
    return OutgoingMessage(
        body=record.plain_body(ROCKETMQ_RECORD_SIZE_MAX_BYTES),
        tag=tag,
        keys=tuple(keys),
        properties=properties,
        content_type=found.get(CONTENT_TYPE, ""),
        queue=queue,
        idempotency_key=message_id,
    )


def _user_properties(found: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the sender's properties, and those that cannot become properties."""
    users = {name: value for name, value in found.items() if name not in OWN_PROPERTIES}
    fitting = [
        name
        for name, value in users.items()
        if _is_legal(name, PROPERTY_NAME_SIZE_MAX_BYTES) and _is_legal(value, PROPERTY_VALUE_SIZE_MAX_BYTES)
    ]
    properties = {name: users.pop(name) for name in fitting[:_USER_PROPERTIES_MAX]}
    return properties, users


def _is_legal(text: str, size_max_bytes: int) -> bool:
    return len(text.encode()) <= size_max_bytes and not any(sign < " " or sign == "\x7f" for sign in text)


def told_apart(message: OutgoingMessage, record: RocketRecord) -> OutgoingMessage:
    """Return *message* with the record's offset id in its idempotency key.
    Needed for records with different bodies that share one UNIQ_KEY.
    """
    return replace(message, idempotency_key=f"{message.idempotency_key}@{record.offset_id}")
