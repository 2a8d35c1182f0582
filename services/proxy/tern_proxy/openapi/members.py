"""Members, assignments and locks in the API document: schemas and operations. Data, as in operations.py, and imported as late."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from tern_proxy.openapi import schemas
from tern_proxy.openapi.operations import ASKED, BROKER, READ, TOPIC, Operation, gives, in_query, takes
from tern_proxy.openapi.schemas import Count, Queue, Schema, Time
from tern_wire import limits, messages, paths
from tern_wire.paths import JSON
from tern_wire.routing.membership import MEMBER_PATTERN, Role, Strategy

MemberId = Annotated[str, Meta(pattern=MEMBER_PATTERN, description="Its own choice, unique in the group.")]
Generation = Annotated[int, Meta(ge=0, description="Grows when members or what they say change; 0 without members.")]
Missed = Annotated[dict[str, str], Meta(description="Broker groups that did not take it, and the code of the reason.")]
Epoch = Annotated[int, Meta(ge=1, description="Grows with each change of holder.")]


class Heard(Struct, kw_only=True):
    """A heartbeat that was heard."""

    group: str
    member: MemberId
    role: Role
    joined: Annotated[bool, Meta(description="Whether it was not a member before.")]
    members: Annotated[int, Meta(ge=1, description="Members of the group now.")]
    generation: Generation
    subscription_conflict: Annotated[list[str], Meta(description="Topics on which members differ (the first 16).")]
    heartbeat_interval_ms: Count
    expires_in_ms: Annotated[int, Meta(ge=0, description="Silent for so long, it is gone.")]
    missed: Missed


class Member(Struct, kw_only=True):
    """What a member said last, and when."""

    member: MemberId
    address: str
    version: str
    strategy: Strategy
    room: Annotated[str, Meta(description="Its machine room.")]
    subscriptions: Annotated[dict[str, str], Meta(description="Topic -> filter.")]
    queues: Annotated[dict[str, list[Queue]], Meta(description="Topic -> queues that it asks for (by-config).")]
    joined_at: Time
    heard_at: Time


class FilterOfMembers(Struct, kw_only=True):
    """Members that say the same of a topic."""

    filter: Annotated[str, Meta(description="Empty: they do not subscribe to it.")]
    count: Count
    members: Annotated[list[MemberId], Meta(description="The first 16 of them.")]


class SubscriptionConflict(Struct, kw_only=True):
    """A topic on which members of one group differ: each takes messages that the others wait for."""

    topic: str
    filters: list[FilterOfMembers]


class GroupMembers(Struct, kw_only=True):
    """The members of a group, by id."""

    group: str
    role: Role
    generation: Generation
    subscription_conflict: Annotated[list[SubscriptionConflict], Meta(max_length=16)]
    members: Annotated[list[Member], Meta(max_length=limits.MEMBERS_PER_GROUP_MAX)]


class MemberLeft(Struct, kw_only=True):
    """What became of a member that goes."""

    group: str
    member: MemberId
    left: Annotated[bool, Meta(description="Whether it was there.")]
    missed: Missed


class Assignments(Struct, kw_only=True):
    """Who reads which queues of a topic."""

    group: str
    topic: str
    strategy: Annotated[Strategy, Meta(description="The one that was used.")]
    strategies: Annotated[list[Strategy], Meta(description="All that members name: more than one is a mistake.")]
    generation: Generation
    assignments: Annotated[dict[str, list[Queue]], Meta(description="Member -> its queues.")]
    unassigned: Annotated[list[Queue], Meta(description="Queues that nobody reads.")]


class QueueLock(Struct, kw_only=True):
    """Who holds a queue."""

    member: MemberId
    epoch: Epoch
    expires_in_ms: Count


class GroupLocks(Struct, kw_only=True):
    """The locked queues of a topic."""

    group: str
    topic: str
    locks: dict[str, QueueLock]


class LockResults(Struct, kw_only=True):
    """What became of each queue that was to be locked."""

    group: str
    topic: str
    member: MemberId
    locked: Annotated[dict[str, Epoch], Meta(description="Queue -> epoch: the member's now.")]
    held: Annotated[dict[str, MemberId], Meta(description="Queue -> its holder.")]
    missed: Annotated[dict[str, str], Meta(description="Queue -> why its broker group did not answer.")]
    expires_in_ms: Count
    renew_in_ms: Count


class Unlocked(Struct, kw_only=True):
    """Which locks were given up."""

    group: str
    topic: str
    member: MemberId
    unlocked: list[Queue]
    missed: Missed


ANSWERS: tuple[type[Struct], ...] = (Heard, GroupMembers, MemberLeft, Assignments, GroupLocks, LockResults, Unlocked)
REQUESTS: tuple[type[Struct], ...] = (messages.MemberHeartbeat, messages.LockRequest)


def keywords() -> dict[str, dict[str, Schema]]:
    """What tern_wire.messages leaves to the code behind it, as in schemas.py."""
    queues = {"items": {"type": "string", "pattern": schemas.QUEUE_PATTERN}, "maxItems": limits.QUEUES_PER_TOPIC_MAX}
    topics = {"propertyNames": {"pattern": schemas.TOPIC_PATTERN}, "maxProperties": limits.SUBSCRIPTIONS_PER_MEMBER_MAX}
    return {
        "MemberHeartbeat": {
            "member": {"pattern": MEMBER_PATTERN},
            "role": {"enum": list(Role)},
            "strategy": {"enum": list(Strategy)},
            "subscriptions": {
                **topics,
                "description": "Topic -> tags such as `A || B`, `*` for everything, or SQL behind `sql:`. "
                f"At most {limits.FILTER_SIZE_MAX_BYTES:,} bytes and {limits.FILTER_TERMS_MAX} terms each.",
                "additionalProperties": {"type": "string", "maxLength": limits.FILTER_SIZE_MAX_BYTES + 8},
            },
            "queues": {
                **topics,
                "description": "Topic -> the queues that it wants under `by-config`.",
                "additionalProperties": {"type": "array", **queues},
            },
        },
        "LockRequest": {
            "topic": {"pattern": schemas.TOPIC_PATTERN},
            "member": {"pattern": MEMBER_PATTERN},
            "queues": {"minItems": 1, **queues},
        },
    }


# Operations -------------------------------------------------------------------------------------------------------
_MEMBER: dict[str, Any] = {"member": "worker-1", "role": "consumer", "subscriptions": {"orders": "A || B"}}
_HEARD = {
    "group": "billing",
    "member": "worker-1",
    "role": "consumer",
    "joined": True,
    "members": 1,
    "generation": 7,
    "subscription_conflict": [],
    "heartbeat_interval_ms": limits.HEARTBEAT_INTERVAL_MS,
    "expires_in_ms": limits.MEMBER_EXPIRY_MS,
    "missed": {},
}
_SAID = {
    "member": "worker-1",
    "address": "10.0.0.7:51044",
    "version": "ternmq 1.0",
    "strategy": "averagely",
    "room": "",
    "subscriptions": {"orders": "tags:A || B"},
    "queues": {},
    "joined_at": 1_767_225_600_000,
    "heard_at": 1_767_225_630_000,
}
_FILTERS = [
    {"filter": "tags:A || B", "count": 1, "members": ["worker-1"]},
    {"filter": "*", "count": 1, "members": ["worker-2"]},
]
_MEMBERS = {
    "group": "billing",
    "role": "consumer",
    "generation": 7,
    "subscription_conflict": [{"topic": "orders", "filters": _FILTERS}],
    "members": [_SAID, {**_SAID, "member": "worker-2", "subscriptions": {"orders": "*"}}],
}
_ASSIGNED = {
    "group": "billing",
    "topic": "orders",
    "strategy": "averagely",
    "strategies": ["averagely"],
    "generation": 7,
    "assignments": {"worker-1": ["broker-a:0", "broker-a:1"], "worker-2": ["broker-a:2", "broker-a:3"]},
    "unassigned": [],
}
_PLACE = {"group": "billing", "topic": "orders"}
_LOCK = {"member": "worker-1", "epoch": 12, "expires_in_ms": 58_200}
_LOCKED = {
    **_PLACE,
    "member": "worker-1",
    "locked": {"broker-a:3": 12},
    "held": {"broker-a:2": "worker-2"},
    "missed": {},
    "expires_in_ms": limits.QUEUE_LOCK_MS,
    "renew_in_ms": limits.QUEUE_LOCK_RENEWAL_MS,
}
_WANTED = {"topic": "orders", "member": "worker-1", "queues": ["broker-a:3"]}

_ROLE = in_query("role", {"enum": list(Role), "default": "consumer"}, "Which group of that name.")
_TOPIC = in_query("topic", {"type": "string", "pattern": schemas.TOPIC_PATTERN}, "Whose queues.", required=True)
_GROUP = (*ASKED, *BROKER, "illegal-group", "no-name-server", "warming-up")
_CHANGED = (*_GROUP, "illegal-member", "limit-reached", "disk-full")
_QUEUES = (*TOPIC, "group-not-found", "queue-not-found")

MEMBERS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path=paths.heartbeat_path("{group}"),
        id="postHeartbeat",
        summary="A member's heartbeat",
        body=takes(
            messages.MemberHeartbeat,
            consumer=_MEMBER,
            by_config={**_MEMBER, "strategy": "by-config", "queues": {"orders": ["broker-a:0"]}},
            producer={"member": "shop-1", "role": "producer", "subscriptions": {"orders": "*"}},
        ),
        is_body_needed=True,
        answers={200: gives(Heard, "Heard by at least one broker group.", _HEARD)},
        errors=(
            *(*_CHANGED, *READ, "group-not-found", "illegal-topic", "illegal-filter", "queue-not-found"),
            "message-too-large",
        ),
        bodies=((JSON, '{"member": "worker-1", "subscriptions": {"orders": "A || B"}}'),),
    ),
    Operation(
        method="GET",
        path=paths.members_path("{group}"),
        id="getMembers",
        summary="Members of a group",
        parameters=(_ROLE,),
        answers={200: gives(GroupMembers, "Who is there now.", _MEMBERS)},
        errors=(*_GROUP, "group-not-found"),
    ),
    Operation(
        method="GET",
        path=paths.assignments_path("{group}"),
        id="getAssignments",
        summary="Who reads which queues",
        parameters=(
            _TOPIC,
            in_query("member", {"type": "string", "pattern": MEMBER_PATTERN}, "Only this one's."),
            in_query("strategy", {"enum": list(Strategy)}, "By default what the members say."),
        ),
        answers={200: gives(Assignments, "Every queue of the topic.", _ASSIGNED)},
        errors=(*_GROUP, *TOPIC, "group-not-found", "illegal-member", "member-not-found"),
        query="?topic=orders",
    ),
    Operation(
        method="POST",
        path=paths.locks_path("{group}"),
        id="postLocks",
        summary="Lock queues, or renew locks",
        body=takes(messages.LockRequest, lock=_WANTED),
        is_body_needed=True,
        answers={200: gives(LockResults, "Each queue on its own.", _LOCKED)},
        errors=(*_CHANGED, *READ, *_QUEUES, "member-not-found", "message-too-large"),
        bodies=((JSON, '{"topic": "orders", "member": "worker-1", "queues": ["broker-a:3"]}'),),
    ),
    Operation(
        method="GET",
        path=paths.locks_path("{group}"),
        id="getLocks",
        summary="Who holds which queues",
        parameters=(_TOPIC,),
        answers={200: gives(GroupLocks, "Locked queues only.", {**_PLACE, "locks": {"broker-a:3": _LOCK}})},
        errors=(*_GROUP, *TOPIC, "group-not-found"),
        query="?topic=orders",
    ),
    Operation(
        method="DELETE",
        path=paths.locks_path("{group}"),
        id="deleteLocks",
        summary="Give up locks",
        parameters=(
            _TOPIC,
            in_query("member", {"type": "string", "pattern": MEMBER_PATTERN}, "Whose locks.", required=True),
            in_query("queues", {"type": "string"}, "Which queues, by commas; by default all of the topic."),
        ),
        answers={
            200: gives(
                Unlocked,
                "What it had.",
                {**_PLACE, "member": "worker-1", "unlocked": ["broker-a:3"], "missed": {}},
            )
        },
        errors=(*_CHANGED, *_QUEUES),
        query="?topic=orders&member=worker-1",
    ),
    Operation(
        method="DELETE",
        path=paths.member_path("{group}", "{member}"),
        id="deleteMember",
        summary="A member goes",
        parameters=(_ROLE,),
        answers={
            200: gives(
                MemberLeft,
                "It is not a member any more.",
                {"group": "billing", "member": "worker-1", "left": True, "missed": {}},
            )
        },
        errors=_CHANGED,
    ),
)
