"""Requests of the HTTP API and the contents of its answers, as values. Pure; both clients build and
read them here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tern_client.calls.compressed_bodies import CompressedMessage
from tern_client.calls.models import OutgoingMessage, QueueOffsets, ReceivedMessage, RecordPage, SendReceipt
from tern_client.transport.exchange import Headers, Request, Response, problem_error
from tern_wire import paths
from tern_wire.errors import TernError
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.names import check_group, check_topic, parse_queue

_PACKED = (("Content-Type", paths.MSGPACK), ("Accept", paths.MSGPACK))
# Servers limit a request's head to 16 KiB. A message with larger headers is sent as a batch of one.
_HEADERS_SIZE_MAX_BYTES = 6 * 1024
_TIMING_HEADERS = {
    "message_group": paths.HEADER_MESSAGE_GROUP,
    "delay": paths.HEADER_DELAY,
    "deliver_at": paths.HEADER_DELIVER_AT,
    "delay_level": paths.HEADER_DELAY_LEVEL,
}


@dataclass(frozen=True, slots=True)
class Settle:
    """An action on a lease: `ack`; `extend` to *invisible_ms* from now; `nack`, visible again after
    *delay_ms* (None: by the group's policy); `release`, visible at once and uncounted; or
    `dead_letter`, with a *reason*.
    """

    receipt_handle: str
    action: str = "ack"
    invisible_ms: int = 0
    delay_ms: int | None = None
    reason: str = ""

    def document(self) -> dict[str, Any]:
        """Return the entry of the HTTP API."""
        entry: dict[str, Any] = {"receipt_handle": self.receipt_handle, "action": self.action}
        if self.action == "extend":
            entry["invisible"] = self.invisible_ms
        if self.delay_ms is not None:
            entry["delay"] = self.delay_ms
        if self.reason:
            entry["reason"] = self.reason
        return entry


def send_request(topic: str, message: OutgoingMessage) -> Request:
    """Request to send one message. A message that headers cannot carry becomes a batch of one."""
    headers = message_headers(message)
    if headers is None:
        return batch_request(topic, [message])
    path = paths.messages_path(check_topic(topic))
    return Request("POST", path, headers, message.body, repeatable=bool(message.idempotency_key))


def message_headers(message: OutgoingMessage, extra: Sequence[tuple[str, str]] = ()) -> Headers | None:
    """Return the headers of *message* without its body, and *extra*; None when headers cannot carry
    it.
    """
    headers = [("Content-Type", message.content_type)] if message.content_type else []
    if isinstance(message, CompressedMessage):
        headers.append((paths.HEADER_CONTENT_ENCODING, message.content_encoding))
    if message.tag:
        headers.append((paths.HEADER_TAG, message.tag))
    headers += [(paths.HEADER_KEY, key) for key in message.keys]
    if message.properties:
        headers.append((paths.HEADER_PROPERTIES, json.dumps(dict(message.properties), separators=(",", ":"))))
    if message.queue:
        headers.append((paths.HEADER_QUEUE, message.queue))
    if message.idempotency_key:
        headers.append((paths.HEADER_IDEMPOTENCY_KEY, message.idempotency_key))
    headers += [(_TIMING_HEADERS[field], str(value)) for field, value in message.timing().items()]
    headers += extra
    return tuple(headers) if _fit(headers) else None


def _fit(headers: Sequence[tuple[str, str]]) -> bool:
    """Whether headers carry every value: printable ASCII without blanks at its ends, within
    _HEADERS_SIZE_MAX_BYTES.
    """
    values = [value for _, value in headers]
    return sum(map(len, values)) <= _HEADERS_SIZE_MAX_BYTES and all(
        value.isascii() and value.isprintable() and value == value.strip() for value in values
    )


def batch_request(topic: str, messages: Sequence[OutgoingMessage]) -> Request:
    """Request to send many messages in MessagePack; repeatable when each has an idempotency key."""
    body = encode_msgpack({"messages": [packed_message(message) for message in messages]})
    repeatable = all(message.idempotency_key for message in messages)
    return Request("POST", paths.batch_path(check_topic(topic)), _PACKED, body, repeatable=repeatable)


def packed_message(message: OutgoingMessage) -> dict[str, Any]:
    """Return the entry of *message* in a batch."""
    packed: dict[str, Any] = {"body": message.body}
    if message.tag:
        packed["tag"] = message.tag
    if message.keys:
        packed["keys"] = list(message.keys)
    if message.properties:
        packed["properties"] = dict(message.properties)
    if message.content_type:
        packed["content_type"] = message.content_type
    if isinstance(message, CompressedMessage):
        packed["content_encoding"] = message.content_encoding
    if message.queue:
        packed["queue"] = message.queue
    if message.idempotency_key:
        packed["idempotency_key"] = message.idempotency_key
    return packed | message.timing()


def read_results(response: Response) -> list[SendReceipt | TernError]:
    """Return the receipt or the error of each message in input order, from the answer to a single
    send or to a batch.
    """
    document = read_document(response)
    if "results" not in document:
        replayed = response.headers.get(paths.HEADER_REPLAYED.lower()) == "true"
        return [_receipt(document, replayed=replayed)]
    return [
        problem_error(result["error"]) if "error" in result else _receipt(result, replayed=bool(result.get("replayed")))
        for result in document["results"]
    ]


def _receipt(document: Mapping[str, Any], *, replayed: bool) -> SendReceipt:
    return SendReceipt(
        message_id=document["message_id"],
        queue=document["queue"],
        offset=document["offset"],
        born_at=document["born_at"],
        replayed=replayed,
        deliver_at=document.get("deliver_at", 0),
        recall_handle=document.get("recall_handle", ""),
    )


def receive_request(
    topic: str,
    group: str,
    *,
    max_messages: int,
    max_bytes: int,
    wait_ms: int,
    invisible_ms: int | None,
    settles: Iterable[Settle],
    attempt_id: str = "",
    tags: str = "",
    sql: str = "",
) -> Request:
    """Request to lease up to *max_messages*. *settles* are applied before the wait begins."""
    document: dict[str, Any] = {"max_messages": max_messages, "max_bytes": max_bytes, "wait": wait_ms}
    if invisible_ms is not None:
        document["invisible"] = invisible_ms
    if attempt_id:
        document["attempt_id"] = attempt_id
    if tags or sql:
        document["filter"] = {name: text for name, text in (("tags", tags), ("sql", sql)) if text}
    entries = [settle.document() for settle in settles]
    if entries:
        document["settle"] = entries
    path = paths.receive_path(check_topic(topic), check_group(group))
    headers = (("Content-Type", paths.JSON), ("Accept", paths.MSGPACK))
    return Request("POST", path, headers, json.dumps(document).encode(), wait_ms=max(wait_ms, 1))


def read_received(response: Response) -> tuple[list[ReceivedMessage], dict[int, TernError]]:
    """Return the messages, and the errors of the settles that were sent along, by index."""
    document = read_document(response)
    received = [_received(message) for message in document["messages"]]
    return received, _errors(document.get("settled") or [])


def _received(message: Mapping[str, Any]) -> ReceivedMessage:
    return ReceivedMessage(
        message_id=message["message_id"],
        topic=message["topic"],
        queue=message["queue"],
        offset=message["offset"],
        body=message["body"],
        content_type=message.get("content_type", ""),
        tag=message.get("tag", ""),
        keys=tuple(message.get("keys", ())),
        properties=message.get("properties", {}),
        born_at=message["born_at"],
        stored_at=message["stored_at"],
        attempt=message["attempt"],
        receipt_handle=message["receipt_handle"],
        invisible_until=message["invisible_until"],
        message_group=message.get("message_group", ""),
        deliver_at=message.get("deliver_at", 0),
        correlation_id=message.get("correlation_id", ""),
        reply_to=message.get("reply_to", ""),
        expires_at=message.get("expires_at", 0),
        content_encoding=message.get("content_encoding", ""),
    )


def settle_request(topic: str, group: str, settles: Sequence[Settle]) -> Request:
    """Request to settle without receiving."""
    body = json.dumps({"entries": [settle.document() for settle in settles]}).encode()
    path = paths.settle_path(check_topic(topic), check_group(group))
    return Request("POST", path, (("Content-Type", paths.JSON),), body)


def read_settled(response: Response) -> dict[int, TernError]:
    """Return the errors of settles by index; {} when all succeeded."""
    return _errors(read_document(response).get("results") or [])


def _errors(results: Sequence[Mapping[str, Any]]) -> dict[int, TernError]:
    return {
        int(result.get("index", at)): problem_error(result["error"])
        for at, result in enumerate(results)
        if "error" in result
    }


def commit_request(
    group: str,
    topic: str,
    offsets: Mapping[str, int],
    expected: Mapping[str, int | None] | None = None,
    epochs: Mapping[str, int] | None = None,
) -> Request:
    """Request to commit offsets: with *expected* only if those are committed now, with *epochs*
    only if no other member has locked the queues since.
    """
    document: dict[str, Any] = {"topic": check_topic(topic), "offsets": dict(offsets)}
    if expected:
        document["expected"] = dict(expected)
    if epochs:
        document["epochs"] = dict(epochs)
    return _put(paths.group_offsets_path(check_group(group)), document)


def _put(path: str, document: Mapping[str, Any]) -> Request:
    return Request("PUT", path, (("Content-Type", paths.JSON),), json.dumps(document).encode())


def get_request(path: str, **query: str | int) -> Request:
    """Request to read *path*."""
    joined = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items())
    return Request("GET", f"{path}?{joined}" if joined else path)


def offsets_request(topic: str) -> Request:
    """Request the least and the next offset of every queue."""
    return get_request(paths.offsets_path(check_topic(topic)))


def read_offsets(response: Response) -> list[QueueOffsets]:
    """Return the queues in the order of the answer."""
    return [
        QueueOffsets(queue=row["queue"], min_offset=row["min_offset"], max_offset=row["max_offset"])
        for row in read_document(response)["queues"]
    ]


def group_offsets_request(group: str, topic: str) -> Request:
    """Request the committed offsets of *group* in *topic*."""
    return get_request(paths.group_offsets_path(check_group(group)), topic=check_topic(topic))


def read_group_offsets(response: Response) -> dict[str, int]:
    """Return the committed offset of every queue (`broker-a:3`)."""
    return dict(read_document(response)["offsets"])


def pull_request(topic: str, queue: str, offset: int, end_offset: int, max_bytes: int) -> Request:
    """Request records of one queue from *offset* up to, not including, *end_offset*."""
    path = paths.pull_path(check_topic(topic), str(parse_queue(queue, topic)))
    request = get_request(path, offset=offset, end_offset=end_offset, max_bytes=max_bytes)
    return Request("GET", request.path, (("Accept", paths.RECORDS),))


def read_page(response: Response) -> RecordPage:
    """Return the page of records in *response*."""
    next_offset = int(response.headers[paths.HEADER_NEXT_OFFSET.lower()])
    max_offset = int(response.headers.get(paths.HEADER_MAX_OFFSET.lower(), next_offset))
    return RecordPage(data=response.body, next_offset=next_offset, max_offset=max_offset)


def read_document(response: Response) -> dict[str, Any]:
    """Return the object in the body, which is MessagePack or JSON by its content type."""
    if response.headers.get("content-type", "").startswith(paths.MSGPACK):
        document = decode_msgpack(response.body)
    else:
        document = json.loads(response.body or b"{}")
    assert isinstance(document, dict), "the API answers with objects"
    return document
