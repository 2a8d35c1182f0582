"""Link requests for scheduled messages, which wait for their delivery time: list and recall."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import SCHEDULED_LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

_MAX = (1 << 62) - 1
TimeMs = Annotated[int, msgspec.Meta(ge=0, le=_MAX)]
TimerId = Annotated[int, msgspec.Meta(ge=0, le=_MAX)]
# Delivery time and the number of a timer at that time, -1: before all of them.
TimerPlace = tuple[TimeMs, Annotated[int, msgspec.Meta(ge=-1, le=_MAX)]]


class ScheduledMessage(msgspec.Struct, frozen=True, array_like=True):
    """Scheduled message, without its body."""

    deliver_ms: int
    timer_id: int
    queue: int
    message_id: str
    tag: str
    keys: str
    born_ms: int
    body_size_bytes: int


class Scheduled(LinkReply, frozen=True, kw_only=True):
    """Reply: the next messages in the order of their delivery; *next* is where to continue, None at
    the end.
    """

    messages: list[ScheduledMessage]
    next: TimerPlace | None


class ListScheduled(LinkRequest[Scheduled], frozen=True, kw_only=True):
    """List at most *count* messages of *topic* with a delivery time from *begin_ms* to *end_ms*,
    from behind *after* on.
    """

    code: ClassVar = RequestCode.LIST_SCHEDULED
    reply: ClassVar = Scheduled

    topic: str
    begin_ms: TimeMs
    end_ms: TimeMs
    count: Annotated[int, msgspec.Meta(ge=1, le=SCHEDULED_LISTED_MAX)]
    after: TimerPlace


class Recalled(LinkReply, frozen=True, kw_only=True):
    """Reply: the message will not be delivered."""

    # Always 1: the number of messages.
    recalled: int


class Recall(LinkRequest[Recalled], frozen=True, kw_only=True):
    """Recall one message of *topic*; AlreadyDelivered or NotScheduled when it does not wait."""

    code: ClassVar = RequestCode.RECALL
    reply: ClassVar = Recalled

    topic: str
    deliver_ms: TimeMs
    timer_id: TimerId
