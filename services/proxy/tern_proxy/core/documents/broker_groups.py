"""Documents of adding and removing broker groups: remaining contents, topics by place, and what a
join added.
"""

from typing import Annotated

from msgspec import Meta, Struct

from tern_proxy.core.documents.values import BrokerGroupName, Count, Cursor
from tern_wire.limits import LEFT_SHOWN_MAX, LISTED_MAX

Namespace = Annotated[str, Meta(description="Whose it is; empty for nobody's.")]


class GroupBehind(Struct, kw_only=True):
    """A consumer group with unsettled messages of a topic in the broker group."""

    group: str
    unread: Count


class TopicLeft(Struct, kw_only=True):
    """A topic that is an obstacle to removing the broker group."""

    namespace: Namespace
    topic: str
    why: Annotated[list[str], Meta(description="placed, moving, unread, scheduled.")]
    unread: Count
    in_flight: Count
    scheduled: Count
    groups: Annotated[list[GroupBehind], Meta(description="Those that have the most to read, 10 at most.")]


class DeadLettersLeft(Struct, kw_only=True):
    """Dead letters of one consumer group in the broker group."""

    namespace: Namespace
    group: str
    dead_letters: Count


class BrokerGroupLeft(Struct, kw_only=True):
    """Remaining contents of a broker group."""

    broker_group: BrokerGroupName
    writable: Annotated[bool, Meta(description="Whether an operator lets new messages go there.")]
    leader: Annotated[str, Meta(description="Empty while none is known.")]
    topics: Annotated[int, Meta(ge=0, description="That it hosts.")]
    placed: Annotated[int, Meta(ge=0, description="Topics whose keyed and ordered messages go there.")]
    moving: Annotated[int, Meta(ge=0, description="Topics that are on their way from there.")]
    unread: Annotated[int, Meta(ge=0, description="Not settled by the group of each topic that is furthest behind.")]
    in_flight: Annotated[int, Meta(ge=0, description="Leased, by all groups.")]
    scheduled: Annotated[int, Meta(ge=0, description="Waiting for their delivery time.")]
    unclaimed: Annotated[int, Meta(ge=0, description="Of topics that no group reads; they go with it.")]
    transactions: Annotated[int, Meta(ge=0, description="Open or expired.")]
    dead_letters: Count
    is_drained: Annotated[bool, Meta(description="It may be taken out.")]
    topics_left: Annotated[list[TopicLeft], Meta(max_length=LEFT_SHOWN_MAX)]
    dead_letters_left: Annotated[list[DeadLettersLeft], Meta(max_length=LEFT_SHOWN_MAX)]


class TopicPlace(Struct, kw_only=True):
    """Place of a topic."""

    namespace: Namespace
    topic: str
    broker_groups: Annotated[list[BrokerGroupName], Meta(description="Where keyed and ordered messages go.")]
    before: Annotated[list[BrokerGroupName], Meta(description="Where they went, while that is not over.")]
    hosts: Annotated[list[BrokerGroupName], Meta(description="Who has queues of it.")]


class TopicPlacePage(Struct, kw_only=True):
    """Topics in order of their names, those of a namespace together."""

    topics: Annotated[list[TopicPlace], Meta(max_length=LISTED_MAX)]
    next_cursor: Cursor


class BrokerGroupJoined(Struct, kw_only=True):
    """Additions to the broker group."""

    broker_group: BrokerGroupName
    groups: Annotated[int, Meta(ge=0, description="Consumer groups that are declared there now.")]
    producer_groups: Annotated[int, Meta(ge=0, description="Producer groups that are declared there now.")]
