"""Dead letters and redrive tasks in the API document: schemas and operations. Data, imported as late as operations.py."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.reading.delivery import ENCODINGS
from tern_proxy.openapi import schemas
from tern_proxy.openapi.operations import (
    ASKED,
    BROKER,
    DECLARED,
    Operation,
    gives,
    in_header,
    in_query,
    number,
    takes,
)
from tern_proxy.openapi.schemas import Count, Offset, Problem, Queue, Schema, Time
from tern_proxy.routes.dead_letters import LIMIT_DEFAULT
from tern_wire import limits, messages, paths
from tern_wire.paths import JSON

TASK_PATTERN = "^[0-9a-f]{24}$"
# As a queue, but the number is an offset.
PLACE_PATTERN = r"^[a-z0-9][a-z0-9-]{0,30}:(0|[1-9][0-9]{0,17})$"
Place = Annotated[str, Meta(pattern=PLACE_PATTERN, description="Broker group and offset among its dead letters.")]


class Origin(Struct, kw_only=True):
    """Where the message was to be delivered."""

    topic: str
    queue: Queue
    offset: Offset


class Death(Struct, kw_only=True):
    """How a message died."""

    offset: Place
    origin: Origin
    attempts: Annotated[int, Meta(ge=1)]
    cause: Literal["expired", "nacked", "rejected"]
    reason: Annotated[str, Meta(description="What a consumer said that rejected it.")]
    dead_at: Time


class DeadLetter(schemas.Message, kw_only=True):
    """The message as it was sent, and how it died."""

    dlq: Death


class DeadLetters(Struct, kw_only=True):
    """A page of dead letters."""

    group: str
    messages: Annotated[list[DeadLetter], Meta(max_length=limits.DEAD_LETTERS_PAGE_MAX)]
    next_cursor: Annotated[str, Meta(description="Go on there; missing when this is all.")] | UnsetType = UNSET


class Purged(Struct, kw_only=True):
    """How many dead letters were dropped."""

    group: str
    purged: Count


class RedriveFailure(Struct, kw_only=True):
    """A dead letter that could not be redriven."""

    offset: Place
    error: Problem


class RedriveTask(Struct, kw_only=True):
    """What a redrive has done so far, in all broker groups together. With `dry_run`, what it would have done."""

    task: Annotated[str, Meta(pattern=TASK_PATTERN)]
    type: Literal["redrive"]
    group: str
    state: Literal["running", "done", "cancelled"]
    dry_run: bool
    total: Annotated[
        int, Meta(ge=0, description="Dead letters that there were at its begin, or offsets that were named.")
    ]
    examined: Annotated[int, Meta(ge=0, description="How many of these it has come past.")]
    redriven: Count
    skipped: Annotated[int, Meta(ge=0, description="Not chosen.")]
    failed: Count
    failures: Annotated[list[RedriveFailure], Meta(description="The first of them in each broker group.")]
    started_at: Time
    finished_at: Time | None


ANSWERS: tuple[type[Struct], ...] = (DeadLetters, Purged, RedriveTask)
REQUESTS: tuple[type[Struct], ...] = (messages.RedriveRequest,)


def keywords() -> Mapping[str, Mapping[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it."""
    place: Schema = {"type": "string", "pattern": PLACE_PATTERN}
    return {
        "RedriveRequest": {
            "offsets": {"minItems": 1, "maxItems": limits.REDRIVE_OFFSETS_MAX, "items": place},
            "to": {"description": "Died before this time. Or `origin`, the default target: by itself it means all."},
            "rate": {"minimum": 0, "maximum": limits.REDRIVE_RATE_MAX_PER_S},
        }
    }


