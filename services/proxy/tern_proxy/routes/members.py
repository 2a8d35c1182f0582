"""Members of groups, who reads which queues, and locks of queues, as ordinary FastAPI routes.

A heartbeat goes to every broker group, so that each knows the members; who reads which queues of a topic is divided once for all of its
queues, by one broker group: the first that answers, in an order that a consumer group keeps. Locks are held where the queue is.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.access.authorization import Admission, admission_of
from tern_proxy.core.access.namespaces import whole_topic
from tern_proxy.core.sending.parameters import BASIC, answer_kind
from tern_proxy.core.sending.topic import Topic
from tern_proxy.proxy import Proxy
from tern_proxy.routes.asking import ask_each
from tern_proxy.routes.documents import read_document, read_parameters, respond
from tern_wire.errors import GroupNotFound, IllegalFilter, InvalidField, NoLeader, NoNameServer, TernError, WarmingUp
from tern_wire.filters import compile_filter
from tern_wire.limits import HEARTBEAT_INTERVAL_MS, QUEUE_LOCK_MS, QUEUE_LOCK_RENEWAL_MS, QUEUES_PER_TOPIC_MAX
from tern_wire.link.heads import LinkReply, LinkRequest, R
from tern_wire.link.members import (
    AssignQueues,
    LeaveGroup,
    ListMembers,
    ListQueueLocks,
    LockQueues,
    TellHeartbeat,
    UnlockQueues,
)
from tern_wire.messages import LockRequest, MemberHeartbeat
from tern_wire.names import check_group
from tern_wire.principals.principals import DESCRIBE, GROUP, PRODUCER_GROUP, SUB, TOPIC, TXN
from tern_wire.routing.membership import Role, check_member, read_heartbeat, read_role, read_strategy

# What stands before a subscription's SQL, and may stand before its tags: as in the text of a Filter.
SQL, TAGS = "sql:", "tags:"


def members_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    members = _Members(proxy)
    router = APIRouter(default_response_class=Response)
    for method, path, handler in (
        ("POST", "/v1/groups/{group}/members/heartbeat", members.post_heartbeat),
        ("GET", "/v1/groups/{group}/members", members.get_members),
        ("DELETE", "/v1/groups/{group}/members/{member}", members.delete_member),
        ("GET", "/v1/groups/{group}/assignments", members.get_assignments),
        ("GET", "/v1/groups/{group}/locks", members.get_locks),
        ("POST", "/v1/groups/{group}/locks", members.post_locks),
        ("DELETE", "/v1/groups/{group}/locks", members.delete_locks),
    ):
        router.add_api_route(path, handler, methods=[method], tags=["groups"])
    return router


class _Members:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    # Members ---------------------------------------------------------------------------------------------------
    async def post_heartbeat(self, request: Request, group: str) -> Response:
        """Say that a member lives, and what it subscribes to. Every 30 s, and at once when something changes; gone after 120 s.

        `generation` moves when the group or its subscriptions change: then ask for the assignments again. `subscription_conflict` names
        topics on which members of the group differ: each then takes messages that the others wait for.
        """
        document = await read_document(request, MemberHeartbeat)
        fields = {name: getattr(document, name) for name in document.__struct_fields__}
        by_topic = {
            name: {whole_topic(request, topic): value for topic, value in told.items()}
            for name, told in (("subscriptions", _canonical(document.subscriptions)), ("queues", document.queues))
        }
        says = read_heartbeat({**fields, "group": group, **by_topic})
        admission = admission_of(request)
        _require_membership(admission, says.role, group)
        for topic in {**says.subscriptions, **says.queues} if says.role is Role.CONSUMER else ():
            admission.require(SUB, TOPIC, topic)
        answers = await self._tell_all(group, TellHeartbeat(**says.document()))
        first = next(answer for answer in answers.values() if not isinstance(answer, TernError))
        return respond(
            request,
            {
                "group": group,
                "member": says.member,
                "role": says.role.value,
                "joined": first.joined,
                "members": first.members,
                "generation": first.generation,
                "subscription_conflict": first.subscription_conflict,
                "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
                "expires_in_ms": first.expiry_ms,
                "missed": _missed(answers),
            },
        )

    async def get_members(self, request: Request, group: str) -> Response:
        """Who is in the group now, what each said last, and where their subscriptions differ. `role`: consumer or producer."""
        check_group(group)
        role = read_role(read_parameters(request, ("role",)).get("role", "consumer"))
        admission_of(request).require(DESCRIBE, GROUP if role is Role.CONSUMER else PRODUCER_GROUP, group)
        found = await self._ask_first(group, ListMembers(group=group, role=role.value))
        names = (
            *("member", "address", "version", "strategy", "room", "subscriptions", "queues"),
            "joined_at",
            "heard_at",
        )
        document = {
            "group": group,
            "role": role.value,
            "generation": found.generation,
            "subscription_conflict": [msgspec.to_builtins(conflict) for conflict in found.subscription_conflict],
            "members": [{name: getattr(member, name) for name in names} for member in found.members],
        }
        return respond(request, document)

    async def delete_member(self, request: Request, group: str, member: str) -> Response:
        """A member goes, before it would fall silent: its queues and its locks are free at once. `left`: whether it was there."""
        check_group(group)
        role = read_role(read_parameters(request, ("role",)).get("role", "consumer"))
        answer_kind(request.headers.get("accept", ""), BASIC)
        _require_membership(admission_of(request), role, group)
        answers = await self._tell_all(group, LeaveGroup(role=role.value, group=group, member=check_member(member)))
        left = any(answer.left for answer in answers.values() if not isinstance(answer, TernError))
        return respond(request, {"group": group, "member": member, "left": left, "missed": _missed(answers)})

    async def get_assignments(self, request: Request, group: str) -> Response:
        """Which member of the group reads which queues of `topic`, in all broker groups; with `member`, that one's only.

        By `strategy`, or by the one that the first member (by id) names; `strategies` are all that members name. `unassigned` are queues
        that nobody reads. While `generation` and the topic's queues stay, so do the assignments.
        """
        check_group(group)
        query = read_parameters(request, ("topic", "member", "strategy"), needed=("topic",))
        strategy = read_strategy(query["strategy"]).value if "strategy" in query else ""
        member = check_member(query["member"]) if "member" in query else ""
        name = whole_topic(request, query["topic"])
        admission_of(request).require(DESCRIBE, TOPIC, name)
        topic = await self._proxy.topic(name)
        queues = [queue.name for queues in topic.broker_groups.values() for queue in queues]
        asked = AssignQueues(group=group, topic=topic.name, queues=queues, member=member, strategy=strategy)
        found = await self._ask_first(group, asked)
        document = {
            "group": group,
            "topic": topic.name,
            "strategy": found.strategy,
            "strategies": found.strategies,
            "generation": found.generation,
            "assignments": found.assignments,
            "unassigned": found.unassigned,
        }
        return respond(request, document)

    # Locks -----------------------------------------------------------------------------------------------------
    async def get_locks(self, request: Request, group: str) -> Response:
        """Which queues of `topic` are locked, by whom, as of which epoch, and for how long yet."""
        check_group(group)
        query = read_parameters(request, ("topic",), needed=("topic",))
        name = whole_topic(request, query["topic"])
        admission_of(request).require(DESCRIBE, TOPIC, name)
        topic = await self._proxy.topic(name)
        answers = await ask_each(self._proxy, topic, ListQueueLocks(group=group, topic=topic.name))
        locks = {
            f"{name}:{queue}": {"member": lock.member, "epoch": lock.epoch, "expires_in_ms": lock.expires_in_ms}
            for name, answer, _ in answers
            for queue, lock in answer.locks.items()
        }
        return respond(request, {"group": group, "topic": topic.name, "locks": locks})

    async def post_locks(self, request: Request, group: str) -> Response:
        """Lock queues for a member, or renew its locks: every 20 s; a lock ends after 60 s, or when the member goes.

        Each queue on its own: `locked` (queue -> epoch) are the member's now, `held` (queue -> member) are others'. An epoch grows with
        each change of holder: what is done under an older one is late. `missed`: queues whose broker group did not answer.
        """
        document = await read_document(request, LockRequest)
        if not 0 < len(document.queues) <= QUEUES_PER_TOPIC_MAX:
            raise InvalidField(reason=f"'queues' are 1 to {QUEUES_PER_TOPIC_MAX}", pointer="/queues")
        name = whole_topic(request, document.topic)
        admission_of(request).require(SUB, TOPIC, name)
        topic = await self._proxy.topic(name)
        parts = _by_holder(group, topic, document.member, document.queues)
        locks = {
            name: LockQueues(group=group, topic=topic.name, member=document.member, queues=numbers)
            for name, numbers in parts.items()
        }
        found: dict[str, dict[str, Any]] = {"locked": {}, "held": {}, "missed": {}}
        for name, answer in (await self._tell(locks)).items():
            if isinstance(answer, TernError):
                found["missed"] |= {f"{name}:{queue}": answer.code for queue in parts[name]}
            else:
                found["locked"] |= {f"{name}:{queue}": epoch for queue, epoch in answer.locked.items()}
                found["held"] |= {f"{name}:{queue}": member for queue, member in answer.held.items()}
        times = {"expires_in_ms": QUEUE_LOCK_MS, "renew_in_ms": QUEUE_LOCK_RENEWAL_MS}
        return respond(request, {"group": group, "topic": topic.name, "member": document.member, **found, **times})

    async def delete_locks(self, request: Request, group: str) -> Response:
        """Give up locks of `member` in `topic`: those of `queues` (by commas), or all. `unlocked`: those that it had."""
        query = read_parameters(request, ("topic", "member", "queues"), needed=("topic", "member"))
        answer_kind(request.headers.get("accept", ""), BASIC)
        name = whole_topic(request, query["topic"])
        admission_of(request).require(SUB, TOPIC, name)
        topic = await self._proxy.topic(name)
        every = (queue.name for queues in topic.broker_groups.values() for queue in queues)
        queues = query["queues"].split(",") if "queues" in query else list(every)
        member = query["member"]
        unlocks = {
            name: UnlockQueues(group=group, topic=topic.name, member=member, queues=numbers)
            for name, numbers in _by_holder(group, topic, member, queues).items()
        }
        answers = await self._tell(unlocks)
        unlocked = [
            f"{name}:{queue}"
            for name, answer in answers.items()
            if not isinstance(answer, TernError)
            for queue in answer.unlocked
        ]
        document = {"group": group, "topic": topic.name, "member": member, "unlocked": unlocked}
        return respond(request, {**document, "missed": _missed(answers)})

    # Broker groups ---------------------------------------------------------------------------------------------
    async def _names(self, group: str) -> list[str]:
        """All broker groups in the order in which they are asked about *group*; those that are gone last."""
        proxy = self._proxy
        if proxy.cache.routes is None or not proxy.groups:
            await proxy.cache.refresh()
        routes = proxy.cache.routes
        if routes is None:
            raise NoNameServer(endpoints=proxy.cache.endpoints)
        names = sorted(proxy.groups)
        if not names:
            raise NoLeader(broker_group="(none is registered)") if routes.warm else WarmingUp()
        first = crc32(group.encode()) % len(names)
        here = {name for name, route in routes.broker_groups.items() if route.nodes}
        return sorted(names[first:] + names[:first], key=lambda name: name not in here)

    async def _ask_first(self, group: str, asked: LinkRequest[R]) -> R:
        """The first answer; the first refusal when nobody answers. One that lacks the group, as a new one may, is passed over."""
        refused: list[TernError] = []
        for name in await self._names(group):
            try:
                answer, _ = await self._proxy.group(name).link.ask(asked, is_repeatable=True)
            except TernError as error:
                if not error.retryable and not isinstance(error, GroupNotFound):
                    raise
                refused.append(error)
            else:
                return answer
        raise refused[0]

    async def _tell_all(self, group: str, told: LinkRequest[R]) -> Mapping[str, R | TernError]:
        """A MEMBERS to all broker groups; the first one's error when none takes it."""
        return await self._tell(dict.fromkeys(await self._names(group), told))

    async def _tell(self, told: Mapping[str, LinkRequest[R]]) -> Mapping[str, R | TernError]:
        """Name of a broker group -> its reply, or why there is none; the first one's error when none takes it."""

        async def tell(name: str, request: LinkRequest[R]) -> R | TernError:
            try:
                answer, _ = await self._proxy.group(name).link.ask(request, is_repeatable=True)
            except TernError as error:
                return error
            return answer

        answers = await asyncio.gather(*(tell(name, request) for name, request in told.items()))
        errors = [answer for answer in answers if isinstance(answer, TernError)]
        if len(errors) == len(answers):
            raise errors[0]
        return dict(zip(told, answers, strict=True))


