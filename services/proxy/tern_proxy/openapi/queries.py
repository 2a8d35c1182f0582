"""Messages looked up, traces, seeks and statistics in the API document: schemas and operations. Data, imported as late as operations.py."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.reading.delivery import ENCODINGS
from tern_proxy.core.reading.searching import CURSOR_LENGTH_MAX
from tern_proxy.openapi import schemas
from tern_proxy.openapi.operations import (
    ASKED,
    BROKER,
    DECLARED,
    TOPIC,
    Operation,
    gives,
    in_query,
    number,
    takes,
)
from tern_proxy.openapi.schemas import Count, Offset, Queue, Schema, Time
from tern_proxy.routes.queries import MESSAGES_DEFAULT
from tern_wire import limits, messages, paths
from tern_wire.paths import JSON

EXAMPLE_MESSAGE_ID = "7F3A9C01D2E4B5A6978800000000002A"
# As `core/tracing.py` of the broker names them.
State = Literal["not-begun", "waiting", "blocked", "leased", "resting", "returned", "dying", "settled", "dead-lettered"]
Rate = Annotated[float, Meta(ge=0, description="Of the last minute.")]
DurationMs = Annotated[int, Meta(ge=0, description="Milliseconds.")]


class FoundMessage(Struct, kw_only=True):
    """A stored message; without `offset` while it is not visible: its delivery time is to come, or its place in the queue is gone."""

    message_id: str
    topic: str
    queue: Queue
    offset: Offset | UnsetType = UNSET
    body: str | UnsetType = UNSET
    json: Any | UnsetType = UNSET
    body_base64: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET
    message_group: str | UnsetType = UNSET
    deliver_at: Time | UnsetType = UNSET
    born_at: Time
    stored_at: Time


class FoundMessages(Struct, kw_only=True):
    """A page of messages, newest first."""

    messages: Annotated[list[FoundMessage], Meta(max_length=limits.QUERY_MESSAGES_MAX)]
    truncated: Annotated[bool, Meta(description="A broker stopped at its bound before it had seen everything.")]
    next_cursor: Annotated[str, Meta(description="Go on there; missing when this is all.")] | UnsetType = UNSET


class GroupTrace(Struct, kw_only=True):
    """Where a message is for one consumer group."""

    group: str
    state: State
    attempts: Count | UnsetType = UNSET
    until: Time | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    dead_letter_offset: Offset | UnsetType = UNSET


class MessageTrace(Struct, kw_only=True):
    """Where a message is stored, and where it is for each group that has begun to read its topic."""

    message_id: str
    topic: str
    queue: Queue
    offset: Offset | UnsetType = UNSET
    body_size: Count
    content_type: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET
    message_group: str | UnsetType = UNSET
    deliver_at: Time | UnsetType = UNSET
    born_at: Time
    stored_at: Time
    visible_at: Time | UnsetType = UNSET
    groups: list[GroupTrace]


class QueueMove(Struct, kw_only=True):
    """A group's move in one queue; `before` is null where it had not begun."""

    queue: Queue
    before: Offset | None
    after: Offset


class SeekMoves(Struct, kw_only=True):
    """What a seek has moved, or with `dry_run` would move."""

    group: str
    topic: str
    dry_run: bool
    queues: list[QueueMove]


class Flow(Struct, kw_only=True):
    """What has flowed since the leader leads, and how fast it flows."""

    messages: Count
    bytes: Count
    messages_per_s: Rate
    bytes_per_s: Rate


class QueueStats(Struct, kw_only=True):
    """One queue."""

    queue: Queue
    min_offset: Offset
    max_offset: Offset
    messages: Count
    last_visible_at: Time | None
    in_messages_per_s: Rate


class TopicStats(Struct, kw_only=True, rename={"came_in": "in"}):
    """One topic."""

    topic: str
    messages: Count
    scheduled: Annotated[int, Meta(ge=0, description="Messages that wait for their delivery time.")]
    came_in: Flow
    out: Flow
    groups: list[str]
    queues: list[QueueStats]


class QueueLag(Struct, kw_only=True):
    """How far a group is behind in one queue; `committed` is null where it has not begun."""

    queue: Queue
    committed: Offset | None
    max_offset: Offset
    lag: Count
    lag_ms: DurationMs
    leased: Count
    resting: Count
    dying: Count


class TopicLag(Struct, kw_only=True):
    """How far a group is behind in one topic. `again`: what it received a second time and more often."""

    topic: str
    lag: Count
    leased: Count
    resting: Count
    dying: Count
    lag_ms: DurationMs
    out: Flow
    again: Flow
    queues: list[QueueLag]


class GroupLag(Struct, kw_only=True):
    """How far a group is behind."""

    group: str
    lag: Count
    lag_ms: DurationMs
    dead_letters: Count
    topics: list[TopicLag]


ANSWERS: tuple[type[Struct], ...] = (FoundMessage, FoundMessages, MessageTrace, SeekMoves, TopicStats, GroupLag)
REQUESTS: tuple[type[Struct], ...] = (messages.SeekRequest,)


