"""Documents of members of groups, assignments of queues, and locks of queues."""

from typing import Annotated

from msgspec import Meta, Struct

from tern_proxy.core.documents.values import QUEUE_PATTERN, TOPIC_PATTERN, Count, Queue, Time, shown, words
from tern_wire import limits
from tern_wire.routing.membership import MEMBER_PATTERN, Role, Strategy

MemberId = Annotated[str, Meta(pattern=MEMBER_PATTERN, description="Chosen by the member, unique in the group.")]
RoleName = Annotated[str, words(*Role, text="Role of a member in its group.")]
_DIVIDES = (
    "How the queues of a topic are divided among the members of a consumer group: RocketMQ's, averagely by default."
)
StrategyName = Annotated[str, words(*Strategy, text=_DIVIDES)]
Generation = Annotated[int, Meta(ge=0, description="Grows when members or their heartbeats change; 0 without members.")]
Missed = Annotated[
    dict[str, str], Meta(description="Broker groups that did not accept it, with the code of the error.")
]
Epoch = Annotated[int, Meta(ge=1, description="Grows with each change of holder.")]
_NAME = Annotated[str, shown(pattern=MEMBER_PATTERN)]
_QUEUES = list[Annotated[str, shown(pattern=QUEUE_PATTERN)]]
_FILTER = Annotated[str, shown(maxLength=limits.FILTER_SIZE_MAX_BYTES + 8)]
_TOPICS = shown(propertyNames={"pattern": TOPIC_PATTERN}, maxProperties=limits.SUBSCRIPTIONS_PER_MEMBER_MAX)
_FILTERS = (
    "Topic -> tags such as `A || B`, `*` for everything, or SQL behind `sql:`. "
    f"At most {limits.FILTER_SIZE_MAX_BYTES:,} bytes and {limits.FILTER_TERMS_MAX} terms each."
)


# Requests -----------------------------------------------------------------------------------------
class MemberHeartbeat(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/groups/{group}/members/heartbeat.

    `subscriptions`: topic -> filter: tags such as `A || B`, `*` for everything, or SQL behind
    `sql:`. `queues`: topic -> the queues that the member requests under the strategy `by-config`.
    """

    member: _NAME
    role: Annotated[str, words(*Role)] = "consumer"
    subscriptions: Annotated[dict[str, _FILTER], _TOPICS, shown(_FILTERS)] = {}
    strategy: Annotated[str, words(*Strategy)] = "averagely"
    room: str = ""
    queues: Annotated[
        dict[str, Annotated[_QUEUES, shown(maxItems=limits.QUEUES_PER_TOPIC_MAX)]],
        _TOPICS,
        shown("Topic -> the queues that it requests under `by-config`."),
    ] = {}
    address: str = ""
    version: str = ""


class LockRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/groups/{group}/locks; queues written `broker-a:3`."""

    topic: Annotated[str, shown(pattern=TOPIC_PATTERN)]
    member: _NAME
    queues: Annotated[_QUEUES, shown(minItems=1, maxItems=limits.QUEUES_PER_TOPIC_MAX)]


# Answers: members ---------------------------------------------------------------------------------
class Heard(Struct, kw_only=True):
    """An accepted heartbeat."""

    group: str
    member: MemberId
    role: RoleName
    joined: Annotated[bool, Meta(description="Whether it was not a member before.")]
    members: Annotated[int, Meta(ge=1, description="Members of the group now.")]
    generation: Generation
    subscription_conflict: Annotated[list[str], Meta(description="Topics on which members differ (the first 16).")]
    heartbeat_interval_ms: Count
    expires_in_ms: Annotated[int, Meta(ge=0, description="It expires after this time without a heartbeat.")]
    missed: Missed


class Member(Struct, kw_only=True):
    """A member's last heartbeat, and its time."""

    member: MemberId
    address: str
    version: str
    strategy: StrategyName
    room: Annotated[str, Meta(description="Its machine room.")]
    subscriptions: Annotated[dict[str, str], Meta(description="Topic -> filter.")]
    queues: Annotated[dict[str, list[Queue]], Meta(description="Topic -> queues that it requests (by-config).")]
    joined_at: Time
    heard_at: Time


class FilterOfMembers(Struct, kw_only=True):
    """Members with the same filter for a topic."""

    filter: Annotated[str, Meta(description="Empty: they do not subscribe to it.")]
    count: Count
    members: Annotated[list[MemberId], Meta(description="The first 16 of them.")]


class SubscriptionConflict(Struct, kw_only=True):
    """A topic on which members of one group differ: each takes messages for which others wait."""

    topic: str
    filters: list[FilterOfMembers]


class GroupMembers(Struct, kw_only=True):
    """The members of a group, by id."""

    group: str
    role: RoleName
    generation: Generation
    subscription_conflict: Annotated[list[SubscriptionConflict], Meta(max_length=16)]
    members: Annotated[list[Member], Meta(max_length=limits.MEMBERS_PER_GROUP_MAX)]


class MemberLeft(Struct, kw_only=True):
    """Result of removing a member."""

    group: str
    member: MemberId
    left: Annotated[bool, Meta(description="Whether it was a member.")]
    missed: Missed


# Answers: queues ----------------------------------------------------------------------------------
class Assignments(Struct, kw_only=True):
    """Assignment of a topic's queues to members."""

    group: str
    topic: str
    strategy: Annotated[str, words(*Strategy, text="The one that was used.")]
    strategies: Annotated[list[StrategyName], Meta(description="All that members name: more than one is a mistake.")]
    generation: Generation
    assignments: Annotated[dict[str, list[Queue]], Meta(description="Member -> its queues.")]
    unassigned: Annotated[list[Queue], Meta(description="Queues without a member.")]


class QueueLock(Struct, kw_only=True):
    """Lock of a queue."""

    member: MemberId
    epoch: Epoch
    expires_in_ms: Count


class GroupLocks(Struct, kw_only=True):
    """The locked queues of a topic."""

    group: str
    topic: str
    locks: dict[str, QueueLock]


class LockResults(Struct, kw_only=True):
    """Result of locking each queue."""

    group: str
    topic: str
    member: MemberId
    locked: Annotated[dict[str, Epoch], Meta(description="Queue -> epoch: held by the member.")]
    held: Annotated[dict[str, MemberId], Meta(description="Queue -> its holder.")]
    missed: Annotated[dict[str, str], Meta(description="Queue -> the code of the error of its broker group.")]
    expires_in_ms: Count
    renew_in_ms: Count


class Unlocked(Struct, kw_only=True):
    """Released locks."""

    group: str
    topic: str
    member: MemberId
    unlocked: list[Queue]
    missed: Missed
