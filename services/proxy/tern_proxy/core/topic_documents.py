"""Topics and groups as the HTTP API writes them, and as the link carries them: one turned into the other. Pure.

Where broker groups say different things (a change reaches one after the other), the first in order of names is shown.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tern_proxy.core.sending.parameters import invisible_of
from tern_wire.errors import InvalidField
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.groups import GroupDescription, KnownGroup
from tern_wire.link.topics import TopicDescription, TopicState
from tern_wire.messages import GroupSettings, RetrySettings, TopicSettings
from tern_wire.routing.placement import Placement
from tern_wire.routing.route import TopicRoute
from tern_wire.settings.group_settings import EARLIEST, LATEST, TIME
from tern_wire.settings.retry_policy import CUSTOM, EXPONENTIAL, POLICIES, TABLE
from tern_wire.settings.topic_settings import perm_of, permission_of
from tern_wire.settings.when_full import WHEN_FULL, check_when_full, when_full_of
from tern_wire.times import parse_duration_ms, parse_time_ms

# A change as a map, and a document of the HTTP API.
Head = dict[str, Any]
# Name of a broker group and what it has answered.
Answers = Sequence[tuple[str, TopicState]]


# Asked ------------------------------------------------------------------------------------------------------------
def topic_change(topic: str, mode: str, settings: TopicSettings) -> Head:
    """The change that *settings* ask for; brokers and this proxy check the same (`read_topic_change`)."""
    named = {"queues": settings.queues, "type": settings.type, "attributes": _attributes(settings)}
    change = {name: value for name, value in named.items() if not isinstance(value, UnsetType)}
    if not isinstance(settings.permission, UnsetType):
        change["perm"] = perm_of(settings.permission)
    return {"topic": topic, "mode": mode, **change}


def _attributes(settings: TopicSettings) -> dict[str, str | None] | UnsetType:
    """What *settings* change of the attributes, `when_full` among them, which is kept as one."""
    attributes, when_full = settings.attributes, settings.when_full
    if not isinstance(attributes, UnsetType) and WHEN_FULL in attributes:
        reason = f"'{WHEN_FULL}' is a setting of its own, beside the attributes"
        raise InvalidField(reason=reason, pointer=f"/attributes/{WHEN_FULL}")
    if isinstance(when_full, UnsetType):
        return attributes
    others = {} if isinstance(attributes, UnsetType) else attributes
    return {**others, WHEN_FULL: check_when_full(when_full)}


def group_change(group: str, mode: str, settings: GroupSettings, start: tuple[str, int] | None) -> Head:
    """As topic_change; *start*: where the group begins, read already, with its time in ms."""
    named = {
        "max_attempts": settings.max_attempts,
        "fifo": settings.fifo,
        "consume": settings.consume,
        "broadcast": settings.broadcast,
        "attributes": settings.attributes,
    }
    change: Head = {name: value for name, value in named.items() if not isinstance(value, UnsetType)}
    if not isinstance(settings.invisible, UnsetType):
        change["invisible_ms"] = invisible_of(settings.invisible)
    if start is not None:
        change["start"], change["start_ms"] = start
    if not isinstance(settings.retry, UnsetType):
        change["retry"] = _retry_change(settings.retry)
    return {"group": group, "mode": mode, **change}


def start_of(settings: GroupSettings) -> tuple[str, int] | None:
    """Where a group is to begin, and its time in ms; None: not named. InvalidField."""
    start = settings.start
    if isinstance(start, UnsetType):
        return None
    if start in {EARLIEST, LATEST}:
        return str(start), 0
    try:
        return TIME, parse_time_ms(start)
    except ValueError as error:
        raise InvalidField(reason=f"'start' is earliest, latest, or a time: {error}", pointer="/start") from error


def _retry_change(retry: RetrySettings) -> Head:
    fields = {
        TABLE: (),
        CUSTOM: ("delays",),
        EXPONENTIAL: ("initial", "multiplier", "max"),
    }.get(retry.policy)
    if fields is None:
        raise InvalidField(reason=f"A retry policy is one of {', '.join(POLICIES)}", pointer="/retry/policy")
    for name in ("delays", "initial", "multiplier", "max"):
        if (getattr(retry, name) is not UNSET) != (name in fields):
            verb = "needs" if name in fields else "has no"
            raise InvalidField(reason=f"Policy '{retry.policy}' {verb} '{name}'", pointer=f"/retry/{name}")
    if retry.policy == CUSTOM:
        assert not isinstance(retry.delays, UnsetType)
        delays_ms = [_delay(delay, f"/retry/delays/{number}") for number, delay in enumerate(retry.delays)]
        return {"policy": CUSTOM, "delays_ms": delays_ms}
    if retry.policy == EXPONENTIAL:
        assert not isinstance(retry.multiplier, UnsetType)
        if not 0 < retry.multiplier <= 1_000:
            raise InvalidField(reason="'multiplier' is 1, or 1.1 to 100", pointer="/retry/multiplier")
        return {
            "policy": EXPONENTIAL,
            "initial_ms": _delay(retry.initial, "/retry/initial"),
            "multiplier_permille": round(retry.multiplier * 1_000),
            "max_ms": _delay(retry.max, "/retry/max"),
        }
    return {"policy": TABLE}


def _delay(value: str | int | UnsetType, pointer: str) -> int:
    assert not isinstance(value, UnsetType)
    try:
        return parse_duration_ms(value)
    except ValueError as error:
        raise InvalidField(reason=str(error)[:120], pointer=pointer) from error


# Answered ---------------------------------------------------------------------------------------------------------
def topic_document(topic: str, answers: Answers) -> Head:
    """A topic's settings, from the settings of each broker group."""
    counts = {name: found.queues for name, found in answers}
    first = answers[0][1]
    return {
        "topic": topic,
        "type": first.type,
        "permission": permission_of(first.perm),
        "queues": sum(counts.values()),
        "broker_groups": counts,
        "when_full": when_full_of(topic, first.attributes),
        "attributes": {name: text for name, text in first.attributes.items() if name != WHEN_FULL},
        "created_at": min(found.created_ms for _, found in answers),
    }


