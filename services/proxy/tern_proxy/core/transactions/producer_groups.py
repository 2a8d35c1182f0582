"""Producer groups: conversion between the HTTP API and the link. Pure.

A secret is shown in the answer to the PUT that has set it, and never again. The first broker group
in order of names decides a change, and the others get a copy of its decision. Where they differ
meanwhile, the first one's settings are shown; numbers are summed up.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from msgspec import UNSET, UnsetType

from tern_proxy.core.documents.producer_groups import (
    ProducerGroupDeclared,
    ProducerGroupSettings,
    ProducerGroupState,
    ProducerGroupStats,
)
from tern_proxy.core.documents.values import extended
from tern_wire.errors import InvalidField
from tern_wire.link.producer_groups import KnownProducerGroup
from tern_wire.link.producer_groups import ProducerGroupStats as KnownStats
from tern_wire.settings.producer_settings import SECRET_PREFIX, SETTINGS, ProducerChange, read_producer_change
from tern_wire.times import given_duration, parse_duration_ms

# Name of a broker group and its description of one producer group.
Answers = Sequence[tuple[str, KnownProducerGroup]]
# Sizes required by Standard Webhooks: 24 to 64 random bytes.
SECRET_SIZE_BYTES, SECRET_SIZE_MAX_BYTES = 24, 64
# Field of the body -> setting, for durations.
_TIMES = {"timeout": "timeout_ms", "check_after": "check_after_ms", "check_interval": "check_interval_ms"}


def write_secret(random: bytes) -> str:
    """Return a secret of Standard Webhooks, made of SECRET_SIZE_BYTES random bytes."""
    return SECRET_PREFIX + b64encode(random).decode()


def producer_change(producer_group: str, settings: ProducerGroupSettings) -> ProducerChange:
    """Return the change for *settings*, which creates a missing producer group.

    Raise InvalidField, IllegalGroup.
    """
    named: dict[str, Any] = {
        "check_url": settings.check_url,
        "check_secret": settings.check_secret,
        "max_checks": settings.max_checks,
        "include_body": settings.include_body,
    }
    for field, name in _TIMES.items():
        value = getattr(settings, field)
        named[name] = value if isinstance(value, UnsetType) else _duration(value, field)
    given = {name: value for name, value in named.items() if not isinstance(value, UnsetType)}
    try:
        change = read_producer_change({"producer_group": producer_group, "create": True, **given})
    except InvalidField as error:
        # The wire names a time with its unit, in ms; the body names it without, in the client's
        # form.
        field, reason = str(error.fields.get("pointer", "")).removesuffix("_ms"), str(error.fields.get("reason", ""))
        if field[1:] in _TIMES:
            reason = f"{reason}, not {given_duration(getattr(settings, field[1:]))}"
        raise InvalidField(**{**error.fields, "pointer": field, "reason": reason}) from error
    if secret := given.get("check_secret"):
        _check_secret(secret)
    return change


def _duration(value: str | int, field: str) -> int:
    try:
        return parse_duration_ms(value)
    except ValueError as error:
        raise InvalidField(reason=str(error)[:120], pointer=f"/{field}") from error


def _check_secret(secret: str) -> None:
    try:
        size_bytes = len(b64decode(secret.removeprefix(SECRET_PREFIX), validate=True))
    except (Base64Error, ValueError):
        size_bytes = 0
    if not SECRET_SIZE_BYTES <= size_bytes <= SECRET_SIZE_MAX_BYTES:
        reason = f"A secret is '{SECRET_PREFIX}' and {SECRET_SIZE_BYTES} to {SECRET_SIZE_MAX_BYTES} bytes in base64"
        raise InvalidField(reason=reason, pointer="/check_secret")


def to_decide(change: ProducerChange, known: Answers, fresh_secret: str) -> ProducerChange:
    """Return *change* for the deciding broker group.

    *known*: the current answers of all. *fresh_secret*: for a URL without a secret.
    """
    settings = change.settings
    if not settings.get("check_secret"):
        # An existing secret stays: producers have it, too.
        settings = {name: value for name, value in settings.items() if name != "check_secret"}
    revision = 1 + max((found.revision for _, found in known), default=0)
    return replace(change, settings=settings, fresh_secret=fresh_secret, least_revision=revision)


def newest(known: Answers) -> KnownProducerGroup | None:
    """Return the newest decision of all answers; None if no broker group has the producer group."""
    return max((found for _, found in known), key=lambda found: found.revision, default=None)


def to_copy(producer_group: str, decided: KnownProducerGroup) -> ProducerChange:
    """Return the change for the other broker groups: all settings as *decided*."""
    settings = {name: getattr(decided, name) for name in SETTINGS}
    return ProducerChange(producer_group=producer_group, create=True, settings=settings, revision=decided.revision)


def producer_group_state(name: str, answers: Answers) -> ProducerGroupState:
    """Return the settings of a producer group without its secret, and its statistics where the
    answers have them.
    """
    first = answers[0][1]
    told = [found.stats for _, found in answers if found.stats is not None]
    return ProducerGroupState(
        producer_group=name,
        check_url=first.check_url,
        has_secret=bool(first.check_secret),
        timeout_ms=first.timeout_ms,
        max_checks=first.max_checks,
        check_after_ms=first.check_after_ms,
        check_interval_ms=first.check_interval_ms,
        include_body=first.include_body,
        stats=_added_up(told) if told else UNSET,
    )


def producer_group_declared(
    name: str, answers: Answers, *, created: bool, fresh: Collection[str | UnsetType]
) -> ProducerGroupDeclared:
    """Return the settings of a producer group, whether it is new, and its secret if that is one of
    *fresh*.
    """
    secret = answers[0][1].check_secret
    return extended(
        producer_group_state(name, answers),
        ProducerGroupDeclared,
        created=created,
        check_secret=secret if secret and secret in fresh else UNSET,
    )


def _added_up(told: Sequence[KnownStats]) -> ProducerGroupStats:
    return ProducerGroupStats(
        open=sum(stats.open for stats in told),
        expired=sum(stats.expired for stats in told),
        committed=sum(stats.committed for stats in told),
        rolled_back=sum(stats.rolled_back for stats in told),
        checks=sum(stats.checks for stats in told),
    )
