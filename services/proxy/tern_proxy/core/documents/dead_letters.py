"""Documents of dead letters: selections, pages, purges, and redrive tasks."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from tern_proxy.core.documents.messages import ReadMessage
from tern_proxy.core.documents.values import Count, Offset, ProblemMap, Queue, Time, shown, words
from tern_wire import limits

TASK_PATTERN = "^[0-9a-f]{24}$"
# The form of a queue, but the number is an offset.
PLACE_PATTERN = r"^[a-z0-9][a-z0-9-]{0,30}:(0|[1-9][0-9]{0,17})$"
Place = Annotated[str, Meta(pattern=PLACE_PATTERN, description="Broker group and offset among its dead letters.")]
_UNTIL = "Died before this time. Or `origin`, the default target: by itself it selects all."


# Requests -----------------------------------------------------------------------------------------
class RedriveRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/groups/{group}/dlq/redrive: `offsets` (`broker-a:17`), or `all`, or a
    selection by the other fields.

    `topic`, `tag`, `reason` (a part of it), `from` and `to` narrow the selection together; `rate`
    is in messages a second. `"to": "origin"` is not a time: it names the default target, each
    message's own queue, and without another selection it selects all.
    """

    offsets: (
        Annotated[
            list[Annotated[str, shown(pattern=PLACE_PATTERN)]], shown(minItems=1, maxItems=limits.REDRIVE_OFFSETS_MAX)
        ]
        | UnsetType
    ) = UNSET
    all: bool | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    from_: str | int | UnsetType = field(name="from", default=UNSET)
    to: Annotated[str | int, shown(_UNTIL)] | UnsetType = UNSET
    rate: Annotated[int, shown(minimum=0, maximum=limits.REDRIVE_RATE_MAX_PER_S)] = 0
    dry_run: bool = False


# Answers ------------------------------------------------------------------------------------------
class Origin(Struct, kw_only=True):
    """The queue and offset of the original message."""

    topic: str
    queue: Queue
    offset: Offset


class Death(Struct, kw_only=True):
    """Death of a message."""

    offset: Place
    origin: Origin
    attempts: Annotated[int, Meta(ge=1)]
    cause: Annotated[str, words("expired", "nacked", "rejected")]
    reason: Annotated[str, Meta(description="The consumer's reason for rejecting it.")]
    dead_at: Time


class DeadLetter(ReadMessage, kw_only=True):
    """The message as it was sent, and its death.

    `body_size` replaces the body for principals that may not receive the group's messages.
    """

    dlq: Death


class DeadLetters(Struct, kw_only=True):
    """A page of dead letters."""

    group: str
    messages: Annotated[list[DeadLetter], Meta(max_length=limits.DEAD_LETTERS_PAGE_MAX)]
    next_cursor: Annotated[str, Meta(description="For the next page; missing on the last one.")] | UnsetType = UNSET


class Purged(Struct, kw_only=True):
    """The number of dropped dead letters."""

    group: str
    purged: Count


class RedriveFailure(Struct, kw_only=True):
    """A dead letter that could not be redriven."""

    offset: Place
    error: ProblemMap


class RedriveTask(Struct, kw_only=True):
    """Progress of a redrive, in all broker groups together.

    With `dry_run`, the progress that it would have made.
    """

    task: Annotated[str, Meta(pattern=TASK_PATTERN)]
    type: Annotated[str, words("redrive")]
    group: str
    state: Annotated[str, words("running", "done", "cancelled")]
    dry_run: bool
    total: Annotated[int, Meta(ge=0, description="Dead letters at its begin, or offsets in the request.")]
    examined: Annotated[int, Meta(ge=0, description="How many of these it has processed.")]
    redriven: Count
    skipped: Annotated[int, Meta(ge=0, description="Not selected.")]
    failed: Count
    failures: Annotated[list[RedriveFailure], Meta(description="The first failures in each broker group.")]
    started_at: Time
    finished_at: Time | None
