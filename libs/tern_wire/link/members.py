"""Members of groups, who reads which queues, and locks of queues, as proxies tell and ask a broker group's leader.

What a member may say, and what it is refused with, is in `tern_wire/routing/membership.py`.
"""

from typing import ClassVar

import msgspec

from tern_wire.limits import MEMBER_EXPIRY_MS
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


# What members do ---------------------------------------------------------------------------------------------------
class MemberHeard(LinkReply, frozen=True, kw_only=True):
    """The member lives until *expires_ms*, unless it is heard again.

    *joined*: it was not there before; *members*: how many the group has; *generation* moves whenever members or what they say change;
    *subscription_conflict*: topics on which members differ, some of them where they are many; *expiry_ms*: how long it may be silent.
    """

    joined: bool
    members: int
    generation: int
    subscription_conflict: list[str]
    expires_ms: int
    expiry_ms: int = MEMBER_EXPIRY_MS


class TellHeartbeat(LinkRequest[MemberHeard], frozen=True, kw_only=True, tag_field="op", tag="heartbeat"):
    """*member* of *group* lives, and this is what it says of itself: the fields of a `Heartbeat`, which is where they are described."""

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
    """*left*: whether it was there. It is not any more, and its locks are free."""

    left: bool


class LeaveGroup(LinkRequest[MemberLeft], frozen=True, kw_only=True, tag_field="op", tag="leave"):
    """*member* goes from *group*, in which it was a *role*: `consumer` or `producer`."""

    code: ClassVar = RequestCode.MEMBERS
    reply: ClassVar = MemberLeft

    role: str
    group: str
    member: str


class QueuesLocked(LinkReply, frozen=True, kw_only=True):
    """Each queue, by its number as text, on its own: *locked* are the member's now (queue -> epoch), until *until_ms* unless it locks them again;
    *held* are others' (queue -> member)."""

    locked: dict[str, int]
    held: dict[str, str]
    until_ms: int


class LockQueues(LinkRequest[QueuesLocked], frozen=True, kw_only=True, tag_field="op", tag="lock"):
    """Lock *queues* (numbers in this broker group) of *topic* for *member* of the consumer group *group*, or renew its locks."""

    code: ClassVar = RequestCode.MEMBERS
    reply: ClassVar = QueuesLocked

    group: str
    topic: str
    member: str
    queues: list[int]


class QueuesUnlocked(LinkReply, frozen=True, kw_only=True):
    """*unlocked*: numbers of those queues that the member had locked."""

    unlocked: list[int]


class UnlockQueues(LinkRequest[QueuesUnlocked], frozen=True, kw_only=True, tag_field="op", tag="unlock"):
    """Give up the locks that *member* has of *queues*. The fields are those of LockQueues."""

    code: ClassVar = RequestCode.MEMBERS
    reply: ClassVar = QueuesUnlocked

    group: str
    topic: str
    member: str
    queues: list[int]


MemberRequest = TellHeartbeat | LeaveGroup | LockQueues | UnlockQueues


# What can be asked -------------------------------------------------------------------------------------------------
class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """What one member said last, as in TellHeartbeat, and since when it is there and when it was heard (ms since 1970)."""

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
    """What *count* members say of a topic, the first of them by name: *filter*, "" when they do not subscribe to it."""

    filter: str
    count: int
    members: list[str]


class SubscriptionConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A topic on which members differ, and who says what."""

    topic: str
    filters: list[DifferingFilter]


class GroupMembers(LinkReply, frozen=True, kw_only=True):
    """The members by id, and where their subscriptions differ. *generation*: as in MemberHeard, 0 without members."""

    generation: int
    members: list[GroupMember]
    subscription_conflict: list[SubscriptionConflict]


class ListMembers(LinkRequest[GroupMembers], frozen=True, kw_only=True):
    """Who is in *group* now as a *role*: `consumer` or `producer`."""

    code: ClassVar = RequestCode.GROUP_MEMBERS
    reply: ClassVar = GroupMembers

    group: str
    role: str


class Assignments(LinkReply, frozen=True, kw_only=True):
    """Member -> the queues that it reads, divided by *strategy*; *strategies* are all that members name, *unassigned* queues nobody's."""

    strategy: str
    strategies: list[str]
    generation: int
    assignments: dict[str, list[str]]
    unassigned: list[str]


class AssignQueues(LinkRequest[Assignments], frozen=True, kw_only=True):
    """Who of *group* reads which of *queues* (`broker-a:3`), all of *topic*, wherever they are.

    *member*: whose share is told; "": all. *strategy*: how they are divided; "": as the first member (by id) says.
    """

    code: ClassVar = RequestCode.ASSIGNMENTS
    reply: ClassVar = Assignments

    group: str
    topic: str
    queues: list[str]
    member: str
    strategy: str


class HeldLock(msgspec.Struct, frozen=True, array_like=True):
    """Who holds a queue, as of which epoch, and for how long yet unless it is renewed (ms)."""

    member: str
    epoch: int
    expires_in_ms: int


class QueueLocks(LinkReply, frozen=True, kw_only=True):
    """Number of a queue as text -> its lock; queues that nobody holds are not there."""

    locks: dict[str, HeldLock]


class ListQueueLocks(LinkRequest[QueueLocks], frozen=True, kw_only=True):
    """The locks that members of *group* have on queues of *topic* in this broker group."""

    code: ClassVar = RequestCode.QUEUE_LOCKS
    reply: ClassVar = QueueLocks

    group: str
    topic: str
