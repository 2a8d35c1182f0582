"""Handlers for assignments and locks of queues.

One broker group divides all queues of a topic at once. Each lock is held by the broker group of its
queue.
"""

from collections.abc import Sequence

from tern_proxy.core.documents.members import Assignments, GroupLocks, LockRequest, LockResults, QueueLock, Unlocked
from tern_proxy.core.members import assignments
from tern_proxy.core.sending.topic import Topic
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import ask_each
from tern_proxy.routes.members.broker_calls import ask_first, missed, tell
from tern_wire.errors import InvalidField, TernError
from tern_wire.limits import QUEUE_LOCK_MS, QUEUE_LOCK_RENEWAL_MS, QUEUES_PER_TOPIC_MAX
from tern_wire.link.members import AssignQueues, ListQueueLocks, LockQueues, UnlockQueues
from tern_wire.names import check_group
from tern_wire.principals.principals import DESCRIBE, SUB, TOPIC
from tern_wire.routing.membership import check_member, read_strategy


async def get_assignments(call: Call, group: str) -> Assignments:
    """Return the assignment of the queues of `topic`, in all broker groups, to members of the
    group; with `member`, only that one's queues.

    By `strategy`, or by the strategy of the first member (by id); `strategies` are all that members
    name. `unassigned` are queues without a member. While `generation` and the topic's queues stay
    the same, so do the assignments.
    """
    check_group(group)
    query, of_topic = call.query, call.needed("topic")
    strategy = read_strategy(query["strategy"]).value if "strategy" in query else ""
    member = check_member(query["member"]) if "member" in query else ""
    topic = await _topic(call, of_topic, DESCRIBE)
    asked = AssignQueues(group=group, topic=topic.name, queues=_every(topic), member=member, strategy=strategy)
    return assignments(group, topic.name, await ask_first(call.proxy, group, asked))


async def get_locks(call: Call, group: str) -> GroupLocks:
    """List the locked queues of `topic`, with holder, epoch and remaining time."""
    check_group(group)
    topic = await _topic(call, call.needed("topic"), DESCRIBE)
    answers = await ask_each(call.proxy, topic, ListQueueLocks(group=group, topic=topic.name))
    locks = {
        f"{name}:{queue}": QueueLock(member=lock.member, epoch=lock.epoch, expires_in_ms=lock.expires_in_ms)
        for name, answer, _ in answers
        for queue, lock in answer.locks.items()
    }
    return GroupLocks(group=group, topic=topic.name, locks=locks)


async def post_locks(call: Call, group: str) -> LockResults:
    """Lock queues for a member, or renew its locks: every 20 s.

    A lock ends after 60 s, or when the member leaves. Each queue is locked separately: `locked`
    (queue -> epoch) are held by the member, `held` (queue -> member) by others. An epoch grows with
    each change of holder: work under an older one is too late. `missed`: queues whose broker group
    did not answer.
    """
    wanted = await call.read(LockRequest)
    if not 0 < len(wanted.queues) <= QUEUES_PER_TOPIC_MAX:
        raise InvalidField(reason=f"'queues' are 1 to {QUEUES_PER_TOPIC_MAX}", pointer="/queues")
    topic = await _topic(call, wanted.topic, SUB)
    parts = _by_holder(group, topic, wanted.member, wanted.queues)
    locks = {
        name: LockQueues(group=group, topic=topic.name, member=wanted.member, queues=numbers)
        for name, numbers in parts.items()
    }
    found = LockResults(
        group=group,
        topic=topic.name,
        member=wanted.member,
        locked={},
        held={},
        missed={},
        expires_in_ms=QUEUE_LOCK_MS,
        renew_in_ms=QUEUE_LOCK_RENEWAL_MS,
    )
    for name, answer in (await tell(call.proxy, locks)).items():
        if isinstance(answer, TernError):
            found.missed |= {f"{name}:{queue}": answer.code for queue in parts[name]}
        else:
            found.locked |= {f"{name}:{queue}": epoch for queue, epoch in answer.locked.items()}
            found.held |= {f"{name}:{queue}": member for queue, member in answer.held.items()}
    return found


async def delete_locks(call: Call, group: str) -> Unlocked:
    """Release locks of `member` in `topic`: those of `queues` (separated by commas), or all.

    `unlocked`: those that it had.
    """
    of_topic, member = call.needed("topic"), call.needed("member")
    topic = await _topic(call, of_topic, SUB)
    queues = call.query["queues"].split(",") if "queues" in call.query else _every(topic)
    unlocks = {
        name: UnlockQueues(group=group, topic=topic.name, member=member, queues=numbers)
        for name, numbers in _by_holder(group, topic, member, queues).items()
    }
    answers = await tell(call.proxy, unlocks)
    unlocked = [
        f"{name}:{queue}"
        for name, answer in answers.items()
        if not isinstance(answer, TernError)
        for queue in answer.unlocked
    ]
    return Unlocked(group=group, topic=topic.name, member=member, unlocked=unlocked, missed=missed(answers))


async def _topic(call: Call, name: str, action: str) -> Topic:
    """Return the requested topic. Raise Forbidden unless the principal may do *action* on it."""
    whole = call.topic(name)
    call.admission.require(action, TOPIC, whole)
    return await call.proxy.topic(whole)


def _every(topic: Topic) -> list[str]:
    """Return all queues of *topic*."""
    return [queue.name for queues in topic.broker_groups.values() for queue in queues]


def _by_holder(group: str, topic: Topic, member: str, queues: Sequence[str]) -> dict[str, list[int]]:
    """Return the numbers of *queues* by broker group.

    Raise IllegalGroup, IllegalMember, QueueNotFound.
    """
    check_group(group)
    check_member(member)
    parts: dict[str, list[int]] = {}
    for text in dict.fromkeys(queues):
        queue = topic.pinned(text)
        parts.setdefault(queue.broker_group, []).append(queue.number)
    return parts
