"""Delivery times in the API document: how a send says them, and the messages that wait. Data, imported as late as operations.py."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.scheduled import CURSOR_LENGTH_MAX
from tern_proxy.openapi import schemas
from tern_proxy.openapi.operations import ASKED, BROKER, TOPIC, Operation, gives, in_query, number
from tern_proxy.openapi.schemas import Count, Queue, Schema, Time
from tern_proxy.routes.scheduled import LISTED_DEFAULT
from tern_wire import limits, paths
from tern_wire.recall_handles import RECALL_HANDLE_SIZE_MAX_CHARS

EXAMPLE_HANDLE = "AQAAAZu7yvoAAAAAAAAAKmJyb2tlci1hAAAAAAAAAAAAAAAA"
_DAYS_MAX = limits.TIMER_DELAY_MAX_MS // 86_400_000
_MOMENT: Schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}
MESSAGE_GROUP: Schema = {"type": "string", "maxLength": limits.MESSAGE_GROUP_SIZE_MAX_BYTES}
# How a send says when and in which order its message is delivered: field, schema, description.
TIMING: tuple[tuple[str, Schema, str], ...] = (
    ("message_group", MESSAGE_GROUP, "Messages of one message group are delivered in order."),
    (
        "delay",
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": schemas.DURATION_PATTERN}]},
        f"Delivered so long from now, such as `30s`; {_DAYS_MAX} days at most.",
    ),
    ("deliver_at", _MOMENT, f"Delivered at this time, {_DAYS_MAX} days from now at most; at once if it is over."),
    (
        "delay_level",
        {"type": "integer", "minimum": 1},
        f"RocketMQ's delay level, 1 to {len(limits.DELAY_LEVELS_MS)} (larger ones count as that).",
    ),
)


class ScheduledMessage(Struct, kw_only=True):
    """A message that waits for its delivery time."""

    message_id: str
    queue: Queue
    deliver_at: Time
    born_at: Time
    body_size: Count
    recall_handle: Annotated[str, Meta(max_length=RECALL_HANDLE_SIZE_MAX_CHARS, description="DELETE it to recall.")]
    tag: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET


class ScheduledMessages(Struct, kw_only=True):
    """A page of messages that wait, the next ones first."""

    topic: str
    messages: Annotated[list[ScheduledMessage], Meta(max_length=limits.SCHEDULED_LISTED_MAX)]
    next_cursor: Annotated[str, Meta(description="Go on there; missing when this is all.")] | UnsetType = UNSET


ANSWERS: tuple[type[Struct], ...] = (ScheduledMessages,)


def keywords() -> dict[str, dict[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it, as in schemas.py."""
    fields = {name: {**schema, "description": text} for name, schema, text in TIMING}
    return {"JsonMessage": fields, "PackedMessage": fields}


_WAITS = {
    "message_id": "7F3A9C01D2E4B5A6978800000000002A",
    "queue": "broker-a:3",
    "deliver_at": 1_767_229_200_000,
    "born_at": 1_767_225_600_000,
    "body_size": 14,
    "recall_handle": EXAMPLE_HANDLE,
    "tag": "created",
}
_OF_TOPIC = (*ASKED, *TOPIC, *BROKER)

SCHEDULED: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path=paths.scheduled_path("{topic}"),
        id="listScheduled",
        summary="Messages that wait for their delivery time",
        parameters=(
            in_query("from", _MOMENT, "Delivered then or later."),
            in_query("to", _MOMENT, "Delivered before."),
            number("limit", 1, limits.SCHEDULED_LISTED_MAX, LISTED_DEFAULT, "At most so many."),
            in_query("cursor", {"type": "string", "maxLength": CURSOR_LENGTH_MAX}, "`next_cursor` of the page before."),
        ),
        answers={200: gives(ScheduledMessages, "The next ones first.", {"topic": "orders", "messages": [_WAITS]})},
        errors=_OF_TOPIC,
        query="?limit=10",
    ),
    Operation(
        method="DELETE",
        path=paths.scheduled_path("{topic}", "{recall_handle}"),
        id="recallMessage",
        summary="Recall a message that waits",
        answers={204: {"description": "It will not be delivered."}},
        errors=(*_OF_TOPIC, "recall-handle-invalid", "not-scheduled", "already-delivered", "outcome-unknown"),
    ),
)
