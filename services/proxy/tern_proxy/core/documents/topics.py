"""Documents of topics: declared, described, listed, placed and deleted."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import Attributes, ChangedAttributes, Cursor, Offset, Queue, Time, shown, words
from tern_wire import limits
from tern_wire.settings.when_full import CHOICES, MEANING

_KINDS = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
Permission = Annotated[str, words("rw", "r", "w", "none")]
_QUEUES = f"In each broker group; {limits.QUEUES_PER_TOPIC_DEFAULT} in a new topic. May grow, never shrink."


# Requests -----------------------------------------------------------------------------------------
class TopicSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT and PATCH /v1/topics/{topic}.

    Omitted fields stay as they are, or get their defaults in a new topic; an attribute that is null
    is removed.
    """

    queues: Annotated[int, shown(_QUEUES, minimum=1, maximum=limits.QUEUES_PER_TOPIC_MAX)] | UnsetType = UNSET
    type: Annotated[str, words(*_KINDS)] | UnsetType = UNSET
    permission: Permission | UnsetType = UNSET
    when_full: Annotated[str, words(*CHOICES, text=MEANING + " `refuse` in a new topic.")] | UnsetType = UNSET
    attributes: ChangedAttributes | UnsetType = UNSET


class PlacementSettings(Struct, forbid_unknown_fields=True):
    """The body of PUT /v1/topics/{topic}/placement: the broker groups for its keyed and ordered
    messages.
    """

    broker_groups: Annotated[list[str], shown(minItems=1, maxItems=limits.PLACEMENT_GROUPS_MAX, uniqueItems=True)]


# Answers ------------------------------------------------------------------------------------------
class TopicState(Struct, kw_only=True):
    """Settings of a topic."""

    topic: str
    type: Annotated[str, words(*_KINDS, text="Messages that it accepts.")]
    permission: Permission
    queues: Annotated[int, Meta(ge=1, description="In all broker groups together.")]
    broker_groups: Annotated[dict[str, int], Meta(description="Queues by broker group.")]
    when_full: Annotated[str, words(*CHOICES, text=MEANING)]
    attributes: Attributes
    created_at: Time


class TopicDeclared(TopicState, kw_only=True):
    """A topic, and whether it is new."""

    created: bool


class QueueOffsets(Struct, kw_only=True):
    """Oldest and next offset of a queue."""

    queue: Queue
    min_offset: Offset
    max_offset: Offset
    offset_at: Annotated[int, Meta(ge=0, description="With `time`: the first one visible then.")] | UnsetType = UNSET


class TopicDescription(TopicState, kw_only=True):
    """A topic, its queues, and the groups that have begun to read it."""

    offsets: list[QueueOffsets]
    groups: Annotated[list[str], Meta(description=f"At most {limits.LISTED_MAX:,} of each broker group.")]


class TopicOffsets(Struct, kw_only=True):
    """Every queue of a topic."""

    topic: str
    queues: list[QueueOffsets]


class TopicPlacement(Struct, kw_only=True):
    """The broker groups of a topic's keyed and ordered messages."""

    topic: str
    epoch: Annotated[int, Meta(ge=0, description="Grows with each change; 0 without a placement.")]
    broker_groups: list[str]
    before: Annotated[list[str], Meta(description="The previous broker groups, while the move is in progress.")]
    is_moving: bool
    moving_until: Annotated[int, Meta(description="Earliest end of the move, ms since 1970; 0 when nothing moves.")]
    hosts: Annotated[list[str], Meta(description="Broker groups with queues of it.")]


class TopicPlaced(TopicPlacement, kw_only=True):
    """The new placement, and whether it changed."""

    changed: bool
    left: Annotated[str, Meta(description="The obstacle to ending a move; empty for none.")]


class ListedTopic(Struct, kw_only=True):
    """A topic in a list."""

    topic: str
    type: Annotated[str, words(*_KINDS)]
    permission: Permission
    queues: Annotated[int, Meta(ge=1)]
    broker_groups: list[str]


class TopicPage(Struct, kw_only=True):
    """Topics in order."""

    topics: Annotated[list[ListedTopic], Meta(max_length=limits.LISTED_MAX)]
    next_cursor: Cursor


class TopicDeleted(Struct, kw_only=True):
    """A deleted topic."""

    topic: str
    deleted: bool