def topic_description(topic: str, answers: Sequence[tuple[str, TopicDescription]]) -> Head:
    """As topic_document, with the offsets of every queue and the groups that read it."""
    bounds = [
        {"queue": f"{name}:{each.queue}", "min_offset": each.min_offset, "max_offset": each.max_offset}
        for name, found in answers
        for each in found.bounds
    ]
    groups = sorted({group for _, found in answers for group in found.groups})
    return {**topic_document(topic, answers), "offsets": bounds, "groups": groups}


def topic_route(found: TopicState) -> TopicRoute:
    """The route that a broker group's answer to a change makes."""
    return TopicRoute(
        topic_id=found.topic_id,
        queues=found.queues,
        type=found.type,
        perm=found.perm,
        placement=found.placement,
    )


def placement_document(topic: str, placement: Placement, answers: Answers) -> Head:
    """Where a topic's keyed and ordered messages go. `hosts`: broker groups that have queues of it; `moving_until`: the move is not over before."""
    # Who shares the topic knows its last key; no end comes before all keys are forgotten.
    placed = [max(found.placed_ms, found.keyed_ms) for name, found in answers if name in placement.before]
    return {
        "topic": topic,
        "epoch": placement.epoch,
        "broker_groups": list(placement.groups),
        "before": list(placement.before),
        "is_moving": placement.is_moving,
        "moving_until": max(placed) + IDEMPOTENCY_WINDOW_MS if placed else 0,
        "hosts": [name for name, _ in answers],
    }


def topic_row(topic: str, route: Mapping[str, TopicRoute]) -> Head:
    """A topic in a list, from the routes alone."""
    names = sorted(route)
    first = route[names[0]]
    return {
        "topic": topic,
        "type": first.type,
        "permission": permission_of(first.perm),
        "queues": sum(part.queues for part in route.values()),
        "broker_groups": names,
    }


def group_document(found: KnownGroup) -> Head:
    """A group's settings, from those of one broker group."""
    retry = msgspec.to_builtins(found.retry)
    if "multiplier_permille" in retry:
        retry["multiplier"] = retry.pop("multiplier_permille") / 1_000
    document: Head = {
        "group": found.group,
        "invisible_ms": found.invisible_ms,
        "start": found.start,
        "max_attempts": found.max_attempts,
        "retry": {**retry, "delays_ms": found.retry_delays_ms},
        "fifo": found.fifo,
        "consume": found.consume,
        "broadcast": found.broadcast,
        "attributes": found.attributes,
    }
    if found.start == TIME:
        document["start_at"] = found.start_ms
    return document


def group_description(answers: Sequence[tuple[str, GroupDescription]]) -> Head:
    """As group_document, with how far the group is in each topic, added up over the broker groups."""
    topics: dict[str, Head] = {}
    for name, found in answers:
        for each in found.topics:
            blank = {"topic": each.topic, "lag": 0, "leased": 0, "available": 0, "parked": 0, "committed": {}}
            row = topics.setdefault(each.topic, blank)
            row["lag"] += each.lag
            row["leased"] += each.leased
            row["available"] += each.available
            row["parked"] += each.parked
            row["committed"] |= {f"{name}:{queue}": offset for queue, offset in each.committed.items()}
    rows = [topics[name] for name in sorted(topics)]
    return {**group_document(answers[0][1]), "topics": rows, "truncated": any(found.more for _, found in answers)}
