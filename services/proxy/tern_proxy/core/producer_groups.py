"""Producer groups as the HTTP API writes them, and as the link carries them: one turned into the other. Pure.

A secret is shown by the PUT that has set it and never again. Where broker groups say different things (a change reaches one after the
other), the first in order of names is shown; numbers are added up.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UnsetType

from tern_wire.errors import InvalidField
from tern_wire.messages import ProducerGroupSettings
from tern_wire.producer_settings import SECRET_PREFIX, SETTINGS, ProducerChange, read_producer_change
from tern_wire.times import parse_duration_ms

Head = dict[str, Any]
# Name of a broker group and what it says of one producer group.
Answers = Sequence[tuple[str, Mapping[str, Any]]]
# What Standard Webhooks asks for: 24 to 64 random bytes.
SECRET_SIZE_BYTES, SECRET_SIZE_MAX_BYTES = 24, 64
# Field of the body -> setting, of those that are durations.
_TIMES = {"timeout": "timeout_ms", "check_after": "check_after_ms", "check_interval": "check_interval_ms"}
_STATS = ("open", "expired", "committed", "rolled_back", "checks")


def write_secret(random: bytes) -> str:
    """A secret of Standard Webhooks made of SECRET_SIZE_BYTES of chance."""
    return SECRET_PREFIX + b64encode(random).decode()


def producer_change(producer_group: str, settings: ProducerGroupSettings) -> ProducerChange:
    """The change that *settings* ask for, which makes the producer group if it is not there. InvalidField, IllegalGroup."""
    named: Head = {
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
        # The wire names a time with its unit; the body does not.
        field = str(error.fields.get("pointer", "")).removesuffix("_ms")
        raise InvalidField(**{**error.fields, "pointer": field}) from error
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


def with_secret(change: ProducerChange, known: str, fresh: str) -> tuple[ProducerChange, bool]:
    """*change* with a secret where its check URL needs one, and whether that is a new one.

    *known*: the one that a broker group has already, "" for none; a URL that changes keeps it, and all broker groups get it.
    """
    if not change.settings.get("check_url"):
        return change, bool(change.settings.get("check_secret"))
    own = change.settings.get("check_secret")
    settings = {**change.settings, "check_secret": own or known or fresh}
    made = ProducerChange(producer_group=change.producer_group, create=change.create, settings=settings)
    return made, bool(own) or not known


def producer_group_document(name: str, answers: Answers) -> Head:
    """A producer group's settings, without its secret, and its numbers where a broker group tells them."""
    first = answers[0][1]
    document: Head = {"producer_group": name}
    document |= {setting: first[setting] for setting in SETTINGS if setting != "check_secret"}
    document["has_secret"] = bool(first["check_secret"])
    counts: Counter[str] = Counter()
    for _, head in answers:
        counts.update(head.get("stats", {}))
    if any("stats" in head for _, head in answers):
        document["stats"] = {count: counts[count] for count in _STATS}
    return document
