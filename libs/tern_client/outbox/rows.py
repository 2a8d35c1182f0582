"""One message as a row of the outbox: checked when it is added, and turned into the message that a
relay sends. Pure: ids and times are arguments.

Law: a row's id is drawn at random and never used again, and every send of the row has the same
idempotency key, made from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tern_client.bodies.serializers import encode_auto
from tern_client.calls.batching import MESSAGE_OVERHEAD_SIZE_BYTES
from tern_client.calls.models import OutgoingMessage
from tern_wire.errors import (
    IllegalDeliveryTime,
    IllegalMessageGroup,
    InvalidField,
    MessageTooLarge,
    PropertyConflictsWithType,
)
from tern_wire.limits import (
    KEYS_MAX,
    MESSAGE_BODY_SIZE_MAX_BYTES,
    MESSAGE_GROUP_SIZE_MAX_BYTES,
    TIMER_DELAY_MAX_MS,
)
from tern_wire.names import check_topic
from tern_wire.times import parse_duration_ms, parse_time_ms

# `"30s"`, milliseconds, or a timedelta.
Span = str | int | timedelta
# Before a row's id in keys and idempotency keys.
KEY_PREFIX = "ob-"
# The relay adds one key to those of the application.
KEYS_GIVEN_MAX = KEYS_MAX - 1


class Fields(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a message has beside topic, message group and body; the column `fields`, in JSON.
    `deliver_at`: milliseconds since 1970, 0 for none.
    """

    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: dict[str, str] = {}
    content_type: str = ""
    queue: str = ""
    deliver_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRow:
    """A row as it is inserted. `id`: 32 hex digits. `created_at`: milliseconds since 1970."""

    id: str
    topic: str
    message_group: str
    body: bytes
    fields: str
    size_bytes: int
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A waiting row without its content. `attempted_at`: when a relay first read it in order to
    send it, None before that.
    """

    seq: int
    id: str
    topic: str
    message_group: str
    size_bytes: int
    attempted_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRow:
    """A row in the hands of a relay, and the message that it stands for."""

    head: Head
    message: OutgoingMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRow:
    """A row that the server refused for good. Nothing sends it until `retry`.

    - `id`: the row's id, as `add` returned it. `error_code`, `error_detail`: the server's reason.
    - `attempts`: how often it was read in order to be sent. `failed_at`: milliseconds since 1970.

    Example:

        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        from tern_client.outbox import BlockingRelay, FailedRow, Outbox

        engine = create_engine("sqlite:///shop.db")
        outbox = Outbox(engine)
        outbox.create()
        with Session(engine) as session, session.begin():
            outbox.add(session, "orders", b"order 1", queue="broker-a:999")
        BlockingRelay(outbox, "http://127.0.0.1:8080").drain()
        row: FailedRow = outbox.failed()[0]
        print(row.error_code, row.attempts)  # -> queue-not-found 1
        print(outbox.discard([row.id]))  # -> 1
    """

    id: str
    topic: str
    message_group: str
    created_at: int
    attempts: int
    failed_at: int
    error_code: str
    error_detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits in an outbox: `waiting` rows, the oldest of `oldest_at` (milliseconds since 1970;
    0: none waits), and `failed` rows.

    Example:

        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        from tern_client.outbox import Backlog, Outbox

        engine = create_engine("sqlite:///shop.db")
        outbox = Outbox(engine)
        outbox.create()
        with Session(engine) as session, session.begin():
            outbox.add(session, "orders", b"order 1")
        backlog: Backlog = outbox.backlog()
        print(backlog.waiting, backlog.failed)  # -> 1 0
    """

    waiting: int
    failed: int
    oldest_at: int = 0


def key_of(row_id: str) -> str:
    """Return the idempotency key of a row, which is also one of its message's keys."""
    return KEY_PREFIX + row_id


