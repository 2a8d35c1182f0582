"""Topics: conversion between the HTTP API and the link. Pure.

Where broker groups differ (a change reaches one after the other), the first in order of names is
shown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UnsetType

from tern_proxy.core.documents import topics
from tern_proxy.core.documents.topics import ListedTopic, QueueOffsets, TopicDeclared, TopicPlacement, TopicSettings
from tern_proxy.core.documents.values import extended
from tern_wire.errors import InvalidField
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.topics import TopicDescription, TopicState
from tern_wire.routing.placement import Placement
from tern_wire.routing.route import TopicRoute
from tern_wire.settings.topic_settings import perm_of, permission_of
from tern_wire.settings.when_full import WHEN_FULL, check_when_full, when_full_of

# Name of a broker group and its answer.
Answers = Sequence[tuple[str, TopicState]]


# Requests -----------------------------------------------------------------------------------------
def topic_change(topic: str, mode: str, settings: TopicSettings) -> dict[str, Any]:
    """Return the change for *settings*.

    Brokers and this proxy validate it alike (`read_topic_change`).
    """
    named = {"queues": settings.queues, "type": settings.type, "attributes": _attributes(settings)}
    change = {name: value for name, value in named.items() if not isinstance(value, UnsetType)}
    if not isinstance(settings.permission, UnsetType):
        change["perm"] = perm_of(settings.permission)
    return {"topic": topic, "mode": mode, **change}


def _attributes(settings: TopicSettings) -> dict[str, str | None] | UnsetType:
    """Return the changes of the attributes in *settings*, including `when_full`, which is stored as
    an attribute.
    """
    attributes, when_full = settings.attributes, settings.when_full
    if not isinstance(attributes, UnsetType) and WHEN_FULL in attributes:
        reason = f"'{WHEN_FULL}' is a setting of its own, beside the attributes"
        raise InvalidField(reason=reason, pointer=f"/attributes/{WHEN_FULL}")
    if isinstance(when_full, UnsetType):
        return attributes
    others = {} if isinstance(attributes, UnsetType) else attributes
    return {**others, WHEN_FULL: check_when_full(when_full)}


# Answers ------------------------------------------------------------------------------------------
def topic_state(topic: str, answers: Answers) -> topics.TopicState:
    """Return the settings of a topic, from those of each broker group."""
    counts = {name: found.queues for name, found in answers}
    first = answers[0][1]
    return topics.TopicState(
        topic=topic,
        type=first.type,
        permission=permission_of(first.perm),
        queues=sum(counts.values()),
        broker_groups=counts,
        when_full=when_full_of(topic, first.attributes),
        attributes={name: text for name, text in first.attributes.items() if name != WHEN_FULL},
        created_at=min(found.created_ms for _, found in answers),
    )


def topic_declared(topic: str, answers: Answers, *, created: bool) -> TopicDeclared:
    """Return the settings of a topic, and whether the request created it."""
    return extended(topic_state(topic, answers), TopicDeclared, created=created)


def topic_description(topic: str, answers: Sequence[tuple[str, TopicDescription]]) -> topics.TopicDescription:
    """Return the settings of a topic, the offsets of every queue, and the groups that read it."""
    bounds = [
        QueueOffsets(queue=f"{name}:{each.queue}", min_offset=each.min_offset, max_offset=each.max_offset)
        for name, found in answers
        for each in found.bounds
    ]
    groups = sorted({group for _, found in answers for group in found.groups})
    return extended(topic_state(topic, answers), topics.TopicDescription, offsets=bounds, groups=groups)


def topic_route(found: TopicState) -> TopicRoute:
    """Return the route in a broker group's answer to a change."""
    return TopicRoute(
        topic_id=found.topic_id,
        queues=found.queues,
        type=found.type,
        perm=found.perm,
        placement=found.placement,
    )


def topic_placement(topic: str, placement: Placement, answers: Answers) -> TopicPlacement:
    """Return the placement of a topic's keyed and ordered messages."""
    # Each host has the time of its last keyed message; the move cannot end before all keys have
    # expired.
    placed = [max(found.placed_ms, found.keyed_ms) for name, found in answers if name in placement.before]
    return TopicPlacement(
        topic=topic,
        epoch=placement.epoch,
        broker_groups=list(placement.groups),
        before=list(placement.before),
        is_moving=placement.is_moving,
        moving_until=max(placed) + IDEMPOTENCY_WINDOW_MS if placed else 0,
        hosts=[name for name, _ in answers],
    )


def listed_topic(topic: str, route: Mapping[str, TopicRoute]) -> ListedTopic:
    """Return a topic of a list, from the routes alone."""
    names = sorted(route)
    first = route[names[0]]
    return ListedTopic(
        topic=topic,
        type=first.type,
        permission=permission_of(first.perm),
        queues=sum(part.queues for part in route.values()),
        broker_groups=names,
    )
