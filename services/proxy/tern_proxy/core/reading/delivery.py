"""Decode a broker's records as messages for a reader: one pass over the bytes, one struct each."""

import base64
import json as std_json
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from tern_proxy.core.documents.messages import LeasedMessage, Message, ReadMessage
from tern_proxy.core.sending.batches import media_type
from tern_wire.errors import LinkReplyMalformed
from tern_wire.handles import HandleMaker
from tern_wire.link.codec import encode_json
from tern_wire.link.receives import Leased
from tern_wire.paths import JSON, OCTETS
from tern_wire.records.compression import COMPRESSED, encoding_of
from tern_wire.records.layout import HEAD_SIZE_BYTES, READ_HEAD
from tern_wire.records.properties import (
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVER_MS,
    KEYS,
    MESSAGE_GROUP,
    MESSAGE_ID,
    REPLY_TO,
    REPLY_WAIT_MS,
    RESERVED_PROPERTIES,
    TAGS,
)

# Puts a body into a message under the matching name: body, json or body_base64.
PutBody = Callable[[Any, bytes, str], None]
M = TypeVar("M", bound=Message)

ENCODINGS = ("text", "json", "base64")
# Texts of at least this length become JSON at once: orjson finds the characters to escape several
# times faster than msgspec, which encodes the rest.
LONG_TEXT_LENGTH = 2_048
_check_json = msgspec.json.Decoder(Raw).decode


def read_records(raw: bytes, topic: str, broker_group: str, put_body: PutBody) -> Iterator[ReadMessage]:
    """Yield the messages of concatenated records, in order; raise LinkReplyMalformed for others."""
    return _read(raw, topic, broker_group, put_body, _unread)


def _unread(topic: str, queue: str, offset: int, born_ms: int, stored_ms: int) -> ReadMessage:
    return ReadMessage(message_id="", topic=topic, queue=queue, offset=offset, born_at=born_ms, stored_at=stored_ms)


def _read(
    raw: bytes, topic: str, broker_group: str, put_body: PutBody, make: Callable[[str, str, int, int, int], M]
) -> Iterator[M]:
    at, end = 0, len(raw)
    names: dict[int, str] = {}
    unpack = READ_HEAD.unpack_from
    try:
        while at < end:
            size, queue, offset, sysflag, born_ms, stored_ms, body_size = unpack(raw, at)
            topic_at = at + HEAD_SIZE_BYTES + body_size
            properties_at = topic_at + 3 + raw[topic_at]
            if size <= 0 or at + size > end or properties_at > at + size:
                raise LinkReplyMalformed(reason=f"a record at {at} claims {size} bytes")
            name = names.get(queue)
            if name is None:
                name = names[queue] = f"{broker_group}:{queue}"
            message = make(topic, name, offset, born_ms, stored_ms)
            content_type = ""
            properties: dict[str, str] | None = None
            for item in raw[properties_at : at + size].decode("utf-8", "replace").split("\x02"):
                key, _, value = item.partition("\x01")
                if key == MESSAGE_ID:
                    message.message_id = value
                elif key == TAGS:
                    message.tag = value
                elif key == KEYS:
                    message.keys = value.split(" ")
                elif key == CONTENT_TYPE:
                    content_type = value
                elif key and key not in RESERVED_PROPERTIES:
                    if properties is None:
                        properties = message.properties = {}
                    properties[key] = value
                elif key == MESSAGE_GROUP:
                    message.message_group = value
                elif key == DELIVER_MS and value.isdecimal() and len(value) < 16:
                    message.deliver_at = int(value)
                elif key == CORRELATION_ID:
                    message.correlation_id = value
                elif key == REPLY_TO:
                    message.reply_to = value
                elif key == REPLY_WAIT_MS and value.isdecimal() and len(value) < 16:
                    message.expires_at = born_ms + int(value)
            if not sysflag & COMPRESSED:
                put_body(message, raw[at + HEAD_SIZE_BYTES : topic_at], content_type)
            else:
                message.content_encoding = encoding_of(sysflag)
                put_compressed(put_body)(message, raw[at + HEAD_SIZE_BYTES : topic_at], content_type)
            if content_type:
                message.content_type = content_type
            yield message
            at += size
    except (struct.error, IndexError) as error:
        raise LinkReplyMalformed(reason=f"a record at {at} runs past {end} bytes") from error


def _unleased(topic: str, queue: str, offset: int, born_ms: int, stored_ms: int) -> LeasedMessage:
    """Return a message without its receipt handle, which is made later with its offset."""
    return LeasedMessage(
        message_id="",
        topic=topic,
        queue=queue,
        offset=offset,
        born_at=born_ms,
        stored_at=stored_ms,
        attempt=0,
        receipt_handle="",
        invisible_until=0,
    )