def keywords() -> Mapping[str, Mapping[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it."""
    return {
        "SeekRequest": {
            "topic": {"pattern": schemas.TOPIC_PATTERN},
            "queues": {"minItems": 1, "items": {"type": "string", "pattern": schemas.QUEUE_PATTERN}},
        }
    }


# Documents --------------------------------------------------------------------------------------------------------
_STORED = {
    "message_id": EXAMPLE_MESSAGE_ID,
    "topic": "orders",
    "queue": "broker-a:3",
    "offset": 42,
    "json": {"total": 9.5},
    "content_type": JSON,
    "tag": "created",
    "keys": ["order-7"],
    "born_at": 1_767_225_600_000,
    "stored_at": 1_767_225_600_003,
}
_TRACE = {
    **{name: value for name, value in _STORED.items() if name != "json"},
    "body_size": 14,
    "visible_at": 1_767_225_600_003,
    "groups": [
        {"group": "billing", "state": "leased", "attempts": 2, "until": 1_767_225_660_003},
        {"group": "shipping", "state": "waiting"},
    ],
}
_MOVES = {
    "group": "billing",
    "topic": "orders",
    "dry_run": True,
    "queues": [{"queue": "broker-a:3", "before": 42, "after": 0}],
}
_FLOW = {"messages": 4_200, "bytes": 4_300_800, "messages_per_s": 70.0, "bytes_per_s": 71_680.0}
_TOPIC_STATS = {
    "topic": "orders",
    "messages": 43,
    "scheduled": 7,
    "in": _FLOW,
    "out": _FLOW,
    "groups": ["billing"],
    "queues": [
        {
            "queue": "broker-a:3",
            "min_offset": 0,
            "max_offset": 43,
            "messages": 43,
            "last_visible_at": 1_767_225_600_003,
            "in_messages_per_s": 0.72,
        }
    ],
}
_HELD = {"lag": 3, "leased": 2, "resting": 1, "dying": 0, "lag_ms": 1_500}
_LAG = {
    "group": "billing",
    "lag": 3,
    "lag_ms": 1_500,
    "dead_letters": 0,
    "topics": [
        {
            "topic": "orders",
            **_HELD,
            "out": _FLOW,
            "again": {"messages": 0, "bytes": 0, "messages_per_s": 0.0, "bytes_per_s": 0.0},
            "queues": [{"queue": "broker-a:3", "committed": 40, "max_offset": 43, **_HELD}],
        }
    ],
}
_TIME: Schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}
_ENCODING = in_query("encoding", {"enum": list(ENCODINGS)}, "How bodies are written in JSON.")
_TOPIC: Schema = {"type": "string", "pattern": schemas.TOPIC_PATTERN}
_OF_TOPIC = (*ASKED, *TOPIC, *BROKER)

QUERIES: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path=paths.messages_path("{topic}"),
        id="findMessages",
        summary="Find messages by key",
        parameters=(
            in_query("key", {"type": "string", "minLength": 1}, "A whole key, or a message's id.", required=True),
            in_query("from", _TIME, "Stored then or later."),
            in_query("to", _TIME, "Stored then or before."),
            number("limit", 1, limits.QUERY_MESSAGES_MAX, MESSAGES_DEFAULT, "At most so many."),
            in_query("cursor", {"type": "string", "maxLength": CURSOR_LENGTH_MAX}, "`next_cursor` of the page before."),
            _ENCODING,
        ),
        answers={200: gives(FoundMessages, "Newest first.", {"messages": [_STORED], "truncated": False})},
        errors=_OF_TOPIC,
        query="?key=order-7",
    ),
    Operation(
        method="GET",
        path=paths.message_path("{topic}", "{message_id}"),
        id="getMessage",
        summary="One message by its id",
        parameters=(_ENCODING,),
        answers={200: gives(FoundMessage, "The message.", _STORED)},
        errors=(*_OF_TOPIC, "message-not-found"),
    ),
    Operation(
        method="GET",
        path=paths.trace_path("{message_id}"),
        id="traceMessage",
        summary="Where one message is",
        parameters=(in_query("topic", _TOPIC, "Its topic.", required=True),),
        answers={200: gives(MessageTrace, "For every group that has begun.", _TRACE)},
        errors=(*_OF_TOPIC, "message-not-found"),
        query="?topic=orders",
    ),
    Operation(
        method="POST",
        path=paths.seek_path("{group}"),
        id="seekGroup",
        summary="Move a group to a time, an end, or by a shift",
        body=takes(
            messages.SeekRequest,
            dry={"topic": "orders", "to": "earliest", "dry_run": True},
            time={"topic": "orders", "to": {"time": "2026-01-31T12:00:00Z"}},
            shift={"topic": "orders", "to": {"shift": -1000}, "queues": ["broker-a:3"]},
            offsets={"topic": "orders", "to": {"offsets": {"broker-a:3": 0}}},
        ),
        is_body_needed=True,
        answers={200: gives(SeekMoves, "Before and after, by queue.", _MOVES)},
        errors=(*DECLARED, *TOPIC, "illegal-group", "group-not-found", "queue-not-found"),
        bodies=((JSON, '{"topic": "orders", "to": "earliest", "dry_run": true}'),),
    ),
    Operation(
        method="GET",
        path=paths.topic_stats_path("{topic}"),
        id="getTopicStats",
        summary="Numbers of a topic",
        answers={200: gives(TopicStats, "In all broker groups.", _TOPIC_STATS)},
        errors=_OF_TOPIC,
    ),
    Operation(
        method="GET",
        path=paths.lag_path("{group}"),
        id="getGroupLag",
        summary="How far a group is behind",
        parameters=(in_query("topic", _TOPIC, "Only this topic."),),
        answers={200: gives(GroupLag, "In all that it reads.", _LAG)},
        errors=(*_OF_TOPIC, "illegal-group", "group-not-found"),
        query="?topic=orders",
    ),
)
