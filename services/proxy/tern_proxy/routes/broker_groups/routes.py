"""Rows for adding and removing broker groups."""

from tern_proxy.core.documents.broker_groups import (
    BrokerGroupJoined,
    BrokerGroupLeft,
    GroupBehind,
    TopicLeft,
    TopicPlace,
    TopicPlacePage,
)
from tern_proxy.routes.broker_groups.broker_groups import (
    ELSEWHERE,
    HERE,
    get_broker_group,
    join_broker_group,
    list_broker_group_topics,
)
from tern_proxy.routes.failures import ASKED, BROKER, ROUTED
from tern_proxy.routes.lists import CURSOR, LIMIT
from tern_proxy.routes.route import Route, gives, in_query
from tern_wire.errors import BrokerGroupNotFound, DiskFull, LimitReached, NoLeader
from tern_wire.paths import broker_group_path, broker_group_topics_path, join_path

_LEFT = BrokerGroupLeft(
    broker_group="broker-a",
    writable=False,
    leader="broker-a-0",
    topics=2,
    placed=0,
    moving=0,
    unread=12,
    in_flight=2,
    scheduled=0,
    unclaimed=40,
    transactions=0,
    dead_letters=0,
    is_drained=False,
    topics_left=[
        TopicLeft(
            namespace="",
            topic="orders",
            why=["unread"],
            unread=12,
            in_flight=2,
            scheduled=0,
            groups=[GroupBehind(group="billing", unread=12)],
        )
    ],
    dead_letters_left=[],
)
_PLACE = TopicPlace(namespace="", topic="orders", broker_groups=["broker-a"], before=[], hosts=["broker-a"])
_JOINED = BrokerGroupJoined(broker_group="broker-a", groups=0, producer_groups=0)
_KNOWN = (*ASKED, BrokerGroupNotFound, *ROUTED, NoLeader)
# Answers name topics of all namespaces, and declarations affect all namespaces: for administrators.
_ADMIN = ("ADMIN cluster",)

ROUTES = (
    Route(
        "GET",
        broker_group_path("{broker_group}"),
        get_broker_group,
        id="getBrokerGroup",
        tag="cluster",
        summary="Remaining contents of a broker group",
        asks=_ADMIN,
        is_admin=True,
        gives={200: gives(_LEFT, "From its leader.")},
        errors=(*_KNOWN, *BROKER),
    ),
    Route(
        "GET",
        broker_group_topics_path("{broker_group}"),
        list_broker_group_topics,
        id="listBrokerGroupTopics",
        tag="cluster",
        summary="Topics of a broker group",
        asks=_ADMIN,
        is_admin=True,
        parameters=(
            LIMIT,
            CURSOR,
            in_query("which", {"enum": [HERE, ELSEWHERE], "default": HERE}, "Topics in it, or the others."),
        ),
        gives={200: gives(TopicPlacePage(topics=[_PLACE], next_cursor=""), "From this proxy's routes.")},
        errors=_KNOWN,
    ),
    Route(
        "POST",
        join_path("{broker_group}"),
        join_broker_group,
        id="joinBrokerGroup",
        tag="cluster",
        summary="Declare in a broker group the groups of the others",
        asks=_ADMIN,
        is_admin=True,
        gives={200: gives(_JOINED, "It has all groups now.")},
        errors=(*_KNOWN, *BROKER, LimitReached, DiskFull),
    ),
)
