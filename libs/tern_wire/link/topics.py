"""Topics, as proxies change, describe and delete them: what one broker group has of each.

What a change may say is in `tern_wire/settings/topic_settings.py`, whose maps have the fields of a ChangeTopic.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

TOPIC_ID_MAX = 1 << 62


# Changed -----------------------------------------------------------------------------------------------------------
class TopicState(LinkReply, frozen=True, kw_only=True):
    """How a topic is set up in a broker group.

    *queues*: so many it has there. *type*: `NORMAL`, `FIFO`, `DELAY`, `TRANSACTION` or `MIXED`. *perm*: RocketMQ's bits, 4 read and 2 write.
    *placement*: which broker groups take its keyed and ordered messages (`tern_wire/routing/placement.py`); "": nobody has said so.
    Times are ms since 1970 by the broker group's clock: *placed_ms* since when it is placed so, *keyed_ms* when a keyed message that will
    move away was last stored there; 0: never.
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
    """The topic after a change. *created*: it was not there before."""

    created: bool


class ChangeTopic(LinkRequest[TopicChanged], frozen=True, kw_only=True):
    """Create *topic*, or change it: the fields of a `TopicChange`. None, and what is empty: not named, so it stays as it is or gets its default.

    *mode*: `declare` (create it, or change it; "" is the same), `create` (only if it is not there) or `alter` (only if it is).
    *queues*: of this broker group. *attributes*: those that are set, and with None those that are removed. *placement*: where the topic is placed
    from now on, told to the broker group *own*; *ending*: let go of all that still moves away under this very placement.
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


# Described ---------------------------------------------------------------------------------------------------------
class QueueBounds(msgspec.Struct, frozen=True, array_like=True):
    """The oldest offset that *queue* keeps, and the one that its next message gets."""

    queue: int
    min_offset: int
    max_offset: int


class TopicDescription(TopicState, frozen=True, kw_only=True):
    """A topic with the *bounds* of all its queues, and names of consumer *groups* that have begun it, LISTED_MAX at most."""

    bounds: list[QueueBounds]
    groups: list[str]


class DescribeTopic(LinkRequest[TopicDescription], frozen=True, kw_only=True):
    """What this broker group has of *topic*; TopicNotFound."""

    code: ClassVar = RequestCode.DESCRIBE_TOPIC
    reply: ClassVar = TopicDescription

    topic: str


# Deleted -----------------------------------------------------------------------------------------------------------
class TopicDeleted(LinkReply, frozen=True, kw_only=True):
    """*deleted*: the topic that was meant is gone, now or before. *topic_id*: the one that has the name yet; 0: there is none."""

    deleted: bool
    topic_id: int


class DeleteTopic(LinkRequest[TopicDeleted], frozen=True, kw_only=True):
    """Delete *topic* with its messages, if its id is *topic_id*; 0: whichever has the name."""

    code: ClassVar = RequestCode.DELETE_TOPIC
    reply: ClassVar = TopicDeleted

    topic: str
    topic_id: Annotated[int, msgspec.Meta(ge=0, le=TOPIC_ID_MAX)]
