"""Rows of members, assignments and locks."""

from msgspec.structs import replace

from tern_proxy.core.documents.members import (
    Assignments,
    FilterOfMembers,
    GroupLocks,
    GroupMembers,
    Heard,
    LockRequest,
    LockResults,
    Member,
    MemberHeartbeat,
    MemberLeft,
    QueueLock,
    SubscriptionConflict,
    Unlocked,
)
from tern_proxy.core.documents.values import TOPIC_PATTERN
from tern_proxy.routes.failures import ASKED, BROKER, READ, ROUTED, TOPIC
from tern_proxy.routes.members.members import delete_member, get_members, post_heartbeat
from tern_proxy.routes.members.queues import delete_locks, get_assignments, get_locks, post_locks
from tern_proxy.routes.route import Route, gives, in_query, takes
from tern_wire import limits
from tern_wire.errors import (
    DiskFull,
    GroupNotFound,
    IllegalFilter,
    IllegalGroup,
    IllegalMember,
    IllegalTopic,
    LimitReached,
    MemberNotFound,
    MessageTooLarge,
    QueueNotFound,
)
from tern_wire.paths import JSON, assignments_path, heartbeat_path, locks_path, member_path, members_path
from tern_wire.routing.membership import MEMBER_PATTERN, Role, Strategy

_SAYS = {"member": "worker-1", "role": "consumer", "subscriptions": {"orders": "A || B"}}
_WANTS = {"topic": "orders", "member": "worker-1", "queues": ["broker-a:3"]}
_HEARD = Heard(
    group="billing",
    member="worker-1",
    role="consumer",
    joined=True,
    members=1,
    generation=7,
    subscription_conflict=[],
    heartbeat_interval_ms=limits.HEARTBEAT_INTERVAL_MS,
    expires_in_ms=limits.MEMBER_EXPIRY_MS,
    missed={},
)
_MEMBER = Member(
    member="worker-1",
    address="10.0.0.7:51044",
    version="ternmq 1.0",
    strategy="averagely",
    room="",
    subscriptions={"orders": "tags:A || B"},
    queues={},
    joined_at=1_767_225_600_000,
    heard_at=1_767_225_630_000,
)
_FILTERS = [
    FilterOfMembers(filter="tags:A || B", count=1, members=["worker-1"]),
    FilterOfMembers(filter="*", count=1, members=["worker-2"]),
]
_MEMBERS = GroupMembers(
    group="billing",
    role="consumer",
    generation=7,
    subscription_conflict=[SubscriptionConflict(topic="orders", filters=_FILTERS)],
    members=[_MEMBER, replace(_MEMBER, member="worker-2", subscriptions={"orders": "*"})],
)
_ASSIGNED = Assignments(
    group="billing",
    topic="orders",
    strategy="averagely",
    strategies=["averagely"],
    generation=7,
    assignments={"worker-1": ["broker-a:0", "broker-a:1"], "worker-2": ["broker-a:2", "broker-a:3"]},
    unassigned=[],
)
_LOCKED = LockResults(
    group="billing",
    topic="orders",
    member="worker-1",
    locked={"broker-a:3": 12},
    held={"broker-a:2": "worker-2"},
    missed={},
    expires_in_ms=limits.QUEUE_LOCK_MS,
    renew_in_ms=limits.QUEUE_LOCK_RENEWAL_MS,
)
_LOCKS = GroupLocks(
    group="billing",
    topic="orders",
    locks={"broker-a:3": QueueLock(member="worker-1", epoch=12, expires_in_ms=58_200)},
)
_UNLOCKED = Unlocked(group="billing", topic="orders", member="worker-1", unlocked=["broker-a:3"], missed={})

_ROLE = in_query("role", {"enum": list(Role), "default": "consumer"}, "Kind of the group.")
_TOPIC = in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "The topic of the queues.", required=True)
_MEMBER_ID = {"type": "string", "pattern": MEMBER_PATTERN}
_GROUP = (*ASKED, *BROKER, *ROUTED, IllegalGroup)
_CHANGED = (*_GROUP, IllegalMember, LimitReached, DiskFull)
_QUEUES = (*TOPIC, GroupNotFound, QueueNotFound)
_LOCKS_PATH = locks_path("{group}")

