"""Rows of topics."""

from tern_proxy.core.documents.topics import (
    ListedTopic,
    PlacementSettings,
    QueueOffsets,
    TopicDeclared,
    TopicDeleted,
    TopicDescription,
    TopicPage,
    TopicPlaced,
    TopicPlacement,
    TopicSettings,
    TopicState,
)
from tern_proxy.core.documents.values import extended
from tern_proxy.routes.confirmation import confirm_with
from tern_proxy.routes.failures import ASKED, BROKER, DECLARED, ROUTED, TOPIC
from tern_proxy.routes.lists import CREATE_ONLY, LIST, sorted_by
from tern_proxy.routes.route import Route, gives, takes
from tern_proxy.routes.topics.placement import get_placement, put_placement
from tern_proxy.routes.topics.topics import delete_topic, get_topic, list_topics, patch_topic, put_topic
from tern_wire.errors import (
    AlreadyExists,
    ConfirmationNeeded,
    DiskFull,
    GroupConflict,
    IllegalTopic,
    PlacementMoving,
    TopicConflict,
    TopicNotFound,
    TopicReserved,
)
from tern_wire.paths import JSON, TOPICS_PATH, placement_path, topic_path

_TOPIC = TopicState(
    topic="orders",
    type="MIXED",
    permission="rw",
    queues=8,
    broker_groups={"broker-a": 8},
    when_full="refuse",
    attributes={"owner": "billing"},
    created_at=1_767_225_600_000,
)
_IS_NEW, _WAS_THERE = (extended(_TOPIC, TopicDeclared, created=created) for created in (True, False))
_DESCRIBED = extended(
    _TOPIC,
    TopicDescription,
    offsets=[QueueOffsets(queue="broker-a:3", min_offset=0, max_offset=43)],
    groups=["billing"],
)
_LISTED = ListedTopic(topic="orders", type="MIXED", permission="rw", queues=8, broker_groups=["broker-a"])
_PLACEMENT = TopicPlacement(
    topic="orders",
    epoch=2,
    broker_groups=["broker-a", "broker-b"],
    before=["broker-a"],
    is_moving=True,
    moving_until=1_767_226_200_000,
    hosts=["broker-a", "broker-b"],
)
_PLACED = extended(_PLACEMENT, TopicPlaced, changed=True, left="")
_ONE, _PLACE, _SEE = topic_path("{topic}"), placement_path("{topic}"), ("DESCRIBE topic {topic}",)

ROUTES = (
    Route(
        "GET",
        TOPICS_PATH,
        list_topics,
        id="listTopics",
        tag="topics",
        summary="List topics",
        parameters=(*LIST, sorted_by("name", "queues", "type")),
        gives={200: gives(TopicPage(topics=[_LISTED], next_cursor=""), "From this proxy's routes.")},
        errors=(*ASKED, *ROUTED),
        query="?q=ord&limit=10",
    ),
    Route(
        "GET",
        _ONE,
        get_topic,
        id="getTopic",
        tag="topics",
        summary="Describe a topic",
        asks=_SEE,
        gives={200: gives(_DESCRIBED, "Settings, queues, groups.")},
        errors=(*ASKED, *TOPIC, *BROKER),
    ),
    Route(
        "PUT",
        _ONE,
        put_topic,
        id="putTopic",
        tag="topics",
        summary="Declare a topic",
        # With If-None-Match it cannot change an existing topic.
        asks=("CREATE topic {topic}", "ALTER topic {topic} if it names settings"),
        is_admin=True,
        parameters=(CREATE_ONLY,),
        takes=takes(TopicSettings, settings={"queues": 8}, fifo={"type": "FIFO", "attributes": {"owner": "billing"}}),
        gives={200: gives(_WAS_THERE, "It existed; it has these settings now."), 201: gives(_IS_NEW, "It is new.")},
        errors=(*DECLARED, IllegalTopic, TopicReserved, TopicConflict, GroupConflict, AlreadyExists),
        bodies=((JSON, '{"queues": 8}'),),
    ),
    Route(
        "PATCH",
        _ONE,
        patch_topic,
        id="patchTopic",
        tag="topics",
        summary="Alter a topic",
        asks=("ALTER topic {topic}",),
        is_admin=True,
        takes=takes(TopicSettings, read_only={"permission": "r"}, grow={"queues": 16}),
        gives={200: gives(_WAS_THERE, "It has these settings now.")},
        errors=(*DECLARED, IllegalTopic, TopicReserved, TopicConflict, GroupConflict, TopicNotFound),
        bodies=((JSON, '{"permission": "rw"}'),),
    ),
    Route(
        "GET",
        _PLACE,
        get_placement,
        id="getPlacement",
        tag="topics",
        summary="Placement of keyed and ordered messages",
        asks=_SEE,
        gives={200: gives(_PLACEMENT, "From the leaders.")},
        errors=(*ASKED, *TOPIC, *BROKER),
    ),
    Route(
        "PUT",
        _PLACE,
        put_placement,
        id="putPlacement",
        tag="topics",
        summary="Move keyed and ordered messages to other broker groups",
        asks=("ALTER topic {topic}",),
        is_admin=True,
        takes=takes(PlacementSettings, grow={"broker_groups": ["broker-a", "broker-b"]}),
        gives={200: gives(_PLACED, "The new placement; the move may be in progress.")},
        errors=(*DECLARED, *TOPIC, PlacementMoving),
        bodies=((JSON, '{"broker_groups": ["broker-a"]}'),),
    ),
    Route(
        "DELETE",
        _ONE,
        delete_topic,
        id="deleteTopic",
        tag="topics",
        summary="Delete a topic",
        asks=("DELETE topic {topic}",),
        is_admin=True,
        parameters=(confirm_with("topic"),),
        gives={200: gives(TopicDeleted(topic="orders", deleted=True), "It is gone.")},
        errors=(*ASKED, *TOPIC, *BROKER, TopicReserved, ConfirmationNeeded, DiskFull),
        query="?confirm=orders",
    ),
)