# Documents --------------------------------------------------------------------------------------------------------
EXAMPLE_TASK = "5b1f0c9a7e2d4c3b8a190f6e"
_LETTER = {
    "message_id": "7F3A9C01D2E4B5A6978800000000002A",
    "topic": "orders",
    "queue": "broker-a:3",
    "offset": 42,
    "json": {"total": 9.5},
    "content_type": JSON,
    "born_at": 1_767_225_600_000,
    "stored_at": 1_767_225_600_003,
    "dlq": {
        "offset": "broker-a:17",
        "origin": {"topic": "orders", "queue": "broker-a:3", "offset": 42},
        "attempts": 16,
        "cause": "rejected",
        "reason": "no such shop",
        "dead_at": 1_767_225_900_000,
    },
}
_TASK = {
    "task": EXAMPLE_TASK,
    "type": "redrive",
    "group": "billing",
    "state": "running",
    "dry_run": False,
    "total": 120,
    "examined": 40,
    "redriven": 38,
    "skipped": 2,
    "failed": 0,
    "failures": [],
    "started_at": 1_767_226_000_000,
    "finished_at": None,
}
_TIME: Schema = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]}
_TOPIC: Schema = {"type": "string", "pattern": schemas.TOPIC_PATTERN}
_TEXT: Schema = {"type": "string"}
_OF_GROUP = (*ASKED, *BROKER, "illegal-group", "group-not-found", "no-name-server", "warming-up")
_OF_TASK = (*ASKED, *BROKER, "task-not-found", "no-name-server", "warming-up")

DEAD_LETTERS: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path=paths.dead_letters_path("{group}"),
        id="getDeadLetters",
        summary="Browse dead letters",
        parameters=(
            in_query("topic", _TOPIC, "Only of this topic."),
            in_query("tag", _TEXT, "Only with this tag."),
            in_query("reason", _TEXT, "Only with this in their reason."),
            in_query("from", _TIME, "Died then or later."),
            in_query("to", _TIME, "Died before."),
            number("limit", 1, limits.DEAD_LETTERS_PAGE_MAX, LIMIT_DEFAULT, "At most so many."),
            in_query("cursor", {"type": "string", "pattern": PLACE_PATTERN}, "`next_cursor` of the page before."),
            in_query("encoding", {"type": "string", "enum": list(ENCODINGS)}, "How bodies are written in JSON."),
        ),
        answers={200: gives(DeadLetters, "A page.", {"group": "billing", "messages": [_LETTER]})},
        errors=_OF_GROUP,
        query="?limit=10",
    ),
    Operation(
        method="DELETE",
        path=paths.dead_letters_path("{group}"),
        id="purgeDeadLetters",
        summary="Drop all dead letters",
        parameters=(in_query("confirm", _TEXT, "The group's name.", required=True),),
        answers={200: gives(Purged, "They are gone.", {"group": "billing", "purged": 12})},
        errors=(*_OF_GROUP, "confirmation-needed", "disk-full"),
        query="?confirm=billing",
    ),
    Operation(
        method="POST",
        path=paths.redrive_path("{group}"),
        id="redriveDeadLetters",
        summary="Deliver dead letters again",
        parameters=(
            in_header(paths.HEADER_IDEMPOTENCY_KEY, {"type": "string", "maxLength": 255}, "A repeat is the same task."),
        ),
        body=takes(
            messages.RedriveRequest,
            some={"offsets": ["broker-a:17", "broker-a:21"]},
            chosen={"topic": "orders", "reason": "no such shop", "rate": 100},
            everything={"all": True, "dry_run": True},
            origin={"to": messages.TO_ORIGIN},
        ),
        is_body_needed=True,
        answers={202: gives(RedriveTask, "A task does it.", _TASK, "Location")},
        errors=(*DECLARED, "illegal-group", "group-not-found"),
        bodies=((JSON, '{"topic": "orders", "rate": 100, "dry_run": true}'),),
    ),
    Operation(
        method="GET",
        path=paths.task_path("{task}"),
        id="getTask",
        summary="How a task is going",
        answers={200: gives(RedriveTask, "So far.", _TASK)},
        errors=_OF_TASK,
    ),
    Operation(
        method="DELETE",
        path=paths.task_path("{task}"),
        id="cancelTask",
        summary="Cancel a task",
        answers={
            200: gives(
                RedriveTask, "How far it came.", {**_TASK, "state": "cancelled", "finished_at": 1_767_226_060_000}
            )
        },
        errors=(*_OF_TASK, "disk-full"),
    ),
)
