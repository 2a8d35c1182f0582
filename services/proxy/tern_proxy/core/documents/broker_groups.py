"""Documents of adding and removing broker groups: remaining contents, topics by place, and what a
join added.
"""

from typing import Annotated

from msgspec import Meta, Struct

from tern_proxy.core.documents.values import BrokerGroupName, Count, Cursor
from tern_wire.limits import LEFT_SHOWN_MAX, LISTED_MAX

Namespace = Annotated[str, Meta(description="The namespace; empty for none.")]


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
    groups: Annotated[list[GroupBehind], Meta(description="The largest backlogs, 10 at most.")]


class DeadLettersLeft(Struct, kw_only=True):
    """Dead letters of one consumer group in the broker group."""

    namespace: Namespace
    group: str
    dead_letters: Count


class BrokerGroupLeft(Struct, kw_only=True):
    """Remaining contents of a broker group."""

    broker_group: BrokerGroupName
    writable: Annotated[bool, Meta(description="Whether new messages may be stored there.")]
    leader: Annotated[str, Meta(description="Empty while there is none.")]
    topics: Annotated[int, Meta(ge=0, description="Topics that it hosts.")]
    placed: Annotated[int, Meta(ge=0, description="Topics whose keyed and ordered messages are placed there.")]
    moving: Annotated[int, Meta(ge=0, description="Topics that are moving away from there.")]
    unread: Annotated[
        int, Meta(ge=0, description="Messages not settled by the group with the largest backlog of each topic.")
    ]
    in_flight: Annotated[int, Meta(ge=0, description="Leased, by all groups.")]
    scheduled: Annotated[int, Meta(ge=0, description="Waiting for their delivery time.")]
    unclaimed: Annotated[int, Meta(ge=0, description="Messages of topics that no group reads; they are lost with it.")]
    transactions: Annotated[int, Meta(ge=0, description="Open or expired.")]
    dead_letters: Count
    is_drained: Annotated[bool, Meta(description="Whether it may be removed.")]
    topics_left: Annotated[list[TopicLeft], Meta(max_length=LEFT_SHOWN_MAX)]
    dead_letters_left: Annotated[list[DeadLettersLeft], Meta(max_length=LEFT_SHOWN_MAX)]


class TopicPlace(Struct, kw_only=True):
    """Place of a topic."""

    namespace: Namespace
    topic: str
    broker_groups: Annotated[list[BrokerGroupName], Meta(description="Owners of keyed and ordered messages.")]
    before: Annotated[list[BrokerGroupName], Meta(description="Previous owners, while a move is in progress.")]
    hosts: Annotated[list[BrokerGroupName], Meta(description="Broker groups with queues of it.")]


class TopicPlacePage(Struct, kw_only=True):
    """Topics in order of their names, those of a namespace together."""

    topics: Annotated[list[TopicPlace], Meta(max_length=LISTED_MAX)]
    next_cursor: Cursor


class BrokerGroupJoined(Struct, kw_only=True):
    """Additions to the broker group."""

    broker_group: BrokerGroupName
    groups: Annotated[int, Meta(ge=0, description="Consumer groups declared there by this request.")]
    producer_groups: Annotated[int, Meta(ge=0, description="Producer groups declared there by this request.")]
