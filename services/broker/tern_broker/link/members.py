"""Requests of clients as members of groups, and assignments of queues. Heartbeats and locks are
commands; the rest are reads.
"""

from typing import Any

import msgspec

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.upkeep.namespace_shares import NamespaceShares
from tern_remoting import Link
from tern_wire.errors import MemberNotFound
from tern_wire.limits import MEMBER_EXPIRY_MS
from tern_wire.link.commands import CommandKind
from tern_wire.link.members import (
    Assignments,
    AssignQueues,
    GroupMembers,
    HeldLock,
    LeaveGroup,
    ListMembers,
    ListQueueLocks,
    LockQueues,
    MemberHeard,
    MemberLeft,
    MemberRequest,
    QueueLocks,
    QueuesLocked,
    QueuesUnlocked,
    TellHeartbeat,
    UnlockQueues,
)
from tern_wire.link.requests import RequestCode
from tern_wire.names import check_group
from tern_wire.routing.membership import Role, check_member, read_heartbeat, read_role, read_strategy


class MemberRequests(Requests):
    """MEMBERS, GROUP_MEMBERS, ASSIGNMENTS, QUEUE_LOCKS. Owner: the core loop."""

    reads = frozenset({RequestCode.GROUP_MEMBERS, RequestCode.ASSIGNMENTS, RequestCode.QUEUE_LOCKS})

    def __init__(self, config: BrokerConfig, engine: Engine, shares: NamespaceShares) -> None:
        super().__init__(config, engine)
        self._shares = shares

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            Handler(RequestCode.MEMBERS, MemberRequest, self._members),
            handler(ListMembers, self._group_members),
            handler(AssignQueues, self._assignments),
            handler(ListQueueLocks, self._queue_locks),
        ]

    def _members(self, link: Link, opaque: int, request: MemberRequest, _raw: memoryview) -> None:
        match request:
            case TellHeartbeat():
                self._heartbeat(link, opaque, request)
            case LeaveGroup():
                leave = {"op": "leave", "role": request.role, "group": request.group, "member": request.member}
                self.propose(link, opaque, CommandKind.MEMBERS, leave, MemberLeft)
            case LockQueues():
                release = self._shares.take_locks(request.group, request.topic, request.queues)
                lock = {"op": "lock", **_locked(request)}
                self.propose(link, opaque, CommandKind.MEMBERS, lock, QueuesLocked, release=release)
            case UnlockQueues():
                unlock = {"op": "unlock", **_locked(request)}
                self.propose(link, opaque, CommandKind.MEMBERS, unlock, QueuesUnlocked)

    def _heartbeat(self, link: Link, opaque: int, request: TellHeartbeat) -> None:
        # Decoded here as well: a heartbeat that can be refused now takes no place in the log.
        says = read_heartbeat(msgspec.structs.asdict(request))
        release = self._shares.take_member(says)
        command = {"op": "heartbeat", **says.document()}
        # The entry carries it, so that all replicas expire the member at the same time, whatever
        # their configuration.
        if self._config.member_expiry_ms != MEMBER_EXPIRY_MS:
            command["expiry_ms"] = self._config.member_expiry_ms
        self.propose(link, opaque, CommandKind.MEMBERS, command, MemberHeard, release=release)

    def _group_members(self, link: Link, opaque: int, request: ListMembers, _raw: memoryview) -> None:
        role = read_role(request.role)
        name = self.group(request.group).name if role is Role.CONSUMER else check_group(request.group)
        found = self._engine.state.clients.members.describe(role, name)
        self.answer(link, opaque, msgspec.convert(found, GroupMembers))

    def _assignments(self, link: Link, opaque: int, request: AssignQueues, _raw: memoryview) -> None:
        group, member = self.group(request.group), request.member
        strategy = read_strategy(request.strategy) if request.strategy else None
        members = self._engine.state.clients.members
        if member and not members.has(Role.CONSUMER, group.name, check_member(member)):
            raise MemberNotFound(member=member, group=group.name)
        found = members.assignments(
            group.name, request.topic, request.queues, strategy, is_broadcast=group.is_broadcast
        )
        if member:
            found["assignments"] = {member: found["assignments"].get(member, [])}
        self.answer(link, opaque, Assignments(**found))

    def _queue_locks(self, link: Link, opaque: int, request: ListQueueLocks, _raw: memoryview) -> None:
        group, topic = self.group(request.group), self.topic(request.topic)
        now_ms = self._engine.proposer.now_ms()
        holders = self._engine.state.clients.locks.holders(now_ms, group.name, topic.name, topic.queues)
        locks = {
            str(queue): HeldLock(lock.member, lock.epoch, lock.until_ms - now_ms) for queue, lock in holders.items()
        }
        self.answer(link, opaque, QueueLocks(locks=locks))


def _locked(request: LockQueues | UnlockQueues) -> dict[str, Any]:
    """Return the fields in the log's form."""
    return {"group": request.group, "topic": request.topic, "member": request.member, "queues": request.queues}
