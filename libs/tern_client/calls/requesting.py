"""Request-reply: requests, replies and their answers as values, and the steps of a request.

    Producer.request -> POST .../requests -> the reply
                            | reply-timeout before the time is over (a proxy that stops)
                            '-> GET .../requests/{correlation id} for the rest of the time
    Consumer.reply   -> POST .../replies

Law: a request is stored once, however often it is repeated. It has an idempotency key from which
its correlation id follows, so every repeat waits for the same reply.
"""

import json
import os
from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlencode

from tern_client.bodies.arguments import check_duration
from tern_client.bodies.serializers import Encode, encode_auto
from tern_client.calls.compressed_bodies import plain
from tern_client.calls.documents import read_document, read_results
from tern_client.calls.models import OutgoingMessage, ReceivedMessage, ReplyMessage, SendReceipt
from tern_client.calls.sending import prepared
from tern_client.transport.calling import Course, Outcome, Pause, Step, call
from tern_client.transport.exchange import Request, Response
from tern_wire import paths
from tern_wire.errors import IllegalTimeout, InvalidField, ReplyTimeout, TernError
from tern_wire.names import check_topic
from tern_wire.times import given_duration, parse_duration_ms

Timeout = str | int | timedelta
# With less time left, the reply is not requested again.
_LEFT_MIN_MS = 50
_REPLY_FIELDS = ("content_type", "properties", "keys")


# Requests and answers ---------------------------------------------------------------------------
def timeout_ms_of(timeout: Timeout) -> int:
    """Return the milliseconds of `"10s"`, `10_000` or a timedelta; IllegalTimeout for
    another value, TypeError for another type.
    """
    check_duration("timeout", timeout)
    if isinstance(timeout, timedelta):
        return timeout // timedelta(milliseconds=1)
    try:
        return parse_duration_ms(timeout)
    except ValueError as error:
        raise IllegalTimeout(actual=given_duration(timeout)) from error


def new_request(
    topic: str, message: OutgoingMessage, timeout_ms: int, correlation_id: str = "", client: str = ""
) -> Request:
    """Request to send *message*, which waits *timeout_ms* for its reply."""
    fields: list[tuple[str, str | int]] = [("timeout", timeout_ms)]
    fields += [
        (name, text)
        for name, text in (
            ("correlation_id", correlation_id),
            ("client", client),
            ("tag", message.tag),
            ("queue", message.queue),
            ("idempotency_key", message.idempotency_key),
        )
        if text
    ]
    fields += [("key", key) for key in message.keys] + list(message.timing().items())
    headers = _headers(message.content_type, message.properties, paths.MSGPACK)
    path = f"{paths.requests_path(check_topic(topic))}?{urlencode(fields)}"
    is_repeatable = bool(message.idempotency_key)
    return Request("POST", path, headers, message.body, wait_ms=timeout_ms, repeatable=is_repeatable, stores=True)


def find_request(topic: str, correlation_id: str, client: str, wait_ms: int) -> Request:
    """Request the reply to a request that was stored earlier."""
    query = urlencode({**({"client": client} if client else {}), "wait": wait_ms})
    path = paths.requests_path(check_topic(topic), quote(correlation_id, safe=""))
    return Request("GET", f"{path}?{query}", (("Accept", paths.MSGPACK),), wait_ms=wait_ms)


def reply_request(
    topic: str,
    body: bytes,
    *,
    reply_to: str,
    correlation_id: str,
    content_type: str = "",
    properties: Mapping[str, str] | None = None,
    keys: Sequence[str] = (),
) -> Request:
    """Request to send *body* as the reply to a request of *topic*, with an idempotency key;
    InvalidField when the message was not a request.
    """
    if not reply_to or not correlation_id:
        raise InvalidField(
            reason="This message is not a request: no client waits for a reply to it", pointer="/reply_to"
        )
    fields = [("reply_to", reply_to), ("correlation_id", correlation_id), ("idempotency_key", os.urandom(16).hex())]
    fields += [("key", key) for key in keys]
    path = f"{paths.replies_path(check_topic(topic))}?{urlencode(fields)}"
    return Request("POST", path, _headers(content_type, properties or {}, paths.JSON), body)


def read_reply(response: Response) -> ReplyMessage:
    """Return the reply in *response*."""
    message = read_document(response)
    found = ReplyMessage(
        message_id=message["message_id"],
        topic=message["topic"],
        queue=message["queue"],
        offset=message["offset"],
        body=message["body"],
        content_type=message.get("content_type", ""),
        keys=tuple(message.get("keys", ())),
        properties=message.get("properties", {}),
        born_at=message["born_at"],
        stored_at=message["stored_at"],
        correlation_id=message["correlation_id"],
        content_encoding=message.get("content_encoding", ""),
    )
    return plain(found)


def _headers(content_type: str, properties: Mapping[str, str], accept: str) -> tuple[tuple[str, str], ...]:
    headers = [("Accept", accept)]
    if content_type:
        headers.append(("Content-Type", content_type))
    if properties:
        headers.append((paths.HEADER_PROPERTIES, json.dumps(dict(properties), separators=(",", ":"))))
    return tuple(headers)


def ask(
    course: Course, topic: str, request: Request, timeout_ms: int, began_ms: float
) -> Generator[Step, Outcome, ReplyMessage]:
    """Return the steps of a request. ReplyTimeout when no reply came in *timeout_ms*; after other
    errors the request was not stored, or may not be.
    """
    try:
        response = yield from call(course, request, began_ms)
    except ReplyTimeout as error:
        # The clock is only known after a step; this is the shortest one.
        at_ms = (yield Pause(0)).now_ms
        left_ms = int(timeout_ms - (at_ms - began_ms))
        correlation_id, client = error.fields.get("correlation_id"), error.fields.get("client")
        if left_ms < _LEFT_MIN_MS or not correlation_id:
            raise
        try:
            again = find_request(topic, str(correlation_id), str(client or ""), left_ms)
            response = yield from call(course, again, at_ms)
        except TernError as trouble:
            raise error from trouble
    return read_reply(response)


def message_of(body: Any, fields: Mapping[str, Any], encode: Encode) -> OutgoingMessage:
    """Return the message of a request. It gets an idempotency key, so that repeats are safe.
    TypeError.
    """
    given = {**fields, "idempotency_key": fields.get("idempotency_key") or os.urandom(16).hex()}
    return prepared(OutgoingMessage(body=body, **given), encode, None)


def encoded_reply(body: Any, fields: Mapping[str, Any], encode: Encode) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes that *encode* makes of the *body* of a reply, and *fields* with what
    describes them. TypeError.
    """
    given = {name: fields[name] for name in _REPLY_FIELDS if name in fields}
    message = prepared(OutgoingMessage(body=body, **given), encode, None)
    return message.body, {**fields, **{name: getattr(message, name) for name in _REPLY_FIELDS}}


def reply_to_request(request: ReceivedMessage, body: Any, fields: Mapping[str, Any]) -> Request:
    """Request to send *body* as the reply to *request*; InvalidField when that is not a request."""
    body, fields = encoded_reply(body, fields, encode_auto)
    return reply_request(
        request.topic, body, reply_to=request.reply_to, correlation_id=request.correlation_id, **fields
    )


def read_receipt(response: Response) -> SendReceipt:
    """Return the receipt in the answer to a reply."""
    (receipt,) = read_results(response)
    assert isinstance(receipt, SendReceipt), "a single send that failed has another status"
    return receipt
