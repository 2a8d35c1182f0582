"""Members, assignments and locks of a scripted broker: the broker's own part of the state machine, behind the proxy's requests."""

from collections.abc import Callable, Mapping
from typing import Any

from tern_broker.core.applied import Applied
from tern_broker.core.members.clients import Clients
from tern_broker.core.topics import Group, Names
from tern_wire.errors import GroupNotFound, MemberNotFound, TernError
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode
from tern_wire.routing.membership import Role, Strategy

Handler = Callable[[dict[str, Any], memoryview], tuple[dict[str, Any], bytes]]


class ScriptedMembers:
    """*topics*: name -> (id, logs); *groups*: name -> id; both are the broker's and may grow. Time is what tests set."""

    def __init__(self, topics: Mapping[str, tuple[int, list[Any]]], groups: Mapping[str, int]) -> None:
        self._topics, self._groups = topics, groups
        self._names = Names()
        self.clients = Clients(self._names)
        self.now_ms = 1_000_000

    def handlers(self) -> dict[RequestCode, Handler]:
        """As a scripted broker looks them up."""
        return {
            RequestCode.MEMBERS: self._apply,
            RequestCode.GROUP_MEMBERS: self._describe,
            RequestCode.ASSIGNMENTS: self._assign,
            RequestCode.QUEUE_LOCKS: self._holders,
        }

    def _follow(self) -> None:
        for name, (_, logs) in self._topics.items():
            topic = self._names.topics.get(name) or self._names.add_topic(name, len(logs))
            topic.grow(len(logs))
        for name in self._groups:
            if name not in self._names.groups:
                self._names.put(Group(len(self._names.groups) + 1, name, 30_000))

    def _apply(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        self._follow()
        applied = Applied(now_ms=self.now_ms)
        self.clients.expire(applied)
        handler = self.clients.commands()[CommandKind.MEMBERS]
        verdict = handler(memoryview(encode_msgpack(head)), 0, applied)
        if isinstance(verdict, TernError):
            raise verdict
        assert isinstance(verdict, dict)
        return verdict, b""

    def _describe(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        group = self._group(head) if head["role"] == Role.CONSUMER else head["group"]
        return self.clients.members.describe(Role(head["role"]), group), b""

    def _assign(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        group, member, strategy = self._group(head), head["member"], head["strategy"]
        members = self.clients.members
        if member and not members.has(Role.CONSUMER, group, member):
            raise MemberNotFound(member=member, group=group)
        found = members.assignments(group, head["topic"], head["queues"], Strategy(strategy) if strategy else None)
        if member:
            found["assignments"] = {member: found["assignments"].get(member, [])}
        return found, b""

    def _holders(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        self._follow()
        queues = self._names.topics[head["topic"]].queues
        holders = self.clients.locks.holders(self.now_ms, self._group(head), head["topic"], queues)
        locks = {str(queue): [lock.member, lock.epoch, lock.until_ms - self.now_ms] for queue, lock in holders.items()}
        return {"locks": locks}, b""

    def _group(self, head: dict[str, Any]) -> str:
        if head["group"] not in self._groups:
            raise GroupNotFound(group=head["group"])
        return str(head["group"])
