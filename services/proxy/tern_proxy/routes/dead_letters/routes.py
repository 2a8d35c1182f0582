"""Rows of dead letters.

Bodies require SUB of the group; a redrive delivers only to the group of the dead letters.
"""

from msgspec.structs import replace

from tern_proxy.core.documents.dead_letters import (
    PLACE_PATTERN,
    DeadLetter,
    DeadLetters,
    Death,
    Origin,
    Purged,
    RedriveRequest,
    RedriveTask,
)
from tern_proxy.core.documents.values import TOPIC_PATTERN
from tern_proxy.routes.dead_letters.letters import LIMIT_DEFAULT, delete_letters, get_letters
from tern_proxy.routes.dead_letters.tasks import KEY_LENGTH_MAX, delete_task, get_task, post_redrive
from tern_proxy.routes.failures import ASKED, BROKER, DECLARED, GROUP, ROUTED
from tern_proxy.routes.lists import continued, moment
from tern_proxy.routes.messages.bodies import ENCODING_IN_JSON
from tern_proxy.routes.reference.examples import EXAMPLE_NAMES
from tern_proxy.routes.route import Route, gives, in_header, in_query, number, takes
from tern_wire.errors import ConfirmationNeeded, DiskFull, GroupNotFound, IllegalGroup, IllegalTopic, TaskNotFound
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX
from tern_wire.paths import HEADER_IDEMPOTENCY_KEY, JSON, TO_ORIGIN, dead_letters_path, redrive_path, task_path

_LETTER = DeadLetter(
    message_id=EXAMPLE_NAMES["message_id"],
    topic="orders",
    queue="broker-a:3",
    offset=42,
    json={"total": 9.5},
    content_type=JSON,
    born_at=1_767_225_600_000,
    stored_at=1_767_225_600_003,
    dlq=Death(
        offset="broker-a:17",
        origin=Origin(topic="orders", queue="broker-a:3", offset=42),
        attempts=16,
        cause="rejected",
        reason="no such shop",
        dead_at=1_767_225_900_000,
    ),
)
_TASK = RedriveTask(
    task=EXAMPLE_NAMES["task"],
    type="redrive",
    group="billing",
    state="running",
    dry_run=False,
    total=120,
    examined=40,
    redriven=38,
    skipped=2,
    failed=0,
    failures=[],
    started_at=1_767_226_000_000,
    finished_at=None,
)
_TEXT = {"type": "string"}
_OF_GROUP = (*ASKED, *BROKER, *GROUP)
_OF_TASK = (*ASKED, *BROKER, *ROUTED, TaskNotFound)
_LETTERS, _REDRIVE, _ONE = dead_letters_path("{group}"), redrive_path("{group}"), task_path("{task}")

ROUTES = (
    Route(
        "GET",
        _LETTERS,
        get_letters,
        id="getDeadLetters",
        tag="dead letters",
        summary="Browse dead letters",
        asks=("DESCRIBE group {group}",),
        parameters=(
            in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "Only of this topic."),
            in_query("tag", _TEXT, "Only with this tag."),
            in_query("reason", _TEXT, "Only with this text in their reason."),
            moment("from", "Died then or later."),
            moment("to", "Died before."),
            number("limit", 1, DEAD_LETTERS_PAGE_MAX, LIMIT_DEFAULT, "Largest number of results."),
            continued(pattern=PLACE_PATTERN),
            ENCODING_IN_JSON,
        ),
        gives={200: gives(DeadLetters(group="billing", messages=[_LETTER]), "A page.")},
        errors=(*_OF_GROUP, IllegalTopic),
        query="?limit=10",
    ),
    Route(
        "DELETE",
        _LETTERS,
        delete_letters,
        id="purgeDeadLetters",
        tag="dead letters",
        summary="Drop all dead letters",
        asks=("DELETE group {group}",),
        is_admin=True,
        parameters=(in_query("confirm", _TEXT, "The group's name.", required=True),),
        gives={200: gives(Purged(group="billing", purged=12), "They are deleted.")},
        errors=(*_OF_GROUP, ConfirmationNeeded, DiskFull),
        query="?confirm=billing",
    ),
    Route(
        "POST",
        _REDRIVE,
        post_redrive,
        id="redriveDeadLetters",
        tag="dead letters",
        summary="Deliver dead letters again",
        asks=("SEEK group {group}", "DESCRIBE topic of the body if it names one"),
        is_admin=True,
        parameters=(
            in_header(
                HEADER_IDEMPOTENCY_KEY,
                {"type": "string", "maxLength": KEY_LENGTH_MAX},
                "A repeat returns the same task.",
            ),
        ),
        takes=takes(
            RedriveRequest,
            is_needed=True,
            some={"offsets": ["broker-a:17", "broker-a:21"]},
            chosen={"topic": "orders", "reason": "no such shop", "rate": 100},
            everything={"all": True, "dry_run": True},
            origin={"to": TO_ORIGIN},
        ),
        gives={202: gives(_TASK, "The task that delivers them.", "Location")},
        errors=(*DECLARED, IllegalGroup, GroupNotFound, IllegalTopic),
        bodies=((JSON, '{"topic": "orders", "rate": 100, "dry_run": true}'),),
    ),
    Route(
        "GET",
        _ONE,
        get_task,
        id="getTask",
        tag="dead letters",
        summary="Progress of a task",
        asks=("DESCRIBE group of the task",),
        gives={200: gives(_TASK, "So far.")},
        errors=_OF_TASK,
    ),
    Route(
        "DELETE",
        _ONE,
        delete_task,
        id="cancelTask",
        tag="dead letters",
        summary="Cancel a task",
        asks=("SEEK group of the task",),
        is_admin=True,
        gives={200: gives(replace(_TASK, state="cancelled", finished_at=1_767_226_060_000), "The final progress.")},
        errors=(*_OF_TASK, DiskFull),
    ),
)
