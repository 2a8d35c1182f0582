"""Clients: members of groups and the queues that they have locked, as one part of the state
machine.

A MEMBERS command is a map with an `op`: `heartbeat` with the member's state; `leave` (role, group,
member); `lock` and `unlock` (group, topic, member, queues: numbers in this broker group). A member
that leaves, or is silent for too long (120 s, or the `expiry_ms` of its first heartbeat), loses its
locks at once.
"""

from collections.abc import Mapping
from typing import Any

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.comparing.digest import Verdict
from tern_broker.core.members.members import Members
from tern_broker.core.members.queue_locks import QueueLocks
from tern_broker.core.topics import Names
from tern_wire.errors import GroupNotFound, InvalidField, MemberNotFound, QueueNotFound, TopicNotFound
from tern_wire.limits import MEMBER_EXPIRY_MAX_MS, MEMBER_EXPIRY_MS, QUEUES_PER_TOPIC_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.names import check_group
from tern_wire.routing.membership import Role, check_member, read_heartbeat, read_role


class Clients:
    """Members and locks. Owner: the state machine."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.members = Members()
        self.locks = QueueLocks()

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.MEMBERS: self._apply}

    def is_due(self, now_ms: int) -> bool:
        """Return whether a member has been silent for too long. Locks end when another member
        requests them.
        """
        return self.members.is_due(now_ms)

    def expire(self, applied: Applied) -> None:
        """Remove members that have been silent for too long."""
        for role, group, member in self.members.expire(applied.now_ms):
            self._gone(role, group, member)

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return {"members": self.members.pack(), "locks": self.locks.pack()}

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return max(self.members.windows(), self.locks.windows())

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        return [self.members.window(number), self.locks.window(number)]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.members.unpack(packed["members"])
        self.locks.unpack(packed["locks"])

    def _apply(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        request = read_map(payload)
        match request["op"]:
            case "heartbeat":
                return self._heartbeat(request, applied.now_ms)
            case "leave":
                return self._leave(request)
            case "lock":
                return self._lock(request, applied.now_ms)
            case "unlock":
                return self._unlock(request)
        raise InvalidField(reason="'op' is heartbeat, leave, lock or unlock", pointer="/op")

    def _heartbeat(self, request: dict[str, Any], now_ms: int) -> Verdict:
        says = read_heartbeat(request)
        if says.role is Role.CONSUMER and says.group not in self._names.groups:
            raise GroupNotFound(group=says.group)
        topics = self._names.topics
        queues = {topic: topics[topic].queues if topic in topics else 0 for topic in says.subscriptions}
        expiry_ms = request.get("expiry_ms", MEMBER_EXPIRY_MS)
        if type(expiry_ms) is not int or not 0 < expiry_ms <= MEMBER_EXPIRY_MAX_MS:
            raise InvalidField(reason=f"'expiry_ms' is 1 to {MEMBER_EXPIRY_MAX_MS}", pointer="/expiry_ms")
        verdict = self.members.heartbeat(now_ms, says, queues, expiry_ms)
        expiry_ms = self.members.expiry_ms(says)
        return {**verdict, "expires_ms": now_ms + expiry_ms, "expiry_ms": expiry_ms}

    def _leave(self, request: dict[str, Any]) -> Verdict:
        role, group = read_role(request["role"]), check_group(request["group"])
        member = check_member(request["member"])
        has_left = self.members.leave(role, group, member)
        if has_left:
            self._gone(role, group, member)
        return {"left": has_left}

    def _lock(self, request: dict[str, Any], now_ms: int) -> Verdict:
        group, topic, member, queues = self._locked(request)
        if not self.members.has(Role.CONSUMER, group, member):
            raise MemberNotFound(member=member, group=group)
        return self.locks.lock(now_ms, group, topic, queues, member)

    def _unlock(self, request: dict[str, Any]) -> Verdict:
        group, topic, member, queues = self._locked(request)
        return {"unlocked": self.locks.unlock(group, topic, queues, member)}

    def _locked(self, request: dict[str, Any]) -> tuple[str, str, str, list[int]]:
        """Return group, topic, member and queues of a request about locks, after checking that all
        of them exist.
        """
        group, member, queues = check_group(request["group"]), check_member(request["member"]), request["queues"]
        topic = self._names.topics.get(request["topic"])
        if group not in self._names.groups:
            raise GroupNotFound(group=group)
        if topic is None:
            raise TopicNotFound(topic=str(request["topic"])[:160])
        if not isinstance(queues, list) or not 0 < len(queues) <= QUEUES_PER_TOPIC_MAX:
            raise InvalidField(reason=f"'queues' are 1 to {QUEUES_PER_TOPIC_MAX} numbers", pointer="/queues")
        for queue in queues:
            if type(queue) is not int or not 0 <= queue < topic.queues:
                raise QueueNotFound(queue=str(queue)[:80], topic=topic.name)
        return group, topic.name, member, queues

    def _gone(self, role: Role, group: str, member: str) -> None:
        if role is Role.CONSUMER:
            self.locks.release(group, member)
