"""Rows of offsets."""

from tern_proxy.core.documents.offsets import GroupOffsets, OffsetsCommit, QueueMove, SeekMoves, SeekRequest
from tern_proxy.core.documents.topics import QueueOffsets, TopicOffsets
from tern_proxy.core.documents.values import TOPIC_PATTERN
from tern_proxy.routes.failures import ASKED, BROKER, DECLARED, READ, TOPIC
from tern_proxy.routes.lists import moment
from tern_proxy.routes.offsets.offsets import get_group_offsets, get_topic_offsets, post_seek, put_group_offsets
from tern_proxy.routes.route import Route, gives, in_query, takes
from tern_wire.errors import (
    DiskFull,
    GroupNotFound,
    IllegalGroup,
    MessageTooLarge,
    OffsetMoved,
    QueueLockLost,
    QueueNotFound,
    UpgradeUnfinished,
)
from tern_wire.paths import JSON, group_offsets_path, offsets_path, seek_path

_TOPIC_OFFSETS = TopicOffsets(topic="orders", queues=[QueueOffsets(queue="broker-a:3", min_offset=0, max_offset=43)])
_GROUP_OFFSETS = GroupOffsets(group="billing", topic="orders", offsets={"broker-a:3": 0})
_MOVES = SeekMoves(
    group="billing",
    topic="orders",
    dry_run=True,
    queues=[QueueMove(queue="broker-a:3", before=42, after=0)],
)
_OF_GROUP = group_offsets_path("{group}")

ROUTES = (
    Route(
        "GET",
        offsets_path("{topic}"),
        get_topic_offsets,
        id="getTopicOffsets",
        tag="topics",
        summary="Offsets of a topic",
        asks=("DESCRIBE topic {topic}",),
        parameters=(moment("time", "Also return the first offset of each queue that was visible from then on."),),
        gives={200: gives(_TOPIC_OFFSETS, "Every queue.")},
        errors=(*ASKED, *TOPIC, *BROKER),
    ),
    Route(
        "GET",
        _OF_GROUP,
        get_group_offsets,
        id="getGroupOffsets",
        tag="groups",
        summary="Committed offsets of a group",
        asks=("DESCRIBE group {group}", "DESCRIBE topic of the query"),
        parameters=(
            in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "The topic of the queues.", required=True),
        ),
        gives={200: gives(_GROUP_OFFSETS, "By queue; queues without a committed offset are omitted.")},
        errors=(*ASKED, *TOPIC, *BROKER, IllegalGroup, GroupNotFound),
        query="?topic=orders",
    ),
    Route(
        "PUT",
        _OF_GROUP,
        put_group_offsets,
        id="putGroupOffsets",
        tag="groups",
        summary="Move a group",
        asks=("ACK group {group}", "SUB topic of the body"),
        takes=takes(
            OffsetsCommit,
            is_needed=True,
            seek={"topic": "orders", "offsets": {"broker-a:3": 0}},
            only_if={"topic": "orders", "offsets": {"broker-a:3": 42}, "expected": {"broker-a:3": 0}},
            begin={"topic": "orders", "offsets": {"broker-a:3": 42}, "expected": {"broker-a:3": None}},
        ),
        gives={200: gives(_GROUP_OFFSETS, "The committed offsets.")},
        errors=(
            *(*ASKED, *READ, *TOPIC, *BROKER),
            *(IllegalGroup, GroupNotFound, QueueNotFound, OffsetMoved, QueueLockLost, MessageTooLarge, DiskFull),
            UpgradeUnfinished,
        ),
        bodies=((JSON, '{"topic": "orders", "offsets": {"broker-a:3": 0}}'),),
    ),
    Route(
        "POST",
        seek_path("{group}"),
        post_seek,
        id="seekGroup",
        tag="groups",
        summary="Move a group to a time, an end, or by a shift",
        asks=("SEEK group {group}", "DESCRIBE topic of the body"),
        is_admin=True,
        takes=takes(
            SeekRequest,
            is_needed=True,
            dry={"topic": "orders", "to": "earliest", "dry_run": True},
            time={"topic": "orders", "to": {"time": "2026-01-31T12:00:00Z"}},
            shift={"topic": "orders", "to": {"shift": -1000}, "queues": ["broker-a:3"]},
            offsets={"topic": "orders", "to": {"offsets": {"broker-a:3": 0}}},
        ),
        gives={200: gives(_MOVES, "Before and after, by queue.")},
        errors=(*DECLARED, *TOPIC, IllegalGroup, GroupNotFound, QueueNotFound),
        bodies=((JSON, '{"topic": "orders", "to": "earliest", "dry_run": true}'),),
    ),
)
