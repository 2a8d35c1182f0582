"""Settings of a producer group: target, number and times of the checks of its open transactions.

A change is a map, in the form of the link and the log. Fields that are absent stay as they are, or
get their defaults in a new producer group:

    {producer_group, create, check_url, check_secret, timeout_ms, max_checks, check_after_ms,
     check_interval_ms, include_body, fresh_secret, least_revision, revision}

*create*: create it if it does not exist (else ProducerGroupNotFound). *check_url* "": checks are
pulled; which URLs are allowed is decided elsewhere. *check_secret* has the form of Standard
Webhooks: `whsec_` and base64. *fresh_secret* is the secret of a URL without one. *least_revision*:
this broker group decides, and its count of changes becomes at least this; 0: no decision, as when a
group is created at its first use. *revision*: this is a copy of another broker group's decision; 0
if it is not. Reference: Standard Webhooks, symmetric signatures.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tern_wire.errors import InvalidField
from tern_wire.limits import (
    CHECK_AFTER_DEFAULT_MS,
    CHECK_AFTER_MAX_MS,
    CHECK_AFTER_MIN_MS,
    CHECK_INTERVAL_DEFAULT_MS,
    CHECK_SECRET_SIZE_MAX_BYTES,
    CHECK_TIMEOUT_DEFAULT_MS,
    CHECK_TIMEOUT_MAX_MS,
    CHECK_TIMEOUT_MIN_MS,
    CHECK_URL_SIZE_MAX_BYTES,
    CHECKS_DEFAULT,
    CHECKS_MAX,
)
from tern_wire.names import check_group
from tern_wire.settings.topic_settings import is_whole, named_only, text_of
from tern_wire.times import duration_text

SECRET_PREFIX = "whsec_"  # noqa: S105 (what every such secret begins with)
# More changes than are ever made.
REVISION_MAX = (1 << 53) - 1
# name: least, most
_NUMBERS: Mapping[str, tuple[int, int]] = {
    "timeout_ms": (CHECK_TIMEOUT_MIN_MS, CHECK_TIMEOUT_MAX_MS),
    "max_checks": (1, CHECKS_MAX),
    "check_after_ms": (CHECK_AFTER_MIN_MS, CHECK_AFTER_MAX_MS),
    "check_interval_ms": (CHECK_AFTER_MIN_MS, CHECK_AFTER_MAX_MS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of one producer group, with defaults. Times are milliseconds."""

    check_url: str = ""
    check_secret: str = ""
    # Longest time of an answer.
    timeout_ms: int = CHECK_TIMEOUT_DEFAULT_MS
    max_checks: int = CHECKS_DEFAULT
    # From the begin to the first check, unless a half message overrides it; and from one check to
    # the next.
    check_after_ms: int = CHECK_AFTER_DEFAULT_MS
    check_interval_ms: int = CHECK_INTERVAL_DEFAULT_MS
    include_body: bool = False

    def packed(self) -> dict[str, Any]:
        """Return all settings as a map."""
        return {name: getattr(self, name) for name in SETTINGS}


SETTINGS = tuple(field.name for field in fields(ProducerSettings))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerChange:
    """Change of one producer group; *settings* holds only the present fields, validated."""

    producer_group: str
    create: bool
    settings: dict[str, Any]
    fresh_secret: str = ""
    least_revision: int = 0
    revision: int = 0

    def packed(self) -> dict[str, Any]:
        """Return the change as a map of its present fields."""
        named = {name: getattr(self, name) for name in ("fresh_secret", "least_revision", "revision")}
        said = {name: value for name, value in named.items() if value}
        return {"producer_group": self.producer_group, "create": self.create, **self.settings, **said}

    def applied_to(self, settings: ProducerSettings) -> ProducerSettings:
        """Return *settings* after the change."""
        after = {**settings.packed(), **self.settings}
        if after["check_url"] and not after["check_secret"]:
            after["check_secret"] = self.fresh_secret
        return ProducerSettings(**after)


def _range_of(name: str, least: int, most: int) -> str:
    if name.endswith("_ms"):
        return f"'{name.removesuffix('_ms')}' is {duration_text(least)} to {duration_text(most)}"
    return f"'{name}' is a whole number, {least} to {most}"


def read_producer_change(request: Mapping[str, Any]) -> ProducerChange:
    """Parse the change in the map *request*.

    Raise IllegalGroup, or InvalidField with a pointer to the illegal field.
    """
    create = request.get("create", False)
    if not isinstance(create, bool):
        raise InvalidField(reason="'create' is true or false", pointer="/create")
    named = named_only({name: request.get(name) for name in SETTINGS})
    for name, (least, most) in _NUMBERS.items():
        if name in named and not is_whole(named[name], least, most):
            raise InvalidField(reason=_range_of(name, least, most), pointer=f"/{name}")
    if "include_body" in named and not isinstance(named["include_body"], bool):
        raise InvalidField(reason="'include_body' is true or false", pointer="/include_body")
    if "check_url" in named:
        _check_text(named["check_url"], "check_url", CHECK_URL_SIZE_MAX_BYTES)
    if "check_secret" in named:
        _check_secret(named["check_secret"], "check_secret")
    fresh_secret = _check_secret(request.get("fresh_secret", ""), "fresh_secret")
    counts = {name: request.get(name, 0) for name in ("least_revision", "revision")}
    for name, count in counts.items():
        if not is_whole(count, 0, REVISION_MAX):
            raise InvalidField(reason=f"'{name}' is a whole number, 0 to {REVISION_MAX}", pointer=f"/{name}")
    name = check_group(text_of(request, "producer_group"))
    return ProducerChange(producer_group=name, create=create, settings=named, fresh_secret=fresh_secret, **counts)


def read_producer_settings(document: Mapping[str, Any]) -> ProducerSettings:
    """Parse the settings in a description of a producer group, which has other members as well.

    Raise InvalidField as `read_producer_change` does.
    """
    return read_producer_change(
        {"producer_group": "any", **{name: document.get(name) for name in SETTINGS}}
    ).applied_to(ProducerSettings())


def _check_secret(value: Any, name: str) -> str:
    secret = _check_text(value, name, CHECK_SECRET_SIZE_MAX_BYTES)
    if secret and not _is_secret(secret):
        reason = f"A secret is '{SECRET_PREFIX}' and base64, as Standard Webhooks has it"
        raise InvalidField(reason=reason, pointer=f"/{name}")
    return secret


def _is_secret(text: str) -> bool:
    try:
        return text.startswith(SECRET_PREFIX) and bool(b64decode(text[len(SECRET_PREFIX) :], validate=True))
    except Base64Error:
        return False


def _check_text(value: Any, name: str, size_max_bytes: int) -> str:
    """Return *value* if it is printable ASCII without spaces, the alphabet of URLs and base64."""
    is_text = isinstance(value, str) and value.isascii() and (value.isprintable() and " " not in value)
    if not is_text or len(value) > size_max_bytes:
        reason = f"'{name}' is at most {size_max_bytes} visible ASCII characters"
        raise InvalidField(reason=reason, pointer=f"/{name}")
    return str(value)
