"""Link requests for the topics of one broker group: change, describe and delete.

`tern_wire/settings/topic_settings.py` has the legal changes; its maps have the fields of a
ChangeTopic.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

TOPIC_ID_MAX = 1 << 62


# Changes ------------------------------------------------------------------------------------------
class TopicState(LinkReply, frozen=True, kw_only=True):
    """Settings of a topic in a broker group.

    *queues*: their number there. *type*: `NORMAL`, `FIFO`, `DELAY`, `TRANSACTION` or `MIXED`.
    *perm*: RocketMQ's bits, 4 read and 2 write. *placement*: the broker groups that take its keyed
    and ordered messages (`tern_wire/routing/placement.py`); "" if undecided. Times are ms since
    1970 by the broker group's clock: *placed_ms* is the time of this placement, *keyed_ms* the time
    of the last stored keyed message that will move away; 0: never.
    """

    topic_id: int
    queues: int
    type: str
    perm: int
    attributes: dict[str, str]
    created_ms: int
    placement: str = ""
    placed_ms: int = 0
    keyed_ms: int = 0


class TopicChanged(TopicState, frozen=True, kw_only=True):
    """Reply: the topic after a change. *created*: the change created it."""

    created: bool


class ChangeTopic(LinkRequest[TopicChanged], frozen=True, kw_only=True):
    """Create or change *topic*: the fields of a `TopicChange`.

    None and empty fields are not part of the change: they stay as they are or get their defaults.
    *mode*: `declare` (create or change; "" is the same), `create` (only if it does not exist) or
    `alter` (only if it exists). *queues*: their number in this broker group. *attributes*: values
    to set; None removes an attribute. *placement*: the topic's new placement, sent to the broker
    group *own*. *ending*: release everything that is still moving away under this placement.
    """

    code: ClassVar = RequestCode.CREATE_TOPIC
    reply: ClassVar = TopicChanged

    topic: str
    mode: str = ""
    queues: int | None = None
    type: str | None = None
    perm: int | None = None
    attributes: dict[str, str | None] = msgspec.field(default_factory=dict)
    placement: str = ""
    own: str = ""
    ending: bool = False


# Descriptions -------------------------------------------------------------------------------------
class QueueBounds(msgspec.Struct, frozen=True, array_like=True):
    """Oldest kept offset of *queue*, and the offset of its next message."""

    queue: int
    min_offset: int
    max_offset: int


class TopicDescription(TopicState, frozen=True, kw_only=True):
    """Reply: a topic with the *bounds* of all its queues, and names of at most LISTED_MAX consumer
    *groups* that read it.
    """

    bounds: list[QueueBounds]
    groups: list[str]


class DescribeTopic(LinkRequest[TopicDescription], frozen=True, kw_only=True):
    """Describe *topic* in this broker group. TopicNotFound."""

    code: ClassVar = RequestCode.DESCRIBE_TOPIC
    reply: ClassVar = TopicDescription

    topic: str


# Deletions ----------------------------------------------------------------------------------------
class TopicDeleted(LinkReply, frozen=True, kw_only=True):
    """Reply. *deleted*: the intended topic is gone, now or before.

    *topic_id*: the topic that still has the name; 0 for none.
    """

    deleted: bool
    topic_id: int


class DeleteTopic(LinkRequest[TopicDeleted], frozen=True, kw_only=True):
    """Delete *topic* with its messages, if its id is *topic_id*; 0 matches any id."""

    code: ClassVar = RequestCode.DELETE_TOPIC
    reply: ClassVar = TopicDeleted

    topic: str
    topic_id: Annotated[int, msgspec.Meta(ge=0, le=TOPIC_ID_MAX)]
