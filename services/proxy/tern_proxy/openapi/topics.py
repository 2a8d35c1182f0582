"""Topics and groups in the API document: schemas and operations. Data, as in operations.py, and imported as late."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.listing import LISTED_DEFAULT, PATTERN_LENGTH_MAX
from tern_proxy.openapi import schemas
from tern_proxy.openapi.operations import ASKED, BROKER, DECLARED, Operation, gives, in_header, in_query, number, takes
from tern_proxy.openapi.schemas import Count, QueueOffsets, Schema, Time, ref
from tern_wire import limits, messages, paths
from tern_wire.paths import JSON
from tern_wire.settings.when_full import CHOICES, MEANING

Kind = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"]
Permission = Literal["rw", "r", "w", "none"]
Attributes = Annotated[dict[str, str], Meta(max_length=limits.ATTRIBUTES_MAX, description="Kept, and read by nobody.")]
Cursor = Annotated[str, Meta(description="For the next page; empty on the last one.")]


class TopicState(Struct, kw_only=True):
    """A topic as it is set up."""

    topic: str
    type: Annotated[Kind, Meta(description="Which messages it takes.")]
    permission: Permission
    queues: Annotated[int, Meta(ge=1, description="In all broker groups together.")]
    broker_groups: Annotated[dict[str, int], Meta(description="Queues by broker group.")]
    when_full: Annotated[Literal["refuse", "drop-oldest"], Meta(description=MEANING)]
    attributes: Attributes
    created_at: Time


class TopicDeclared(TopicState, kw_only=True):
    """A topic, and whether it is new."""

    created: bool


class TopicDescription(TopicState, kw_only=True):
    """A topic, its queues, and the groups that have begun to read it."""

    offsets: list[QueueOffsets]
    groups: Annotated[list[str], Meta(description=f"At most {limits.LISTED_MAX:,} of each broker group.")]


class TopicPlacement(Struct, kw_only=True):
    """Where a topic's keyed and ordered messages go."""

    topic: str
    epoch: Annotated[int, Meta(ge=0, description="Grows with each change; 0 when nobody has placed it.")]
    broker_groups: list[str]
    before: Annotated[list[str], Meta(description="Where they went until the last change, as long as it is not over.")]
    is_moving: bool
    moving_until: Annotated[int, Meta(description="The move is not over before, ms since 1970; 0 when nothing moves.")]
    hosts: Annotated[list[str], Meta(description="Broker groups that have queues of it.")]


class TopicPlaced(TopicPlacement, kw_only=True):
    """Where they go now."""

    changed: bool
    left: Annotated[str, Meta(description="What keeps a move that could not be ended; empty when nothing does.")]


class ListedTopic(Struct, kw_only=True):
    """A topic in a list."""

    topic: str
    type: Kind
    permission: Permission
    queues: Annotated[int, Meta(ge=1)]
    broker_groups: list[str]


class TopicPage(Struct, kw_only=True):
    """Topics in order."""

    topics: Annotated[list[ListedTopic], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


class Retry(Struct, kw_only=True):
    """How long a message rests after attempt 1, 2, ... has failed."""

    policy: Literal["table", "custom", "exponential"]
    delays_ms: Annotated[list[int], Meta(description="The last one holds for all further attempts.")]
    initial_ms: Count | UnsetType = UNSET
    multiplier: float | UnsetType = UNSET
    max_ms: Count | UnsetType = UNSET


class GroupState(Struct, kw_only=True):
    """A consumer group as it is set up."""

    group: str
    invisible_ms: Annotated[int, Meta(ge=limits.INVISIBLE_MIN_MS, le=limits.INVISIBLE_MAX_MS)]
    start: Literal["earliest", "latest", "time"]
    start_at: Annotated[int, Meta(description="The time, where `start` is `time`; ms since 1970.")] | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)]
    retry: Retry
    fifo: bool
    consume: Annotated[bool, Meta(description="Whether it receives anything.")]
    broadcast: bool
    attributes: Attributes


class GroupDeclared(GroupState, kw_only=True):
    """A consumer group, and whether it is new."""

    created: bool


