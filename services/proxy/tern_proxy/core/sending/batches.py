"""Parsing of batches: JSON, NDJSON (one message a line) or MessagePack, by content type; bodies of
JSON messages.
"""

from collections.abc import Sequence

from msgspec import UNSET

from tern_proxy.core.documents.sends import JsonBatch, JsonMessage, PackedBatch, PackedMessage
from tern_wire.errors import BatchEmpty, BatchTooLarge, InvalidField, UnsupportedBatchFormat
from tern_wire.json_limits import check_depth
from tern_wire.limits import BATCH_MESSAGES_MAX, JSON_BATCH_NODES_MAX
from tern_wire.link.codec import read_json, read_msgpack
from tern_wire.paths import JSON, JSONL, MSGPACK, NDJSON

_LINES = frozenset({NDJSON, JSONL, "application/ndjson"})
# Names in use before IANA registered application/vnd.msgpack.
PACKED = frozenset({MSGPACK, "application/msgpack", "application/x-msgpack"})
SUPPORTED = f"{JSON}, {NDJSON}, {JSONL} or {MSGPACK}"
SUPPORTED_DOCUMENTS = f"{JSON} or {MSGPACK}"


def media_type(content_type: str) -> str:
    """Return a content type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def read_batch(body: bytes, content_type: str) -> Sequence[PackedMessage | JsonMessage]:
    """Return the messages of a batch, 1 to BATCH_MESSAGES_MAX, in order.

    Raise UnsupportedBatchFormat, BatchEmpty, BatchTooLarge, or an error of the body with a pointer
    such as /messages/3/tag.
    """
    kind = media_type(content_type)
    messages: Sequence[PackedMessage | JsonMessage]
    if kind in PACKED:
        messages = read_msgpack(body, PackedBatch).messages
    elif kind == JSON:
        messages = read_json(body, JsonBatch, nodes_max=JSON_BATCH_NODES_MAX).messages
    elif kind in _LINES:
        messages = _read_lines(body)
    else:
        raise UnsupportedBatchFormat(content_type=content_type[:80], supported=SUPPORTED)
    if not messages:
        raise BatchEmpty()
    if len(messages) > BATCH_MESSAGES_MAX:
        raise BatchTooLarge(actual=len(messages), limit=BATCH_MESSAGES_MAX, unit="messages")
    return messages


def _read_lines(body: bytes) -> list[JsonMessage]:
    lines = [line for line in body.split(b"\n") if line and not line.isspace()]
    if len(lines) > BATCH_MESSAGES_MAX:
        raise BatchTooLarge(actual=len(lines), limit=BATCH_MESSAGES_MAX, unit="messages")
    return [read_json(line, JsonMessage, f"/messages/{index}") for index, line in enumerate(lines)]


def body_of(message: JsonMessage) -> tuple[bytes, str]:
    """Return body and content type of a JSON message.

    Raise InvalidField unless exactly one of body, json, body_base64 is given.
    """
    has_json = message.json is not UNSET
    given = (message.body is not None) + has_json + (message.body_base64 is not None)
    if given != 1:
        raise InvalidField(reason=f"Exactly one of body, json, body_base64 carries a message, {given} do", pointer="")
    if message.body is not None:
        return message.body.encode(), message.content_type
    if message.body_base64 is not None:
        return message.body_base64, message.content_type
    body = bytes(message.json)  # type: ignore[arg-type]
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise InvalidField(reason="The value is not UTF-8", pointer="/json") from error
    check_depth(body, "/json")
    return body, message.content_type or JSON
