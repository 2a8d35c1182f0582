"""Broker groups that come and go, in the API document: schemas and operations. Data, imported as late as operations.py."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from tern_proxy.core.listing import LISTED_DEFAULT
from tern_proxy.openapi.operations import ASKED, BROKER, Operation, gives, in_query, number
from tern_proxy.openapi.schemas import Count
from tern_wire import paths
from tern_wire.limits import LEFT_SHOWN_MAX, LISTED_MAX

BROKER_GROUP_PATTERN = "^[a-z0-9][a-z0-9-]{0,30}$"
BrokerGroupName = Annotated[str, Meta(pattern=BROKER_GROUP_PATTERN)]
Namespace = Annotated[str, Meta(description="Whose it is; empty for nobody's.")]


class GroupBehind(Struct, kw_only=True):
    """A consumer group that has not settled all that a topic has in the broker group."""

    group: str
    unread: Count


class TopicLeft(Struct, kw_only=True):
    """A topic that keeps the broker group."""

    namespace: Namespace
    topic: str
    why: Annotated[list[str], Meta(description="placed, moving, unread, scheduled.")]
    unread: Count
    in_flight: Count
    scheduled: Count
    groups: Annotated[list[GroupBehind], Meta(description="Those that have the most to read, 10 at most.")]


class DeadLettersLeft(Struct, kw_only=True):
    """Dead letters of one consumer group that lie in the broker group."""

    namespace: Namespace
    group: str
    dead_letters: Count


class BrokerGroupLeft(Struct, kw_only=True):
    """What is left in a broker group."""

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
    """Where a topic is."""

    namespace: Namespace
    topic: str
    broker_groups: Annotated[list[BrokerGroupName], Meta(description="Where keyed and ordered messages go.")]
    before: Annotated[list[BrokerGroupName], Meta(description="Where they went, while that is not over.")]
    hosts: Annotated[list[BrokerGroupName], Meta(description="Who has queues of it.")]


class TopicPlacePage(Struct, kw_only=True):
    """Topics in order of their names, those of a namespace together."""

    topics: Annotated[list[TopicPlace], Meta(max_length=LISTED_MAX)]
    next_cursor: Annotated[str, Meta(description="For the next page; empty on the last one.")]


class BrokerGroupJoined(Struct, kw_only=True):
    """What was new in the broker group."""

    broker_group: BrokerGroupName
    groups: Annotated[int, Meta(ge=0, description="Consumer groups that are declared there now.")]
    producer_groups: Annotated[int, Meta(ge=0, description="Producer groups that are declared there now.")]


_LEFT: dict[str, Any] = {
    "broker_group": "broker-a",
    "writable": False,
    "leader": "broker-a-0",
    "topics": 2,
    "placed": 0,
    "moving": 0,
    "unread": 12,
    "in_flight": 2,
    "scheduled": 0,
    "unclaimed": 40,
    "transactions": 0,
    "dead_letters": 0,
    "is_drained": False,
    "topics_left": [
        {
            "namespace": "",
            "topic": "orders",
            "why": ["unread"],
            "unread": 12,
            "in_flight": 2,
            "scheduled": 0,
            "groups": [{"group": "billing", "unread": 12}],
        }
    ],
    "dead_letters_left": [],
}
_PLACE: dict[str, Any] = {
    "namespace": "",
    "topic": "orders",
    "broker_groups": ["broker-a"],
    "before": [],
    "hosts": ["broker-a"],
}
_KNOWN = (*ASKED, "broker-group-not-found", "no-name-server", "warming-up", "no-leader")
ANSWERS: tuple[type[Struct], ...] = (BrokerGroupLeft, TopicPlacePage, BrokerGroupJoined)
BROKER_GROUPS: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path=paths.broker_group_path("{broker_group}"),
        id="getBrokerGroup",
        summary="What is left in a broker group",
        answers={200: gives(BrokerGroupLeft, "As its leader says.", _LEFT)},
        errors=(*_KNOWN, *BROKER),
    ),
    Operation(
        method="GET",
        path=paths.broker_group_topics_path("{broker_group}"),
        id="listBrokerGroupTopics",
        summary="Topics of a broker group",
        parameters=(
            number("limit", 1, LISTED_MAX, LISTED_DEFAULT, "Rows on a page."),
            in_query("cursor", {"type": "string"}, "`next_cursor` of the page before."),
            in_query("which", {"enum": ["here", "elsewhere"], "default": "here"}, "Those in it, or the others."),
        ),
        answers={
            200: gives(TopicPlacePage, "As this proxy's routes know them.", {"topics": [_PLACE], "next_cursor": ""})
        },
        errors=_KNOWN,
    ),
    Operation(
        method="POST",
        path=paths.join_path("{broker_group}"),
        id="joinBrokerGroup",
        summary="Declare in a broker group what others have",
        answers={
            200: gives(
                BrokerGroupJoined,
                "It lacks nothing now.",
                {"broker_group": "broker-a", "groups": 0, "producer_groups": 0},
            )
        },
        errors=(*_KNOWN, *BROKER, "limit-reached", "disk-full"),
    ),
)