_PARKED = (
    f"Wait for an earlier message of their message group. With {limits.FIFO_PARKED_PER_QUEUE_MAX:,} in one queue, nothing further of that queue is "
    "delivered until some are settled."
)


class GroupProgress(Struct, kw_only=True):
    """How far a group is in a topic, in messages."""

    topic: str
    lag: Annotated[int, Meta(ge=0, description="Behind the committed offsets: not settled yet.")]
    leased: Count
    available: Annotated[int, Meta(ge=0, description="Could be received now.")]
    parked: Annotated[int, Meta(ge=0, description=_PARKED)]
    committed: Annotated[dict[str, int], Meta(description="By queue; queues not begun are left out.")]


class GroupDescription(GroupState, kw_only=True):
    """A consumer group, and each topic that it has begun."""

    topics: list[GroupProgress]
    truncated: Annotated[bool, Meta(description="Whether there are more topics than are shown.")]


class GroupPage(Struct, kw_only=True):
    """Consumer groups in order of their names."""

    groups: Annotated[list[GroupState], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


class TopicDeleted(Struct, kw_only=True):
    """A topic that is gone."""

    topic: str
    deleted: bool


class GroupDeleted(Struct, kw_only=True):
    """A consumer group that is gone."""

    group: str
    deleted: bool


ANSWERS: tuple[type[Struct], ...] = (
    *(TopicDeclared, TopicDescription, TopicPage, TopicDeleted, TopicPlacement, TopicPlaced),
    *(GroupDeclared, GroupDescription, GroupPage, GroupDeleted),
)
REQUESTS: tuple[type[Struct], ...] = (messages.TopicSettings, messages.PlacementSettings, messages.GroupSettings)


def keywords() -> Mapping[str, Mapping[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it, by struct and field."""
    value = {"type": ["string", "null"], "maxLength": limits.ATTRIBUTE_VALUE_SIZE_MAX_BYTES}
    attributes: Schema = {
        "maxProperties": limits.ATTRIBUTES_MAX,
        "propertyNames": {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
        "additionalProperties": value,
        "description": "Texts are set, null removes.",
    }
    delay: Schema = {
        "anyOf": [
            {"type": "string", "pattern": schemas.DURATION_PATTERN},
            {"type": "integer", "minimum": 0, "maximum": limits.TIMER_DELAY_MAX_MS},
        ]
    }
    return {
        "TopicSettings": {
            "queues": {
                "minimum": 1,
                "maximum": limits.QUEUES_PER_TOPIC_MAX,
                "description": f"In each broker group; {limits.QUEUES_PER_TOPIC_DEFAULT} in a new topic. May grow, never shrink.",
            },
            "type": {"enum": ["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"]},
            "permission": {"enum": ["rw", "r", "w", "none"]},
            "when_full": {"enum": list(CHOICES), "description": MEANING + " `refuse` in a new topic."},
            "attributes": attributes,
        },
        "PlacementSettings": {
            "broker_groups": {"minItems": 1, "maxItems": limits.PLACEMENT_GROUPS_MAX, "uniqueItems": True},
        },
        "GroupSettings": {
            "invisible": ref("InvisibleTime"),
            "start": {"description": "`earliest`, `latest`, or a time: RFC 3339, or ms since 1970."},
            "max_attempts": {"minimum": 1, "maximum": limits.ATTEMPTS_MAX},
            "attributes": attributes,
        },
        "RetrySettings": {
            "policy": {"enum": ["table", "custom", "exponential"]},
            "delays": {"minItems": 1, "maxItems": limits.RETRY_DELAYS_KEPT_MAX, "items": delay},
            "initial": delay,
            "multiplier": {"minimum": 1, "maximum": 100, "description": "1, or 1.1 and more."},
            "max": delay,
        },
    }


# Operations -------------------------------------------------------------------------------------------------------
_TOPIC: dict[str, Any] = {
    "topic": "orders",
    "type": "MIXED",
    "permission": "rw",
    "queues": 8,
    "broker_groups": {"broker-a": 8},
    "when_full": "refuse",
    "attributes": {"owner": "billing"},
    "created_at": 1_767_225_600_000,
}
_DESCRIBED = {**_TOPIC, "offsets": [{"queue": "broker-a:3", "min_offset": 0, "max_offset": 43}], "groups": ["billing"]}
_PLACEMENT: dict[str, Any] = {
    "topic": "orders",
    "epoch": 2,
    "broker_groups": ["broker-a", "broker-b"],
    "before": ["broker-a"],
    "is_moving": True,
    "moving_until": 1_767_226_200_000,
    "hosts": ["broker-a", "broker-b"],
}
_PLACED = {**_PLACEMENT, "changed": True, "left": ""}
_LISTED = {"topic": "orders", "type": "MIXED", "permission": "rw", "queues": 8, "broker_groups": ["broker-a"]}
_RETRY = {"policy": "table", "delays_ms": list(limits.RETRY_DELAYS_MS)}
_GROUP: dict[str, Any] = {
    "group": "billing",
    "invisible_ms": 30_000,
    "start": "latest",
    "max_attempts": 16,
    "retry": _RETRY,
    "fifo": False,
    "consume": True,
    "broadcast": False,
    "attributes": {},
}
_PROGRESS = {"topic": "orders", "lag": 3, "leased": 1, "available": 2, "parked": 0, "committed": {"broker-a:3": 40}}
_EXPONENTIAL = {"retry": {"policy": "exponential", "initial": "5s", "multiplier": 2, "max": "2h"}}
_CREATE_ONLY = in_header("If-None-Match", {"const": "*"}, "Only if it is not there (412 otherwise).")
_LIST = (
    number("limit", 1, limits.LISTED_MAX, LISTED_DEFAULT, "Rows on a page."),
    in_query("cursor", {"type": "string"}, "`next_cursor` of the page before."),
    in_query("q", {"type": "string", "maxLength": PATTERN_LENGTH_MAX}, "A part of the name, in any case."),
)
_FOUND = ("illegal-topic", "topic-not-found", "no-name-server", "warming-up")
_FOUND_GROUP = ("illegal-group", "group-not-found", "no-name-server", "warming-up")


def _sort(*names: str) -> Schema:
    words = [sign + name for name in names for sign in ("", "-")]
    return in_query("sort", {"enum": words, "default": names[0]}, "`-` turns the order round.")


def _confirm(what: str) -> Schema:
    return in_query("confirm", {"type": "string"}, f"The {what}'s name again.", required=True)


TOPICS: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path=paths.TOPICS_PATH,
        id="listTopics",
        summary="List topics",
        parameters=(*_LIST, _sort("name", "queues", "type")),
        answers={200: gives(TopicPage, "As this proxy's routes know them.", {"topics": [_LISTED], "next_cursor": ""})},
        errors=(*ASKED, "no-name-server", "warming-up"),
        query="?q=ord&limit=10",
    ),
    Operation(
        method="GET",
        path=paths.topic_path("{topic}"),
        id="getTopic",
        summary="Describe a topic",
        answers={200: gives(TopicDescription, "Settings, queues, groups.", _DESCRIBED)},
        errors=(*ASKED, *_FOUND, *BROKER),
    ),
    Operation(
        method="PUT",
        path=paths.topic_path("{topic}"),
        id="putTopic",
        summary="Declare a topic",
        parameters=(_CREATE_ONLY,),
        body=takes(
            messages.TopicSettings, settings={"queues": 8}, fifo={"type": "FIFO", "attributes": {"owner": "billing"}}
        ),
        answers={
            200: gives(TopicDeclared, "It was there; it has these settings now.", {**_TOPIC, "created": False}),
            201: gives(TopicDeclared, "It is new.", {**_TOPIC, "created": True}),
        },
        errors=(*DECLARED, "illegal-topic", "topic-reserved", "topic-conflict", "already-exists"),
        bodies=((JSON, '{"queues": 8}'),),
    ),
    Operation(
        method="PATCH",
        path=paths.topic_path("{topic}"),
        id="patchTopic",
        summary="Alter a topic",
        body=takes(messages.TopicSettings, read_only={"permission": "r"}, grow={"queues": 16}),
        answers={200: gives(TopicDeclared, "It has these settings now.", {**_TOPIC, "created": False})},
        errors=(*DECLARED, "illegal-topic", "topic-reserved", "topic-conflict", "topic-not-found"),
        bodies=((JSON, '{"permission": "rw"}'),),
    ),
    Operation(
        method="GET",
        path=paths.placement_path("{topic}"),
        id="getPlacement",
        summary="Where keyed and ordered messages go",
        answers={200: gives(TopicPlacement, "As the leaders know it.", _PLACEMENT)},
        errors=(*ASKED, *_FOUND, *BROKER),
    ),
    Operation(
        method="PUT",
        path=paths.placement_path("{topic}"),
        id="putPlacement",
        summary="Move keyed and ordered messages to other broker groups",
        body=takes(messages.PlacementSettings, grow={"broker_groups": ["broker-a", "broker-b"]}),
        answers={200: gives(TopicPlaced, "So it is placed now, and perhaps moves there still.", _PLACED)},
        errors=(*DECLARED, *_FOUND, "placement-moving"),
        bodies=((JSON, '{"broker_groups": ["broker-a"]}'),),
    ),
    Operation(
        method="DELETE",
        path=paths.topic_path("{topic}"),
        id="deleteTopic",
        summary="Delete a topic",
        parameters=(_confirm("topic"),),
        answers={200: gives(TopicDeleted, "It is gone.", {"topic": "orders", "deleted": True})},
        errors=(*ASKED, *_FOUND, *BROKER, "topic-reserved", "confirmation-needed", "disk-full"),
        query="?confirm=orders",
    ),
    Operation(
        method="GET",
        path=paths.GROUPS_PATH,
        id="listGroups",
        summary="List consumer groups",
        parameters=(*_LIST, _sort("name")),
        answers={200: gives(GroupPage, "As the leaders know them.", {"groups": [_GROUP], "next_cursor": ""})},
        errors=(*ASKED, *BROKER, "no-name-server", "warming-up"),
        query="?limit=10",
    ),
    Operation(
        method="GET",
        path=paths.group_path("{group}"),
        id="getGroup",
        summary="Describe a consumer group",
        parameters=(in_query("topic", {"type": "string", "pattern": schemas.TOPIC_PATTERN}, "Only this one."),),
        answers={
            200: gives(
                GroupDescription, "Settings and progress.", {**_GROUP, "topics": [_PROGRESS], "truncated": False}
            )
        },
        errors=(*ASKED, *_FOUND_GROUP, *BROKER, "illegal-topic"),
    ),
    Operation(
        method="PUT",
        path=paths.group_path("{group}"),
        id="putGroup",
        summary="Declare a consumer group",
        parameters=(_CREATE_ONLY,),
        body=takes(messages.GroupSettings, settings={"invisible": "30s", "start": "latest"}, exponential=_EXPONENTIAL),
        answers={
            200: gives(GroupDeclared, "It was there; it has these settings now.", {**_GROUP, "created": False}),
            201: gives(GroupDeclared, "It is new.", {**_GROUP, "created": True}),
        },
        errors=(*DECLARED, "illegal-group", "illegal-invisible-time", "group-conflict", "already-exists"),
        bodies=((JSON, '{"invisible": "30s", "start": "latest"}'),),
    ),
    Operation(
        method="PATCH",
        path=paths.group_path("{group}"),
        id="patchGroup",
        summary="Alter a consumer group",
        body=takes(messages.GroupSettings, pause={"consume": False}, exponential=_EXPONENTIAL),
        answers={200: gives(GroupDeclared, "It has these settings now.", {**_GROUP, "created": False})},
        errors=(*DECLARED, "illegal-group", "illegal-invisible-time", "group-conflict", "group-not-found"),
        bodies=((JSON, '{"consume": true}'),),
    ),
    Operation(
        method="DELETE",
        path=paths.group_path("{group}"),
        id="deleteGroup",
        summary="Delete a consumer group",
        parameters=(_confirm("group"),),
        answers={200: gives(GroupDeleted, "It is gone.", {"group": "billing", "deleted": True})},
        errors=(*ASKED, *_FOUND_GROUP, *BROKER, "confirmation-needed", "disk-full"),
        query="?confirm=billing",
    ),
)
