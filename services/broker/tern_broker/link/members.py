"""What clients say of themselves, and who reads which queues. Heartbeats and locks are commands; what people ask is read."""

from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.engine import Engine
from tern_broker.link.requests import RequestHandler, Requests
from tern_broker.upkeep.namespace_shares import NamespaceShares, nothing_taken
from tern_remoting import Link
from tern_wire.errors import InvalidField, MemberNotFound
from tern_wire.limits import MEMBER_EXPIRY_MS
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode, body_parts
from tern_wire.names import check_group
from tern_wire.routing.membership import Role, check_member, read_heartbeat, read_role, read_strategy

# What a MEMBERS other than a heartbeat names; apply checks what is in it.
_FIELDS = {
    "leave": ("role", "group", "member"),
    "lock": ("group", "topic", "member", "queues"),
    "unlock": ("group", "topic", "member", "queues"),
}


class MemberRequests(Requests):
    """MEMBERS, GROUP_MEMBERS, ASSIGNMENTS, QUEUE_LOCKS. Owner: the core loop."""

    reads = frozenset({RequestCode.GROUP_MEMBERS, RequestCode.ASSIGNMENTS, RequestCode.QUEUE_LOCKS})

    def __init__(self, config: BrokerConfig, engine: Engine, shares: NamespaceShares) -> None:
        super().__init__(config, engine)
        self._shares = shares

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {
            RequestCode.MEMBERS: self._members,
            RequestCode.GROUP_MEMBERS: self._group_members,
            RequestCode.ASSIGNMENTS: self._assignments,
            RequestCode.QUEUE_LOCKS: self._queue_locks,
        }

    def _members(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        op, release = head["op"], nothing_taken
        if op == "heartbeat":
            # Read here, too: nothing that can be refused now takes a place in the log.
            says = read_heartbeat(head)
            release, request = self._shares.take_member(says), says.document()
            # In the entry, so that all replicas let go of the member at the same time, however they are set up.
            if self._config.member_expiry_ms != MEMBER_EXPIRY_MS:
                request["expiry_ms"] = self._config.member_expiry_ms
        elif op in _FIELDS:
            request = {name: head[name] for name in _FIELDS[op]}
            if op == "lock":
                release = self._shares.take_locks(request["group"], request["topic"], request["queues"])
        else:
            raise InvalidField(reason="'op' is heartbeat, leave, lock or unlock", pointer="/op")
        self.propose_map(link, opaque, CommandKind.MEMBERS, {"op": op, **request}, release=release)

    def _group_members(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        role = read_role(head["role"])
        name = self.group(head["group"]).name if role is Role.CONSUMER else check_group(head["group"])
        link.reply(opaque, 0, body_parts(self._engine.state.clients.members.describe(role, name)))

    def _assignments(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        group, topic, queues, member = self.group(head["group"]), str(head["topic"]), head["queues"], head["member"]
        strategy = read_strategy(head["strategy"]) if head["strategy"] else None
        if not isinstance(queues, list) or not all(isinstance(queue, str) for queue in queues):
            raise InvalidField(reason="'queues' are a list of names", pointer="/queues")
        members = self._engine.state.clients.members
        if member and not members.has(Role.CONSUMER, group.name, check_member(member)):
            raise MemberNotFound(member=member, group=group.name)
        found = members.assignments(group.name, topic, queues, strategy, is_broadcast=group.is_broadcast)
        if member:
            found["assignments"] = {member: found["assignments"].get(member, [])}
        link.reply(opaque, 0, body_parts(found))

    def _queue_locks(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        group, topic = self.group(head["group"]), self.topic(head["topic"])
        now_ms = self._engine.proposer.now_ms()
        holders = self._engine.state.clients.locks.holders(now_ms, group.name, topic.name, topic.queues)
        locks = {str(queue): [lock.member, lock.epoch, lock.until_ms - now_ms] for queue, lock in holders.items()}
        link.reply(opaque, 0, body_parts({"locks": locks}))
