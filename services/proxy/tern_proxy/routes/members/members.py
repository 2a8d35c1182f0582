"""Handlers for members of groups: heartbeat, list, leave.

A heartbeat goes to every broker group, so that each has the members.
"""

from tern_proxy.access.authorization import Admission
from tern_proxy.core.documents.members import GroupMembers, Heard, MemberHeartbeat, MemberLeft
from tern_proxy.core.members import group_members, heard, heartbeat_of
from tern_proxy.routes.call import Call
from tern_proxy.routes.members.broker_calls import ask_first, missed, tell_all
from tern_wire.errors import TernError
from tern_wire.link.members import LeaveGroup, ListMembers, TellHeartbeat
from tern_wire.names import check_group
from tern_wire.principals.principals import DESCRIBE, GROUP, PRODUCER_GROUP, SUB, TOPIC, TXN
from tern_wire.routing.membership import Role, check_member, read_role


async def post_heartbeat(call: Call, group: str) -> Heard:
    """Send a member's heartbeat with its subscriptions: every 30 s, and at once after a change.

    A member expires after 120 s. `generation` changes when the group or its subscriptions change:
    then request the assignments again. `subscription_conflict` names topics on which members of the
    group differ: each then takes messages for which the others wait.
    """
    says = heartbeat_of(group, await call.read(MemberHeartbeat), call.topic)
    admission = call.admission
    _require_membership(admission, says.role, group)
    for topic in {**says.subscriptions, **says.queues} if says.role is Role.CONSUMER else ():
        admission.require(SUB, TOPIC, topic)
    answers = await tell_all(call.proxy, group, TellHeartbeat(**says.document()))
    first = next(answer for answer in answers.values() if not isinstance(answer, TernError))
    return heard(says, first, missed(answers))


async def get_members(call: Call, group: str) -> GroupMembers:
    """List the current members of the group, the last heartbeat of each, and conflicts of their
    subscriptions. `role`: consumer or producer.
    """
    check_group(group)
    role = _role(call)
    call.admission.require(DESCRIBE, GROUP if role is Role.CONSUMER else PRODUCER_GROUP, group)
    found = await ask_first(call.proxy, group, ListMembers(group=group, role=role.value))
    return group_members(group, role, found)


async def delete_member(call: Call, group: str, member: str) -> MemberLeft:
    """Remove a leaving member before it expires: its queues and its locks are free at once.

    `left`: whether it was a member.
    """
    check_group(group)
    role = _role(call)
    _require_membership(call.admission, role, group)
    told = LeaveGroup(role=role.value, group=group, member=check_member(member))
    answers = await tell_all(call.proxy, group, told)
    left = any(answer.left for answer in answers.values() if not isinstance(answer, TernError))
    return MemberLeft(group=group, member=member, left=left, missed=missed(answers))


def _role(call: Call) -> Role:
    """Return the role of the group's members. Raise InvalidField."""
    return read_role(call.query.get("role", Role.CONSUMER))


def _require_membership(admission: Admission, role: Role, group: str) -> None:
    """Raise Forbidden, or the error of a missing group, unless *admission* may be a member in that
    *role*.
    """
    if role is Role.CONSUMER:
        admission.require(SUB, GROUP, group)
    else:
        admission.require(TXN, PRODUCER_GROUP, group)
