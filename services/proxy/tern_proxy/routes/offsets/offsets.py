"""Handlers for offsets: bounds of queues, committed offsets of groups, and seeks."""

from tern_proxy.core.documents.offsets import GroupOffsets, OffsetsCommit, QueueMove, SeekMoves, SeekRequest
from tern_proxy.core.documents.topics import TopicOffsets
from tern_proxy.core.offsets import commits_of, moves_of, topic_offsets
from tern_proxy.core.reading.seeking import plan_seek
from tern_proxy.core.sending.parameters import time_of
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import ask_each
from tern_wire.errors import InvalidField, OffsetMoved, QueueLockLost
from tern_wire.link.consumer_offsets import ListGroupOffsets, SeekGroup
from tern_wire.link.pulls import ListOffsets
from tern_wire.names import check_group
from tern_wire.principals.principals import DESCRIBE, SUB, TOPIC


async def get_topic_offsets(call: Call, topic: str) -> TopicOffsets:
    """Return oldest and next offset of every queue of the topic; with `time`, also the first offset
    visible from then on.

    `time` is in ms since 1970 (UTC) or as `2026-01-31T12:00:00Z`. `offset_at` is max_offset where
    no message is that young.
    """
    time_ms = time_of(call.query["time"], "query/time") if "time" in call.query else -1
    found = await call.proxy.topic(topic)
    answers = await ask_each(call.proxy, found, ListOffsets(topic=topic, time_ms=time_ms))
    return topic_offsets(topic, [(name, told) for name, told, _ in answers])


async def get_group_offsets(call: Call, group: str) -> GroupOffsets:
    """Return the group's committed offset in every queue of `?topic=` that it has begun."""
    check_group(group)
    name = call.topic(call.needed("topic"))
    call.admission.require(DESCRIBE, TOPIC, name)
    topic = await call.proxy.topic(name)
    answers = await ask_each(call.proxy, topic, ListGroupOffsets(group=group, topic=topic.name))
    offsets = {f"{name}:{queue}": offset for name, told, _ in answers for queue, offset in told.offsets.items()}
    return GroupOffsets(group=group, topic=topic.name, offsets=offsets)


async def put_group_offsets(call: Call, group: str) -> GroupOffsets:
    """Commit offsets; with `expected`, only if these are the committed ones, null where the group
    has not begun (409 offset-moved); with `epochs`, only if no other member has locked those queues
    since (409 queue-lock-lost).

    Queues of one broker group are committed together; several broker groups one after the other.
    """
    check_group(group)
    commit = await call.read(OffsetsCommit)
    if not commit.offsets:
        raise InvalidField(reason="At least one offset is needed", pointer="/offsets")
    name = call.topic(commit.topic)
    call.admission.require(SUB, TOPIC, name)
    topic = await call.proxy.topic(name)
    offsets: dict[str, int] = {}
    for name, asked in commits_of(group, commit, topic).items():
        try:
            told, _ = await call.proxy.group(name).link.ask(asked, is_repeatable=not asked.expected)
        except (OffsetMoved, QueueLockLost) as error:
            raise type(error)(**{**error.fields, "queue": f"{name}:{error.fields.get('queue')}"}) from error
        offsets |= {f"{name}:{queue}": offset for queue, offset in told.offsets.items()}
    return GroupOffsets(group=group, topic=topic.name, offsets=offsets)


async def post_seek(call: Call, group: str) -> SeekMoves:
    """Move the group to earliest, latest, a time, by a shift, or to explicit offsets; all queues of
    a broker group at once, or none.

    `before` is null where the group had not begun; it begins there now. Leases there end, and their
    handles are answered receipt-expired. With `dry_run` nothing moves. Several broker groups move
    one after the other; after an error, repeat the request.
    """
    check_group(group)
    seek = await call.read(SeekRequest)
    name = call.topic(seek.topic)
    call.admission.require(DESCRIBE, TOPIC, name)
    topic = await call.proxy.topic(name)
    plan = plan_seek(seek, topic, time_of)
    is_repeatable = plan.is_repeatable or seek.dry_run
    moves: list[QueueMove] = []
    for name, part in plan.parts.items():
        asked = SeekGroup(group=group, topic=topic.name, to=part.to, dry_run=seek.dry_run, queues=part.queues)
        try:
            told, _ = await call.proxy.group(name).link.ask(asked, is_repeatable=is_repeatable)
        except InvalidField as error:
            raise InvalidField(**{**error.fields, "pointer": plan.pointer(name, error)}) from error
        moves += moves_of(name, told)
    return SeekMoves(group=group, topic=topic.name, dry_run=seek.dry_run, queues=moves)