def _by_holder(group: str, topic: Topic, member: str, queues: Sequence[str]) -> dict[str, list[int]]:
    """Numbers of *queues* by the broker groups that they are in, which hold their locks; IllegalGroup, IllegalMember, QueueNotFound."""
    check_group(group)
    check_member(member)
    parts: dict[str, list[int]] = {}
    for text in dict.fromkeys(queues):
        queue = topic.pinned(text)
        parts.setdefault(queue.broker_group, []).append(queue.number)
    return parts


def _require_membership(admission: Admission, role: Role, group: str) -> None:
    """Forbidden, or the error of a group that is not there, unless *admission* may be a member in that *role*."""
    if role is Role.CONSUMER:
        admission.require(SUB, GROUP, group)
    else:
        admission.require(TXN, PRODUCER_GROUP, group)


def _canonical(subscriptions: Mapping[str, str]) -> dict[str, str]:
    """Filters that mean the same in the same words; IllegalFilter."""
    found = {}
    for topic, text in subscriptions.items():
        tags, sql = (None, text.removeprefix(SQL)) if text.startswith(SQL) else (text.removeprefix(TAGS), None)
        try:
            found[topic] = compile_filter(tags, sql).text
        except IllegalFilter as error:
            raise IllegalFilter(**error.fields, pointer=f"/subscriptions/{topic}") from error
    return found


def _missed(answers: Mapping[str, LinkReply | TernError]) -> dict[str, str]:
    """The broker groups that did not take it, and why."""
    return {name: answer.code for name, answer in answers.items() if isinstance(answer, TernError)}
