"""Documents of planned reads: ranges of offsets, sizes, where to cut them; and read leases."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from tern_proxy.core.documents.values import (
    OFFSET_MAX,
    QUEUE_PATTERN,
    TOPIC_PATTERN,
    Count,
    DurationText,
    Offset,
    Queue,
    Time,
    shown,
    span,
    told,
)
from tern_wire.limits_reads import READ_LEASE_MAX_MS, READ_LEASE_MIN_MS, READ_PLAN_TOPICS_MAX

_Topic = Annotated[str, shown(pattern=TOPIC_PATTERN)]
_Numbers = dict[str, Annotated[int, shown(minimum=0, maximum=OFFSET_MAX)]]
_BY_QUEUE = {"propertyNames": {"pattern": QUEUE_PATTERN}}
_Time = str | Annotated[int, shown(minimum=0)]
_STEP = "Cut the measured ranges into parts of at most so many bytes, at least one message each."


# Requests -----------------------------------------------------------------------------------------
class TopicToRead(Struct, forbid_unknown_fields=True):
    """One topic of a plan; queues written `broker-a:3`.

    Where `sizes` are wanted, the queues in `begin`, `end` and `budget_bytes` are measured, or if
    these are empty all queues.
    """

    topic: _Topic
    time: Annotated[_Time, shown("Also `offset_at` of each queue.")] | UnsetType = UNSET
    begin: Annotated[_Numbers, shown("The oldest offset by default.", **_BY_QUEUE)] = {}
    end: Annotated[_Numbers, shown("The next offset by default.", **_BY_QUEUE)] = {}
    budget_bytes: Annotated[_Numbers, shown("Measure until so many bytes are full.", **_BY_QUEUE)] = {}


class ReadPlanRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/reads/plan."""

    topics: Annotated[list[TopicToRead], shown(minItems=1, maxItems=READ_PLAN_TOPICS_MAX)]
    sizes: Annotated[bool, shown("Sum up stored bytes.")] = False
    step_bytes: Annotated[int, shown(_STEP, minimum=0, maximum=OFFSET_MAX)] = 0


class TopicToLease(Struct, forbid_unknown_fields=True):
    """One topic of a lease: the queues in `begin` and `end`, written `broker-a:3`, or if these are
    empty all queues.
    """

    topic: _Topic
    begin: Annotated[_Numbers, shown("The oldest offset by default.", **_BY_QUEUE)] = {}
    end: Annotated[_Numbers, shown("The next offset by default.", **_BY_QUEUE)] = {}


_FOR = told("Time of the lease; 1 h by default.", READ_LEASE_MIN_MS, READ_LEASE_MAX_MS)
_Duration = Annotated[DurationText | Annotated[int, span(READ_LEASE_MIN_MS, READ_LEASE_MAX_MS)], _FOR] | None


class ReadLeaseRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/read-leases."""

    topics: Annotated[list[TopicToLease], shown(minItems=1, maxItems=READ_PLAN_TOPICS_MAX)]
    duration: _Duration = field(default=None, name="for")


class ReadLeaseRenewal(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/read-leases/{lease}."""

    duration: _Duration = field(default=None, name="for")


# Answers ------------------------------------------------------------------------------------------
class PlannedQueue(Struct, kw_only=True):
    """A queue: its oldest and next offset, and with `sizes` what its messages take."""

    queue: Queue
    min_offset: Offset
    max_offset: Offset
    offset_at: Annotated[int, Meta(ge=0, description="With `time`: the first one visible then.")] | UnsetType = UNSET
    begin: Annotated[int, Meta(ge=0, description="The first offset that was measured.")] | UnsetType = UNSET
    measured_to: (
        Annotated[int, Meta(ge=0, description="The offset behind the last one; continue there.")] | UnsetType
    ) = UNSET
    size_bytes: Annotated[int, Meta(ge=0, description="Of the records between them.")] | UnsetType = UNSET
    cuts: list[Offset] | UnsetType = UNSET


class PlannedTopic(Struct, kw_only=True):
    """Every queue of a topic."""

    topic: str
    queues: list[PlannedQueue]


class ReadPlan(Struct, kw_only=True):
    """Topics in the order of the request.

    `is_complete`: everything was measured that should be.
    """

    topics: list[PlannedTopic]
    is_complete: bool
    size_bytes: Annotated[Count, Meta(description="Of all measured ranges.")]


class LeasedQueue(Struct, kw_only=True):
    """Kept offsets of a queue, from `begin` to before `end`."""

    queue: Queue
    begin: Offset
    end: Offset


class LeasedTopic(Struct, kw_only=True):
    """The kept queues of a topic."""

    topic: str
    queues: list[LeasedQueue]


class ReadLeaseTimes(Struct, kw_only=True):
    """A lease and its times."""

    lease: str
    taken_at: Time
    leased_until: Annotated[Time, Meta(description="Renew it before, or it is over. Milliseconds since 1970.")]


class ReadLease(ReadLeaseTimes, kw_only=True):
    """A lease and what it keeps."""

    topics: list[LeasedTopic]


class ListedLeasedTopic(Struct, kw_only=True):
    """A topic of a listed lease."""

    topic: str
    queues: Count
    messages: Annotated[Count, Meta(description="In the kept ranges.")]


class ListedReadLease(Struct, kw_only=True):
    """A lease, with its parts in all broker groups together."""

    lease: str
    owner: Annotated[str, Meta(description="Principal that took it; empty without credentials.")]
    taken_at: Time
    leased_until: Time
    broken_by: Annotated[str, Meta(description="Why it keeps nothing any more; empty while it does.")]
    topics: list[ListedLeasedTopic]


class ReadLeases(Struct, kw_only=True):
    """All leases that the caller may see."""

    leases: list[ListedReadLease]
