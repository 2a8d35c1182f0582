"""Members of groups: conversion between the HTTP API and the link. Pure."""

from collections.abc import Callable, Mapping

import msgspec

from tern_proxy.core.documents import members
from tern_proxy.core.documents.members import FilterOfMembers, Heard, Member, MemberHeartbeat
from tern_wire.errors import IllegalFilter
from tern_wire.filters import compile_filter
from tern_wire.limits import HEARTBEAT_INTERVAL_MS
from tern_wire.link.members import Assignments, GroupMember, GroupMembers, MemberHeard, SubscriptionConflict
from tern_wire.routing.membership import Heartbeat, Role, read_heartbeat

# Prefixes of a subscription: required before SQL, optional before tags, as in the text of a Filter.
SQL, TAGS = "sql:", "tags:"


# Requests -----------------------------------------------------------------------------------------
def heartbeat_of(group: str, document: MemberHeartbeat, whole: Callable[[str], str]) -> Heartbeat:
    """Return the heartbeat of a member of *group* in *document*.

    *whole* returns the full name of a topic. Raise IllegalFilter, or an error of `read_heartbeat`.
    """
    subscriptions = _canonical(document.subscriptions)
    by_topic = {
        "subscriptions": {whole(topic): text for topic, text in subscriptions.items()},
        "queues": {whole(topic): queues for topic, queues in document.queues.items()},
    }
    return read_heartbeat({**msgspec.structs.asdict(document), "group": group, **by_topic})


def _canonical(subscriptions: Mapping[str, str]) -> dict[str, str]:
    """Return canonical texts, so that equal filters have equal texts. Raise IllegalFilter."""
    found = {}
    for topic, text in subscriptions.items():
        tags, sql = (None, text.removeprefix(SQL)) if text.startswith(SQL) else (text.removeprefix(TAGS), None)
        try:
            found[topic] = compile_filter(tags, sql).text
        except IllegalFilter as error:
            raise IllegalFilter(**error.fields, pointer=f"/subscriptions/{topic}") from error
    return found


# Answers ------------------------------------------------------------------------------------------
def heard(says: Heartbeat, found: MemberHeard, missed: dict[str, str]) -> Heard:
    """Return the answer to a heartbeat, from one broker group's reply; *missed*: the broker groups
    that failed, and why.
    """
    return Heard(
        group=says.group,
        member=says.member,
        role=says.role.value,
        joined=found.joined,
        members=found.members,
        generation=found.generation,
        subscription_conflict=found.subscription_conflict,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        expires_in_ms=found.expiry_ms,
        missed=missed,
    )


def group_members(group: str, role: Role, found: GroupMembers) -> members.GroupMembers:
    """Return the members of a group and the conflicts of their subscriptions."""
    return members.GroupMembers(
        group=group,
        role=role.value,
        generation=found.generation,
        subscription_conflict=list(map(_conflict, found.subscription_conflict)),
        members=list(map(_member, found.members)),
    )


def _conflict(found: SubscriptionConflict) -> members.SubscriptionConflict:
    filters = [FilterOfMembers(filter=said.filter, count=said.count, members=said.members) for said in found.filters]
    return members.SubscriptionConflict(topic=found.topic, filters=filters)


def _member(found: GroupMember) -> Member:
    return Member(
        member=found.member,
        address=found.address,
        version=found.version,
        strategy=found.strategy,
        room=found.room,
        subscriptions=found.subscriptions,
        queues=found.queues,
        joined_at=found.joined_at,
        heard_at=found.heard_at,
    )


def assignments(group: str, topic: str, found: Assignments) -> members.Assignments:
    """Return the assignment of a topic's queues to members."""
    return members.Assignments(
        group=group,
        topic=topic,
        strategy=found.strategy,
        strategies=found.strategies,
        generation=found.generation,
        assignments=found.assignments,
        unassigned=found.unassigned,
    )
