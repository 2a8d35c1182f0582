"""Consumer groups: conversion between the HTTP API and the link. Pure.

Where broker groups differ (a change reaches one after the other), the first in order of names is
shown.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from tern_proxy.core.documents import groups
from tern_proxy.core.documents.groups import GroupDeclared, GroupProgress, GroupSettings, GroupState, RetrySettings
from tern_proxy.core.documents.values import extended
from tern_proxy.core.sending.parameters import invisible_of
from tern_wire.errors import InvalidField
from tern_wire.link.groups import GroupDescription, KnownGroup
from tern_wire.settings.group_settings import EARLIEST, LATEST, TIME
from tern_wire.settings.retry_policy import CUSTOM, EXPONENTIAL, POLICIES, TABLE
from tern_wire.times import parse_duration_ms, parse_time_ms


# Requests -----------------------------------------------------------------------------------------
def group_change(group: str, mode: str, settings: GroupSettings, start: tuple[str, int] | None) -> dict[str, Any]:
    """Return the change for *settings*; *start* is the parsed position with its time in ms."""
    named = {
        "max_attempts": settings.max_attempts,
        "fifo": settings.fifo,
        "consume": settings.consume,
        "broadcast": settings.broadcast,
        "attributes": settings.attributes,
    }
    change: dict[str, Any] = {name: value for name, value in named.items() if not isinstance(value, UnsetType)}
    if not isinstance(settings.invisible, UnsetType):
        change["invisible_ms"] = invisible_of(settings.invisible)
    if start is not None:
        change["start"], change["start_ms"] = start
    if not isinstance(settings.retry, UnsetType):
        change["retry"] = _retry_change(settings.retry)
    return {"group": group, "mode": mode, **change}


def start_of(settings: GroupSettings) -> tuple[str, int] | None:
    """Return the initial position and its time in ms; None: absent. Raise InvalidField."""
    start = settings.start
    if isinstance(start, UnsetType):
        return None
    if start in {EARLIEST, LATEST}:
        return str(start), 0
    try:
        return TIME, parse_time_ms(start)
    except ValueError as error:
        raise InvalidField(reason=f"'start' is earliest, latest, or a time: {error}", pointer="/start") from error


def _retry_change(retry: RetrySettings) -> dict[str, Any]:
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


# Answers ------------------------------------------------------------------------------------------
def group_state(found: KnownGroup) -> GroupState:
    """Return the settings of a group, from those of one broker group."""
    told = found.retry
    retry = groups.Retry(policy=told.policy, delays_ms=found.retry_delays_ms)
    if told.policy == EXPONENTIAL:
        retry.initial_ms, retry.multiplier, retry.max_ms = (
            told.initial_ms,
            told.multiplier_permille / 1_000,
            told.max_ms,
        )
    return GroupState(
        group=found.group,
        invisible_ms=found.invisible_ms,
        start=found.start,
        start_at=found.start_ms if found.start == TIME else UNSET,
        max_attempts=found.max_attempts,
        retry=retry,
        fifo=found.fifo,
        consume=found.consume,
        broadcast=found.broadcast,
        attributes=found.attributes,
    )


def group_declared(found: KnownGroup, *, created: bool) -> GroupDeclared:
    """Return the settings of a group, and whether the request created it."""
    return extended(group_state(found), GroupDeclared, created=created)


def group_description(answers: Sequence[tuple[str, GroupDescription]]) -> groups.GroupDescription:
    """Return the settings of a group and its progress in each topic, summed up over the broker
    groups.
    """
    topics: dict[str, GroupProgress] = {}
    for name, found in answers:
        for each in found.topics:
            blank = GroupProgress(topic=each.topic, lag=0, leased=0, available=0, parked=0, committed={})
            row = topics.setdefault(each.topic, blank)
            row.lag += each.lag
            row.leased += each.leased
            row.available += each.available
            row.parked += each.parked
            row.committed |= {f"{name}:{queue}": offset for queue, offset in each.committed.items()}
    return extended(
        group_state(answers[0][1]),
        groups.GroupDescription,
        topics=[topics[name] for name in sorted(topics)],
        truncated=any(found.more for _, found in answers),
    )
