"""Members of producer and consumer groups: heartbeats, names of members and machine rooms, and
assignment strategies.

A member is one client. It chooses its own id, unique in its group and constant while it lives, such
as `host-7@4711`. A broker group's machine room is the part of its name before `--`:
`hangzhou--broker-a` (RocketMQ: before `@`, which our names do not allow).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tern_wire.errors import IllegalMember, InvalidField
from tern_wire.limits import (
    HEARTBEAT_SIZE_MAX_BYTES,
    QUEUES_PER_TOPIC_MAX,
    SUBSCRIPTIONS_PER_MEMBER_MAX,
)
from tern_wire.names import check_group, check_topic, parse_queue

MEMBER_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._:@#+-]{0,127}$"
_MEMBER = re.compile(MEMBER_PATTERN[1:-1])
_ROOM = re.compile(r"[a-z0-9][a-z0-9-]{0,30}|")
# Addresses and versions are displayed, never used as targets.
_TEXT_LENGTH_MAX = 64
_ROOM_END = "--"


class Role(StrEnum):
    """Role of a member in its group."""

    CONSUMER = "consumer"
    PRODUCER = "producer"


class Strategy(StrEnum):
    """Strategy that divides the queues of a topic among the members of a consumer group:
    RocketMQ's; averagely is the default.
    """

    AVERAGELY = "averagely"
    AVERAGELY_BY_CIRCLE = "averagely-by-circle"
    BY_CONFIG = "by-config"
    BY_MACHINE_ROOM = "by-machine-room"
    MACHINE_ROOM_NEARBY = "machine-room-nearby"
    CONSISTENT_HASH = "consistent-hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Fields of a client's heartbeat.

    *subscriptions*: topic -> the canonical text of a filter (`*`, `tags:A || B`, `sql:...`),
    compared and never parsed here; for a producer the topics that it sends to, with `*`. *queues*:
    topic -> the queues that it requests under `by-config`. *address* and *version* are for display.
    """

    role: Role
    group: str
    member: str
    address: str = ""
    version: str = ""
    strategy: Strategy = Strategy.AVERAGELY
    room: str = ""
    subscriptions: dict[str, str] = field(default_factory=dict)
    queues: dict[str, list[str]] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the heartbeat in MessagePack types, the input of `read_heartbeat`."""
        return {
            "role": self.role.value,
            "group": self.group,
            "member": self.member,
            "address": self.address,
            "version": self.version,
            "strategy": self.strategy.value,
            "room": self.room,
            "subscriptions": self.subscriptions,
            "queues": self.queues,
        }

    @property
    def size_bytes(self) -> int:
        """Estimated size in memory beyond the constant part."""
        texts = [
            self.member,
            self.address,
            self.version,
            *self.subscriptions,
            *self.subscriptions.values(),
            *self.queues,
        ]
        return sum(map(len, texts)) + 16 * sum(map(len, self.queues.values()))


def read_heartbeat(document: Mapping[str, Any]) -> Heartbeat:
    """Parse the heartbeat in *document*.

    Raise IllegalGroup, IllegalMember, IllegalTopic, QueueNotFound or InvalidField when it is not
    legal.
    """
    subscriptions = _map(document, "subscriptions")
    queues = _map(document, "queues")
    heartbeat = Heartbeat(
        role=read_role(document.get("role", Role.CONSUMER)),
        group=check_group(_text(document, "group", 1_000)),
        member=check_member(_text(document, "member", 1_000)),
        address=_text(document, "address", _TEXT_LENGTH_MAX),
        version=_text(document, "version", _TEXT_LENGTH_MAX),
        strategy=read_strategy(document.get("strategy", Strategy.AVERAGELY)),
        room=_text(document, "room", _TEXT_LENGTH_MAX),
        subscriptions={check_topic(topic): _filter(topic, text) for topic, text in subscriptions.items()},
        queues={check_topic(topic): _queues(topic, names) for topic, names in queues.items()},
    )
    if _ROOM.fullmatch(heartbeat.room) is None or _ROOM_END in heartbeat.room:
        raise InvalidField(reason="a machine room is at most 31 of a-z, 0-9 and single '-'", pointer="/room")
    if heartbeat.size_bytes > HEARTBEAT_SIZE_MAX_BYTES:
        reason = f"a member's subscriptions and queues have at most {HEARTBEAT_SIZE_MAX_BYTES} bytes together"
        raise InvalidField(reason=reason, pointer="/subscriptions")
    return heartbeat


def check_member(name: str) -> str:
    """Return *name* if it is a legal member id; raise IllegalMember otherwise.

    A legal id is 1 to 128 letters, digits or `._:@#+-`, beginning with a letter or digit.
    """
    if _MEMBER.fullmatch(name) is None:
        raise IllegalMember(member=name[:160])
    return name


def read_role(value: Any) -> Role:
    """Parse a role; raise InvalidField otherwise."""
    try:
        return Role(value)
    except ValueError as error:
        raise InvalidField(reason="'role' is consumer or producer", pointer="/role") from error


def read_strategy(value: Any) -> Strategy:
    """Parse a strategy; raise InvalidField otherwise."""
    try:
        return Strategy(value)
    except ValueError as error:
        raise InvalidField(reason=f"'strategy' is one of {', '.join(Strategy)}", pointer="/strategy") from error


def room_of(queue: str) -> str:
    """Return the machine room of a queue's (or a group's) broker group; "" if its name has none."""
    room, mark, _ = queue.partition(_ROOM_END)
    return room if mark else ""


def _text(document: Mapping[str, Any], name: str, length_max: int) -> str:
    value = document.get(name, "")
    if not isinstance(value, str) or len(value) > length_max or not value.isprintable():
        raise InvalidField(reason=f"'{name}' is printable text of at most {length_max} characters", pointer=f"/{name}")
    return value


def _map(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name, {})
    if (
        not isinstance(value, Mapping)
        or len(value) > SUBSCRIPTIONS_PER_MEMBER_MAX
        or not all(isinstance(topic, str) for topic in value)
    ):
        reason = f"'{name}' has at most {SUBSCRIPTIONS_PER_MEMBER_MAX} topics"
        raise InvalidField(reason=reason, pointer=f"/{name}")
    return value


def _filter(topic: str, text: Any) -> str:
    if not isinstance(text, str) or len(text) > HEARTBEAT_SIZE_MAX_BYTES:
        raise InvalidField(reason="a subscription is a filter's text", pointer=f"/subscriptions/{topic}")
    return text


def _queues(topic: str, names: Any) -> list[str]:
    if (
        not isinstance(names, list)
        or len(names) > QUEUES_PER_TOPIC_MAX
        or not all(isinstance(name, str) for name in names)
    ):
        reason = f"the queues of a topic are a list of at most {QUEUES_PER_TOPIC_MAX} names such as 'broker-a:3'"
        raise InvalidField(reason=reason, pointer=f"/queues/{topic}")
    return [str(parse_queue(name, topic)) for name in names]
