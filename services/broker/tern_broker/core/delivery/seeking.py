"""Seeking: a group's new place in each queue of a topic. Pure.

The request, as a map: group, topic, queues ([number...], or none for all of them), and to, which is
one of

    "earliest" | "latest" | {"shift": messages, + forward, - backward} |
    {"offsets": {queue: offset}}

A time does not occur here: the first offset visible at a time is in files, so the leader looks it
up and sends offsets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.topics import Group, Topic
from tern_wire.errors import InvalidField, QueueNotFound


@dataclass(frozen=True, slots=True)
class Move:
    """A group's move in one queue, between committed offsets; *before* is -1 where it has not
    begun.
    """

    queue: int
    before: int
    after: int


def seek_moves(topic: Topic, group: Group, row: Sequence[Delivery | None], request: Mapping[str, Any]) -> list[Move]:
    """Return the moves of *group* for *request*.

    *row*: the group's deliveries of the topic (shorter, or None, where it has not begun). An offset
    that retention has dropped becomes the oldest one kept. Raise InvalidField for an offset behind
    the end, QueueNotFound for an unknown queue.
    """
    to = request["to"]
    explicit = {int(queue): int(offset) for queue, offset in _part(to, "offsets").items()}
    wanted = request.get("queues")
    if wanted is None:
        wanted = sorted(explicit) if isinstance(to, dict) and "offsets" in to else range(topic.queues)
    moves: list[Move] = []
    for queue in [int(number) for number in wanted]:
        if not 0 <= queue < topic.queues:
            raise QueueNotFound(queue=queue, topic=topic.name)
        least, end = topic.mins[queue], topic.ends[queue]
        delivery = row[queue] if queue < len(row) else None
        before = -1 if delivery is None else delivery.committed()
        if to == "earliest":
            after = least
        elif to == "latest":
            after = end
        elif isinstance(to, dict) and "shift" in to:
            start = before if before >= 0 else group.start_in(topic, queue, least)
            after = start + int(to["shift"])
            after = min(max(after, least), end)
        elif queue in explicit:
            after = explicit[queue]
            if not 0 <= after <= end:
                raise InvalidField(reason=f"offset {after} is not in 0..{end}", pointer=f"/to/offsets/{queue}")
            after = max(after, least)
        else:
            raise InvalidField(reason="'to' names a place for every queue", pointer="/to")
        moves.append(Move(queue, before, after))
    return moves


def _part(to: Any, name: str) -> dict[Any, Any]:
    part = to.get(name) if isinstance(to, dict) else None
    return part if isinstance(part, dict) else {}
