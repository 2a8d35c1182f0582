"""Documents of the offsets of consumer groups: shown, committed and moved.

Offsets of queues are with topics.
"""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from tern_proxy.core.documents.values import OFFSET_MAX, QUEUE_PATTERN, TOPIC_PATTERN, Offset, Queue, shown

_TOPIC = Annotated[str, shown(pattern=TOPIC_PATTERN)]
_QUEUE = Annotated[str, shown(pattern=QUEUE_PATTERN)]
_OFFSET = Annotated[int, shown(minimum=0, maximum=OFFSET_MAX)]
_NUMBERS = dict[str, _OFFSET]
_BY_QUEUE = shown(propertyNames={"pattern": QUEUE_PATTERN})
_EXPECTED = "Offsets that are committed now, or null where the group has not begun; else nothing is committed."
_EPOCHS = "Epochs of the queues' locks: refused once another member has held one of them."


# Requests -----------------------------------------------------------------------------------------
class OffsetsCommit(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/groups/{group}/offsets; keys are queues written `broker-a:3`."""

    topic: _TOPIC
    offsets: Annotated[_NUMBERS, _BY_QUEUE, shown(minProperties=1)]
    expected: Annotated[dict[str, _OFFSET | None], _BY_QUEUE, shown(_EXPECTED)] = {}
    epochs: Annotated[_NUMBERS, _BY_QUEUE, shown(_EPOCHS)] = {}


class SeekPlace(Struct, forbid_unknown_fields=True):
    """The target of a seek other than `earliest` or `latest`: exactly one field.

    `shift` is a number of messages, backward if negative.
    """

    time: str | int | UnsetType = UNSET
    shift: int | UnsetType = UNSET
    offsets: dict[str, int] | UnsetType = UNSET


class SeekRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/groups/{group}/seek; queues written `broker-a:3`, all of the topic's by
    default.
    """

    topic: _TOPIC
    to: str | SeekPlace
    queues: Annotated[list[_QUEUE], shown(minItems=1)] | None = None
    dry_run: bool = False


# Answers ------------------------------------------------------------------------------------------
class GroupOffsets(Struct, kw_only=True):
    """Committed offsets by queue."""

    group: str
    topic: str
    offsets: dict[str, Offset]


class QueueMove(Struct, kw_only=True):
    """A group's move in one queue; `before` is null where it had not begun."""

    queue: Queue
    before: Offset | None
    after: Offset


class SeekMoves(Struct, kw_only=True):
    """Moves of a seek, or with `dry_run` the moves that it would make."""

    group: str
    topic: str
    dry_run: bool
    queues: list[QueueMove]
