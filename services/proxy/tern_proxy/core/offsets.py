"""Offsets of topics and groups: conversion between the HTTP API and the link. Pure."""

from collections.abc import Mapping, Sequence

from tern_proxy.core.documents.offsets import OffsetsCommit, QueueMove
from tern_proxy.core.documents.topics import QueueOffsets, TopicOffsets
from tern_proxy.core.documents.values import OFFSET_MAX
from tern_proxy.core.sending.parameters import number_of
from tern_proxy.core.sending.topic import Topic
from tern_wire.link.consumer_offsets import NOT_BEGUN, CommitOffsets, GroupMoved
from tern_wire.link.pulls import Offsets


def topic_offsets(topic: str, answers: Sequence[tuple[str, Offsets]]) -> TopicOffsets:
    """Return oldest and next offset of every queue of a topic, and the offset of a time if one was
    requested.
    """
    queues = []
    for name, found in answers:
        for queue, min_offset, max_offset, *offset_at in found.queues:
            row = QueueOffsets(queue=f"{name}:{queue}", min_offset=min_offset, max_offset=max_offset)
            if offset_at:
                row.offset_at = offset_at[0]
            queues.append(row)
    return TopicOffsets(topic=topic, queues=queues)


def commits_of(group: str, commit: OffsetsCommit, topic: Topic) -> dict[str, CommitOffsets]:
    """Return the part of *commit* for each broker group, in the order of the request.

    Raise InvalidField, QueueNotFound.
    """
    fields: dict[str, Mapping[str, int | None]] = {
        "offsets": commit.offsets,
        "expected": commit.expected,
        "epochs": commit.epochs,
    }
    parts: dict[str, dict[str, dict[str, int]]] = {}
    for field, numbers in fields.items():
        for name, number in numbers.items():
            if number is not None:
                number_of(number, name, 0, OFFSET_MAX, f"/{field}/")
            queue, told = topic.pinned(name), NOT_BEGUN if number is None else number
            parts.setdefault(queue.broker_group, {field: {} for field in fields})[field][str(queue.number)] = told
    return {name: CommitOffsets(group=group, topic=topic.name, **part) for name, part in parts.items()}


def moves_of(broker_group: str, found: GroupMoved) -> list[QueueMove]:
    """Return a group's moves in the queues of one broker group."""
    return [
        QueueMove(
            queue=f"{broker_group}:{move.queue}",
            before=move.before if move.before >= 0 else None,
            after=move.after,
        )
        for move in found.queues
    ]
