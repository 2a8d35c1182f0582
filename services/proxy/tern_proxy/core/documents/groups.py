"""Documents of consumer groups: declared, described, listed and deleted."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import (
    Attributes,
    ChangedAttributes,
    Count,
    Cursor,
    DurationText,
    Invisible,
    shown,
    span,
    words,
)
from tern_wire import limits

Policy = Annotated[str, words("table", "custom", "exponential")]
Delay = DurationText | Annotated[int, span(0, limits.TIMER_DELAY_MAX_MS)]
_PARKED = (
    f"Messages that wait for an earlier one of their message group. With {limits.FIFO_PARKED_PER_QUEUE_MAX:,} in one queue, no further message of that queue is "
    "delivered until some are settled."
)


# Requests -----------------------------------------------------------------------------------------
class RetrySettings(Struct, forbid_unknown_fields=True):
    """Retry delays after failed attempts.

    `custom` has `delays`; `exponential` has `initial`, `multiplier`, `max`.
    """

    policy: Policy
    delays: Annotated[list[Delay], shown(minItems=1, maxItems=limits.RETRY_DELAYS_KEPT_MAX)] | UnsetType = UNSET
    initial: Delay | UnsetType = UNSET
    multiplier: Annotated[float, shown("1, or 1.1 and more.", minimum=1, maximum=100)] | UnsetType = UNSET
    max: Delay | UnsetType = UNSET


class GroupSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT and PATCH /v1/groups/{group}.

    Omitted fields stay as they are, or get their defaults in a new group. `start` is the initial
    position in a queue without a committed offset: earliest, latest, or a time.
    """

    invisible: Invisible | UnsetType = UNSET
    start: Annotated[str | int, shown("`earliest`, `latest`, or a time: RFC 3339, or ms since 1970.")] | UnsetType = (
        UNSET
    )
    max_attempts: Annotated[int, shown(minimum=1, maximum=limits.ATTEMPTS_MAX)] | UnsetType = UNSET
    retry: RetrySettings | UnsetType = UNSET
    fifo: bool | UnsetType = UNSET
    consume: bool | UnsetType = UNSET
    broadcast: bool | UnsetType = UNSET
    attributes: ChangedAttributes | UnsetType = UNSET


# Answers ------------------------------------------------------------------------------------------
class Retry(Struct, kw_only=True):
    """Retry delays after attempt 1, 2, ... has failed."""

    policy: Policy
    delays_ms: Annotated[list[int], Meta(description="The last one holds for all further attempts.")]
    initial_ms: Count | UnsetType = UNSET
    multiplier: float | UnsetType = UNSET
    max_ms: Count | UnsetType = UNSET


class GroupState(Struct, kw_only=True):
    """Settings of a consumer group."""

    group: str
    invisible_ms: Annotated[int, Meta(ge=limits.INVISIBLE_MIN_MS, le=limits.INVISIBLE_MAX_MS)]
    start: Annotated[str, words("earliest", "latest", "time")]
    start_at: Annotated[int, Meta(description="The time, where `start` is `time`; ms since 1970.")] | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=limits.ATTEMPTS_MAX)]
    retry: Retry
    fifo: bool
    consume: Annotated[bool, Meta(description="Whether it may receive.")]
    broadcast: bool
    attributes: Attributes


class GroupDeclared(GroupState, kw_only=True):
    """A consumer group, and whether it is new."""

    created: bool


class GroupProgress(Struct, kw_only=True):
    """Progress of a group in a topic, in messages."""

    topic: str
    lag: Annotated[int, Meta(ge=0, description="Messages that are not settled yet.")]
    leased: Count
    available: Annotated[int, Meta(ge=0, description="Messages that can be received now.")]
    parked: Annotated[int, Meta(ge=0, description=_PARKED)]
    committed: Annotated[dict[str, int], Meta(description="By queue; queues without a committed offset are omitted.")]


class GroupDescription(GroupState, kw_only=True):
    """A consumer group and its progress in each topic that it has begun."""

    topics: list[GroupProgress]
    truncated: Annotated[bool, Meta(description="Whether the list of topics is incomplete.")]


class GroupPage(Struct, kw_only=True):
    """Consumer groups in order of their names."""

    groups: Annotated[list[GroupState], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


class GroupDeleted(Struct, kw_only=True):
    """A deleted consumer group."""

    group: str
    deleted: bool
