"""Link request for the plan of a read: offsets of the queues of many topics, and stored bytes
between offsets.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits_reads import READ_PLAN_TOPICS_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

TIME_MAX_MS, OFFSET_MAX = (1 << 53) - 1, (1 << 63) - 1


class RangeToMeasure(msgspec.Struct, frozen=True, array_like=True):
    """Offsets [*begin*, *end*) of *queue*, -1 for its oldest and its next one; measured until
    *budget_bytes* are full, -1 for no budget.
    """

    queue: Annotated[int, msgspec.Meta(ge=0)]
    begin: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)] = -1
    end: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)] = -1
    budget_bytes: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)] = -1


class TopicToPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One topic of a plan. *time_ms* (since 1970): also the offsets of that time; -1 for none.

    *ranges*: what to measure; None for every queue, whole.
    """

    topic: str
    time_ms: Annotated[int, msgspec.Meta(ge=-1, le=TIME_MAX_MS)] = -1
    ranges: list[RangeToMeasure] | None = None


class PlannedQueue(msgspec.Struct, frozen=True, array_like=True):
    """One queue: its oldest and next offset; *offset_at*, -1 unless a time was given.

    Of a measured queue: the records of [*begin*, *measured_to*) have *size_bytes*, and every part
    between two *cuts* has at most the step. Of others *begin* and *measured_to* are -1.
    """

    queue: int
    min_offset: int
    max_offset: int
    offset_at: int = -1
    begin: int = -1
    measured_to: int = -1
    size_bytes: int = 0
    cuts: list[int] = []


class PlannedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """The queues of *topic* in one broker group."""

    topic: str
    queues: list[PlannedQueue]


class ReadPlanned(LinkReply, frozen=True, kw_only=True):
    """Reply: the topics in the order of the request."""

    topics: list[PlannedTopic]


class PlanRead(LinkRequest[ReadPlanned], frozen=True, kw_only=True):
    """Request the offsets of all queues of *topics*.

    *sizes*: also measure stored bytes, with a cut wherever a part of *step_bytes* is full (0: no
    cuts).
    """

    code: ClassVar = RequestCode.PLAN_READ
    reply: ClassVar = ReadPlanned

    topics: Annotated[list[TopicToPlan], msgspec.Meta(max_length=READ_PLAN_TOPICS_MAX)]
    sizes: bool = False
    step_bytes: Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)] = 0
