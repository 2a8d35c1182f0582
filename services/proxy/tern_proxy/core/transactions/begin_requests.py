"""Parsing of begins: one message as in a send, or a document with several messages and their
topics.
"""

from collections.abc import Mapping, Sequence

from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.documents.transactions import (
    JsonTopicMessage,
    JsonTransaction,
    PackedTopicMessage,
    PackedTransaction,
)
from tern_proxy.core.sending.batches import PACKED, SUPPORTED_DOCUMENTS, media_type
from tern_proxy.core.sending.parameters import SEND_PARAMETERS, Headers, header_text, read_send, split_own
from tern_proxy.core.transactions.begins import check_after_of, key_of, producer_group_of
from tern_wire.errors import BatchEmpty, BatchTooLarge, IllegalIdempotencyKey, UnknownField, UnsupportedBatchFormat
from tern_wire.limits import JSON_BATCH_NODES_MAX, TRANSACTION_MESSAGES_MAX
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.paths import HEADER_CHECK_AFTER, HEADER_IDEMPOTENCY_KEY, HEADER_PRODUCER_GROUP, JSON

_IDEMPOTENCY_KEY = HEADER_IDEMPOTENCY_KEY.lower().encode()
# Parameter -> header, for those that a send does not have.
_OF_BEGIN = {"producer_group": HEADER_PRODUCER_GROUP, "check_after": HEADER_CHECK_AFTER}


def read_begin(headers: Headers, query_string: bytes, body: bytes) -> tuple[PackedMessage, str, int]:
    """Return the message, the producer group, and the delay of the first check (ms; 0: the producer
    group's setting).

    Raise the errors of `read_send`, and InvalidField, IllegalGroup.
    """
    given, rest, query = split_own(headers, query_string, _OF_BEGIN, (*SEND_PARAMETERS, *_OF_BEGIN))
    try:
        message = read_send(rest, query, body)
    except UnknownField as error:
        known = f"{error.fields.get('allowed', '')}, {', '.join(_OF_BEGIN.values())}"
        raise UnknownField(**{**error.fields, "allowed": known}) from error
    producer_group, check_after = given.get("producer_group"), given.get("check_after")
    return (
        message,
        producer_group_of(*(producer_group or ("", f"header/{HEADER_PRODUCER_GROUP}"))),
        check_after_of(*check_after) if check_after else 0,
    )


def read_begin_document(
    body: bytes, content_type: str
) -> tuple[Sequence[PackedTopicMessage | JsonTopicMessage], str, int]:
    """Parse a begin of 1 to TRANSACTION_MESSAGES_MAX messages, in JSON or MessagePack; otherwise as
    `read_begin`.

    Raise UnsupportedBatchFormat, BatchEmpty, BatchTooLarge, or an error of the body with a pointer.
    """
    kind = media_type(content_type)
    asked: JsonTransaction | PackedTransaction
    if kind in PACKED:
        asked = read_msgpack(body, PackedTransaction)
    elif kind == JSON:
        asked = read_json(body, JsonTransaction, nodes_max=JSON_BATCH_NODES_MAX)
    else:
        raise UnsupportedBatchFormat(content_type=content_type[:80], supported=SUPPORTED_DOCUMENTS)
    messages: Sequence[PackedTopicMessage | JsonTopicMessage] = asked.messages
    if not messages:
        raise BatchEmpty()
    if len(messages) > TRANSACTION_MESSAGES_MAX:
        raise BatchTooLarge(actual=len(messages), limit=TRANSACTION_MESSAGES_MAX, unit="messages of one transaction")
    producer_group = producer_group_of(asked.producer_group, "/producer_group")
    return messages, producer_group, check_after_of(asked.check_after, "/check_after")


def read_key(fields: Mapping[bytes, bytes], messages: Sequence[PackedMessage | JsonMessage]) -> str:
    """Return the idempotency key of a transaction of several messages; "" for none.

    It comes from the header or the first message (`key_of`).
    """
    value = fields.get(_IDEMPOTENCY_KEY)
    if value is None:
        return key_of(messages, "")
    if not value:
        raise IllegalIdempotencyKey(pointer=f"header/{HEADER_IDEMPOTENCY_KEY}")
    return key_of(messages, header_text(_IDEMPOTENCY_KEY, value))
