"""Link requests to a broker group's leader for members of groups, assignments of queues, and locks
of queues.

`tern_wire/routing/membership.py` has the legal fields of a member and their errors.
"""

from typing import ClassVar

import msgspec

from tern_wire.limits import MEMBER_EXPIRY_MS
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


# Actions of members -------------------------------------------------------------------------------
class MemberHeard(LinkReply, frozen=True, kw_only=True):
    """Reply: the member is alive until *expires_ms* unless it sends another heartbeat.

    *joined*: it is new. *members*: the size of the group. *generation* changes whenever members or
    their fields change. *subscription_conflict*: topics on which members differ; a part of them
    when there are many. *expiry_ms*: the longest silence of a member.
    """

    joined: bool
    members: int
    generation: int
    subscription_conflict: list[str]
    expires_ms: int
    expiry_ms: int = MEMBER_EXPIRY_MS


class TellHeartbeat(LinkRequest[MemberHeard], frozen=True, kw_only=True, tag_field="op", tag="heartbeat"):
    """Heartbeat of *member* of *group* with its fields, which are described in `Heartbeat`."""

    code: ClassVar = RequestCode.MEMBERS
    reply: ClassVar = MemberHeard

    role: str = "consumer"
    group: str
    member: str
    address: str = ""
    version: str = ""
    strategy: str = "averagely"
    room: str = ""
    subscriptions: dict[str, str] = msgspec.field(default_factory=dict)
    queues: dict[str, list[str]] = msgspec.field(default_factory=dict)


class MemberLeft(LinkReply, frozen=True, kw_only=True):
    """Reply. *left*: it was a member. It is no longer one, and its locks are free."""

    left: bool


class LeaveGroup(LinkRequest[MemberLeft], frozen=True, kw_only=True, tag_field="op", tag="leave"):
    """Remove *member* from *group*, in which it had a *role*: `consumer` or `producer`."""

    code: ClassVar = RequestCode.MEMBERS
    reply: ClassVar = MemberLeft

    role: str
    group: str
    member: str


class QueuesLocked(LinkReply, frozen=True, kw_only=True):
    """Reply, for each queue by its number as text.

    *locked*: held by the member (queue -> epoch) until *until_ms* unless renewed. *held*: locked by
    other members (queue -> member).
    """

    locked: dict[str, int]
    held: dict[str, str]
    until_ms: int


class LockQueues(LinkRequest[QueuesLocked], frozen=True, kw_only=True, tag_field="op", tag="lock"):
    """Lock *queues* (numbers in this broker group) of *topic* for *member* of the consumer group
    *group*, or renew its locks.
    """

    code: ClassVar = RequestCode.MEMBERS
    reply: ClassVar = QueuesLocked

    group: str
    topic: str
    member: str
    queues: list[int]


class QueuesUnlocked(LinkReply, frozen=True, kw_only=True):
    """Reply. *unlocked*: numbers of the queues that the member had locked."""

    unlocked: list[int]


class UnlockQueues(LinkRequest[QueuesUnlocked], frozen=True, kw_only=True, tag_field="op", tag="unlock"):
    """Release the locks of *member* on *queues*. The fields are those of LockQueues."""

    code: ClassVar = RequestCode.MEMBERS
    reply: ClassVar = QueuesUnlocked

    group: str
    topic: str
    member: str
    queues: list[int]


MemberRequest = TellHeartbeat | LeaveGroup | LockQueues | UnlockQueues


# Queries ------------------------------------------------------------------------------------------
class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a member's last heartbeat, as in TellHeartbeat, the time of joining and that of the
    heartbeat (ms since 1970).
    """

    role: str
    group: str
    member: str
    address: str
    version: str
    strategy: str
    room: str
    subscriptions: dict[str, str]
    queues: dict[str, list[str]]
    joined_at: int
    heard_at: int


class DifferingFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter that *count* members have for a topic, with the first of them by name; "" when they do
    not subscribe to it.
    """

    filter: str
    count: int
    members: list[str]


class SubscriptionConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Topic on which members differ, with the filters and their members."""

    topic: str
    filters: list[DifferingFilter]


class GroupMembers(LinkReply, frozen=True, kw_only=True):
    """Reply: the members by id, and the conflicts of their subscriptions.

    *generation*: as in MemberHeard, 0 without members.
    """

    generation: int
    members: list[GroupMember]
    subscription_conflict: list[SubscriptionConflict]


class ListMembers(LinkRequest[GroupMembers], frozen=True, kw_only=True):
    """List the current members of *group* with a *role*: `consumer` or `producer`."""

    code: ClassVar = RequestCode.GROUP_MEMBERS
    reply: ClassVar = GroupMembers

    group: str
    role: str


class Assignments(LinkReply, frozen=True, kw_only=True):
    """Reply: member -> queues, divided by *strategy*.

    *strategies* are all that members name; *unassigned* are the queues without a member.
    """

    strategy: str
    strategies: list[str]
    generation: int
    assignments: dict[str, list[str]]
    unassigned: list[str]


class AssignQueues(LinkRequest[Assignments], frozen=True, kw_only=True):
    """Assign *queues* (`broker-a:3`), all queues of *topic* in any broker group, to the members of
    *group*.

    *member*: return only this member's share; "" for all. *strategy*: the algorithm; "" for that of
    the first member (by id).
    """

    code: ClassVar = RequestCode.ASSIGNMENTS
    reply: ClassVar = Assignments

    group: str
    topic: str
    queues: list[str]
    member: str
    strategy: str


class HeldLock(msgspec.Struct, frozen=True, array_like=True):
    """Lock of a queue: its holder, its epoch, and its remaining time unless it is renewed (ms)."""

    member: str
    epoch: int
    expires_in_ms: int


class QueueLocks(LinkReply, frozen=True, kw_only=True):
    """Reply: number of a queue as text -> its lock; queues without a lock are absent."""

    locks: dict[str, HeldLock]


class ListQueueLocks(LinkRequest[QueueLocks], frozen=True, kw_only=True):
    """List the locks of members of *group* on queues of *topic* in this broker group."""

    code: ClassVar = RequestCode.QUEUE_LOCKS
    reply: ClassVar = QueueLocks

    group: str
    topic: str