ROUTES = (
    # A producer is a member of its producer group, which has the path of a group.
    Route(
        "POST",
        heartbeat_path("{group}"),
        post_heartbeat,
        id="postHeartbeat",
        tag="groups",
        summary="A member's heartbeat",
        asks=(
            "SUB group {group} if it is a consumer",
            "SUB topic of the body if it is a consumer",
            "TXN producer-group {group} if it is a producer",
        ),
        takes=takes(
            MemberHeartbeat,
            is_needed=True,
            consumer=_SAYS,
            by_config={**_SAYS, "strategy": "by-config", "queues": {"orders": ["broker-a:0"]}},
            producer={"member": "shop-1", "role": "producer", "subscriptions": {"orders": "*"}},
        ),
        gives={200: gives(_HEARD, "Accepted by at least one broker group.")},
        errors=(*_CHANGED, *READ, GroupNotFound, IllegalTopic, IllegalFilter, QueueNotFound, MessageTooLarge),
        bodies=((JSON, '{"member": "worker-1", "subscriptions": {"orders": "A || B"}}'),),
    ),
    Route(
        "GET",
        members_path("{group}"),
        get_members,
        id="getMembers",
        tag="groups",
        summary="Members of a group",
        asks=(
            "DESCRIBE group {group} if they are consumers",
            "DESCRIBE producer-group {group} if they are producers",
        ),
        parameters=(_ROLE,),
        gives={200: gives(_MEMBERS, "The current members.")},
        errors=(*_GROUP, GroupNotFound),
    ),
    Route(
        "GET",
        assignments_path("{group}"),
        get_assignments,
        id="getAssignments",
        tag="groups",
        summary="Assignment of queues",
        asks=("DESCRIBE group {group}", "DESCRIBE topic of the query"),
        parameters=(
            _TOPIC,
            in_query("member", _MEMBER_ID, "Only this member's."),
            in_query("strategy", {"enum": list(Strategy)}, "By default the strategy of the members."),
        ),
        gives={200: gives(_ASSIGNED, "Every queue of the topic.")},
        errors=(*_GROUP, *TOPIC, GroupNotFound, IllegalMember, MemberNotFound),
        query="?topic=orders",
    ),
    Route(
        "POST",
        _LOCKS_PATH,
        post_locks,
        id="postLocks",
        tag="groups",
        summary="Lock queues, or renew locks",
        asks=("SUB group {group}", "SUB topic of the body"),
        takes=takes(LockRequest, is_needed=True, lock=_WANTS),
        gives={200: gives(_LOCKED, "A result for each queue.")},
        errors=(*_CHANGED, *READ, *_QUEUES, MemberNotFound, MessageTooLarge),
        bodies=((JSON, '{"topic": "orders", "member": "worker-1", "queues": ["broker-a:3"]}'),),
    ),
    Route(
        "GET",
        _LOCKS_PATH,
        get_locks,
        id="getLocks",
        tag="groups",
        summary="Locks of queues",
        asks=("DESCRIBE group {group}", "DESCRIBE topic of the query"),
        parameters=(_TOPIC,),
        gives={200: gives(_LOCKS, "Locked queues only.")},
        errors=(*_GROUP, *TOPIC, GroupNotFound),
        query="?topic=orders",
    ),
    Route(
        "DELETE",
        _LOCKS_PATH,
        delete_locks,
        id="deleteLocks",
        tag="groups",
        summary="Release locks",
        asks=("SUB group {group}", "SUB topic of the query"),
        parameters=(
            _TOPIC,
            in_query("member", _MEMBER_ID, "Whose locks.", required=True),
            in_query("queues", {"type": "string"}, "The queues, separated by commas; by default all of the topic."),
        ),
        gives={200: gives(_UNLOCKED, "What it had.")},
        errors=(*_CHANGED, *_QUEUES),
        query="?topic=orders&member=worker-1",
    ),
    Route(
        "DELETE",
        member_path("{group}", "{member}"),
        delete_member,
        id="deleteMember",
        tag="groups",
        summary="Remove a member",
        asks=("SUB group {group} if it is a consumer", "TXN producer-group {group} if it is a producer"),
        parameters=(_ROLE,),
        gives={
            200: gives(
                MemberLeft(group="billing", member="worker-1", left=True, missed={}), "It is no longer a member."
            )
        },
        errors=_CHANGED,
    ),
)