def read_leased(
    leased: Leased, raw: bytes, topic: str, broker_group: str, put_body: PutBody, maker: HandleMaker
) -> list[LeasedMessage]:
    """Return the messages of a RECEIVE reply with attempt, receipt handle and deadline."""
    topic_id, group_id = leased.topic_id, leased.group_id
    messages: list[LeasedMessage] = []
    records = _read(raw, topic, broker_group, put_body, _unleased)
    for run in leased.runs:
        held = list(islice(records, run.count))
        if len(held) < run.count:
            raise LinkReplyMalformed(reason="fewer records than leases")
        handles = maker.make_run(
            *(broker_group, topic_id, group_id, run.queue, run.lease, run.attempt), [message.offset for message in held]
        )
        attempt, deadline_ms = run.attempt, run.deadline_ms
        for message, handle in zip(held, handles, strict=True):
            message.attempt, message.receipt_handle, message.invisible_until = attempt, handle, deadline_ms
        messages += held
    return messages


# Bodies -------------------------------------------------------------------------------------------
def put_bytes(message: Message, body: bytes, _: str) -> None:
    """Put `body` unchanged: for MessagePack and raw answers."""
    message.body = body


def put_size(message: ReadMessage, body: bytes, _: str) -> None:
    """Put only the size of the body, for readers without permission to read it."""
    message.body_size = len(body)


def put_base64(message: Message, body: bytes, _: str) -> None:
    """Put `body_base64`."""
    message.body_base64 = base64.b64encode(body).decode()


def put_text(message: Message, body: bytes, content_type: str) -> None:
    """Put `body` if it is UTF-8, else `body_base64`: no byte is replaced by a question mark."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        put_base64(message, body, content_type)
        return
    message.body = text if len(text) < LONG_TEXT_LENGTH else Raw(encode_json(text))


def put_json(message: Message, body: bytes, content_type: str) -> None:
    """Put `json` if the body is JSON, else the result of put_text."""
    try:
        body.decode()
        _check_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        put_text(message, body, content_type)
        return
    # A line of NDJSON is one line. The reader's numbers keep every digit, since nothing is parsed.
    message.json = Raw(body if b"\n" not in body else msgspec.json.format(body, indent=-1))


def put_fitting(message: Message, body: bytes, content_type: str) -> None:
    """Put `json` for JSON content types, else `body` if it is UTF-8, else `body_base64`."""
    if content_type and (content_type == JSON or _is_json(content_type)):
        put_json(message, body, content_type)
    else:
        put_text(message, body, content_type)


def _is_json(content_type: str) -> bool:
    kind = media_type(content_type)
    return kind == JSON or kind.endswith("+json")


PUT_BODY: dict[str, PutBody] = {"": put_fitting, "text": put_text, "json": put_json, "base64": put_base64}


def put_compressed(put_body: PutBody) -> PutBody:
    """Return what puts a compressed body in place of *put_body*: its bytes, as they are stored.
    They are no text and no JSON, whatever they look like.
    """
    return put_body if put_body in {put_bytes, put_size} else put_base64


# Raw ----------------------------------------------------------------------------------------------
_RAW_HEADERS = (
    ("message_id", b"mq-message-id"),
    ("topic", b"mq-topic"),
    ("queue", b"mq-queue"),
    ("offset", b"mq-offset"),
    ("content_encoding", b"mq-content-encoding"),
    ("tag", b"mq-tag"),
    ("message_group", b"mq-message-group"),
    ("deliver_at", b"mq-deliver-at"),
    ("correlation_id", b"mq-correlation-id"),
    ("reply_to", b"mq-reply-to"),
    ("expires_at", b"mq-expires-at"),
    ("born_at", b"mq-born-at"),
    ("stored_at", b"mq-stored-at"),
    ("attempt", b"mq-attempt"),
    ("receipt_handle", b"mq-receipt-handle"),
    ("invisible_until", b"mq-invisible-until"),
)


def raw_headers(message: Message) -> list[tuple[bytes, bytes]]:
    """Return the Content-Type and MQ-* headers of an answer whose body is the message's body."""
    headers = [(b"content-type", _header(message.content_type or OCTETS))]
    for field, header in _RAW_HEADERS:
        value = getattr(message, field, UNSET)
        if value is not UNSET:
            headers.append((header, _header(value)))
    if message.keys is not UNSET:
        headers += [(b"mq-key", _header(key)) for key in message.keys]
    if message.properties is not UNSET:
        # Escaped to ASCII: headers carry nothing else safely.
        headers.append((b"mq-properties", std_json.dumps(message.properties).encode()))
    return headers


def raw_body(message: Message) -> bytes:
    """Return the body that `put_bytes` has put."""
    assert isinstance(message.body, bytes)
    return message.body


def _header(value: object) -> bytes:
    """Return a header's value; control characters are dropped, whatever a record holds."""
    return "".join(sign for sign in str(value) if sign >= " " and sign != "\x7f").encode()