def new_row(
    row_id: str,
    now_ms: int,
    topic: str,
    body: Any,
    *,
    message_group: str = "",
    tag: str = "",
    keys: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    content_type: str = "",
    queue: str = "",
    delay: Span | None = None,
    deliver_at: str | int | datetime | None = None,
) -> NewRow:
    """Return the row of a message. What can be known here is refused here, in the caller's
    transaction: TypeError, InvalidField, MessageTooLarge, IllegalDeliveryTime,
    PropertyConflictsWithType.
    """
    if type(body) is not bytes:
        encoded = encode_auto(body)  # as a producer does
        body, content_type = encoded.body, content_type or encoded.content_type
        properties = {**encoded.properties, **(properties or {})}
    if isinstance(keys, str):
        raise TypeError("keys is a str; it is a sequence of texts, such as keys=['4711']")
    if len(body) > MESSAGE_BODY_SIZE_MAX_BYTES:
        raise MessageTooLarge(actual=len(body), limit=MESSAGE_BODY_SIZE_MAX_BYTES)
    if len(keys) > KEYS_GIVEN_MAX:
        raise InvalidField(
            reason=f"A message of the outbox has at most {KEYS_GIVEN_MAX} keys, not {len(keys)}", pointer="/keys"
        )
    if len(message_group.encode()) > MESSAGE_GROUP_SIZE_MAX_BYTES:
        raise IllegalMessageGroup(pointer="/message_group")
    deliver_ms = deliver_ms_of(now_ms, delay, deliver_at)
    if message_group and (queue or deliver_ms):
        what = "a queue: its message group chooses it" if queue else "a delay: its message group is delivered in order"
        raise PropertyConflictsWithType(reason=f"This message cannot have {what}", pointer="/message_group")
    fields = msgspec.json.encode(
        Fields(
            tag=tag,
            keys=tuple(keys),
            properties=dict(properties or {}),
            content_type=content_type,
            queue=queue,
            deliver_at=deliver_ms,
        )
    )
    return NewRow(
        id=row_id,
        topic=check_topic(topic),
        message_group=message_group,
        body=body,
        fields=fields.decode(),
        size_bytes=len(body) + len(fields) + MESSAGE_OVERHEAD_SIZE_BYTES,
        created_at=now_ms,
    )


def deliver_ms_of(now_ms: int, delay: Span | None, deliver_at: str | int | datetime | None) -> int:
    """Return the delivery time in milliseconds since 1970; 0 for none. A delay counts from
    *now_ms*, when the row is added: a relay that is late makes no message later.
    """
    if delay is not None and deliver_at is not None:
        raise IllegalDeliveryTime(reason="delay and deliver_at exclude each other", pointer="/deliver_at")
    try:
        if delay is not None:
            deliver_ms = now_ms + span_ms(delay)
        elif isinstance(deliver_at, datetime):
            deliver_ms = round(deliver_at.timestamp() * 1000)
        else:
            deliver_ms = parse_time_ms(deliver_at) if deliver_at is not None else 0
    except ValueError as error:
        raise IllegalDeliveryTime(reason=str(error), pointer="/delay") from error
    if deliver_ms - now_ms > TIMER_DELAY_MAX_MS:
        days = TIMER_DELAY_MAX_MS // 86_400_000
        raise IllegalDeliveryTime(reason=f"A message waits {days} days at most", pointer="/delay")
    return deliver_ms


def span_ms(span: Span) -> int:
    """Return *span* in milliseconds; ValueError for a negative one, or a text that is none."""
    return parse_duration_ms(span // timedelta(milliseconds=1) if isinstance(span, timedelta) else span)


def fields_of(text: str) -> Fields:
    """Return the fields of a row; ValueError when something else has written them."""
    return msgspec.json.decode(text, type=Fields)


def message_of(head: Head, body: bytes, text: str) -> OutgoingMessage:
    """Return the message that a relay sends for a row: the same one at every attempt."""
    fields, key = fields_of(text), key_of(head.id)
    return OutgoingMessage(
        body=body,
        tag=fields.tag,
        keys=(*fields.keys, key),
        properties=fields.properties,
        content_type=fields.content_type,
        queue=fields.queue,
        idempotency_key=key,
        message_group=head.message_group,
        deliver_at=fields.deliver_at or None,
    )
