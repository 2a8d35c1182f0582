"""Rows of statistics."""

from tern_proxy.core.documents.statistics import Flow, GroupLag, QueueLag, QueueStats, TopicLag, TopicStats
from tern_proxy.core.documents.values import TOPIC_PATTERN
from tern_proxy.routes.failures import ASKED, BROKER, TOPIC
from tern_proxy.routes.route import Route, gives, in_query
from tern_proxy.routes.statistics.statistics import get_group_lag, get_topic_stats
from tern_wire.errors import GroupNotFound, IllegalGroup
from tern_wire.paths import lag_path, topic_stats_path

_FLOW = Flow(messages=4_200, bytes=4_300_800, messages_per_s=70.0, bytes_per_s=71_680.0)
_NO_FLOW = Flow(messages=0, bytes=0, messages_per_s=0.0, bytes_per_s=0.0)
_STATS = TopicStats(
    topic="orders",
    messages=43,
    scheduled=7,
    came_in=_FLOW,
    out=_FLOW,
    groups=["billing"],
    queues=[
        QueueStats(
            queue="broker-a:3",
            min_offset=0,
            max_offset=43,
            messages=43,
            last_visible_at=1_767_225_600_003,
            in_messages_per_s=0.72,
        )
    ],
)
_IN_QUEUE = QueueLag(queue="broker-a:3", committed=40, max_offset=43, lag=3, lag_ms=1_500, leased=2, resting=1, dying=0)
_IN_TOPIC = TopicLag(
    topic="orders",
    lag=3,
    leased=2,
    resting=1,
    dying=0,
    lag_ms=1_500,
    out=_FLOW,
    again=_NO_FLOW,
    queues=[_IN_QUEUE],
)
_LAG = GroupLag(group="billing", lag=3, lag_ms=1_500, dead_letters=0, topics=[_IN_TOPIC])

ROUTES = (
    Route(
        "GET",
        topic_stats_path("{topic}"),
        get_topic_stats,
        id="getTopicStats",
        tag="topics",
        summary="Statistics of a topic",
        asks=("DESCRIBE topic {topic}",),
        gives={200: gives(_STATS, "In all broker groups.")},
        errors=(*ASKED, *TOPIC, *BROKER),
    ),
    Route(
        "GET",
        lag_path("{group}"),
        get_group_lag,
        id="getGroupLag",
        tag="groups",
        summary="Lag of a group",
        asks=("DESCRIBE group {group}", "DESCRIBE topic of the query"),
        parameters=(in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "Only this topic."),),
        gives={200: gives(_LAG, "In all topics that it reads.")},
        errors=(*ASKED, *TOPIC, *BROKER, IllegalGroup, GroupNotFound),
        query="?topic=orders",
    ),
)
