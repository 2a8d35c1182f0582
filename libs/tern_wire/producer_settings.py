"""What people may say of a producer group: how, how often and where its open transactions are asked about. Read in one place.

A change is a map, as the link and the log carry it; what it does not name stays as it is, or gets its default in a new producer group:

    {producer_group, create, check_url, check_secret, timeout_ms, max_checks, check_after_ms, check_interval_ms, include_body}

*create*: make it if it is not there (else ProducerGroupNotFound). *check_url* "" is asked by pull; which URLs are allowed is not decided here.
*check_secret* is that of Standard Webhooks: `whsec_` and base64. Reference: Standard Webhooks, symmetric signatures.
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
from tern_wire.topic_settings import is_whole, named_only, text_of

SECRET_PREFIX = "whsec_"  # noqa: S105 (what every such secret begins with)
# name: least, most
_NUMBERS: Mapping[str, tuple[int, int]] = {
    "timeout_ms": (CHECK_TIMEOUT_MIN_MS, CHECK_TIMEOUT_MAX_MS),
    "max_checks": (1, CHECKS_MAX),
    "check_after_ms": (CHECK_AFTER_MIN_MS, CHECK_AFTER_MAX_MS),
    "check_interval_ms": (CHECK_AFTER_MIN_MS, CHECK_AFTER_MAX_MS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """The settings of one producer group; all with defaults. Times are milliseconds."""

    check_url: str = ""
    check_secret: str = ""
    # How long an answer may take.
    timeout_ms: int = CHECK_TIMEOUT_DEFAULT_MS
    max_checks: int = CHECKS_DEFAULT
    # From the begin to the first check, unless a half message says otherwise; and from one check to the next.
    check_after_ms: int = CHECK_AFTER_DEFAULT_MS
    check_interval_ms: int = CHECK_INTERVAL_DEFAULT_MS
    include_body: bool = False

    def packed(self) -> dict[str, Any]:
        """As a map, of all of them."""
        return {name: getattr(self, name) for name in SETTINGS}


SETTINGS = tuple(field.name for field in fields(ProducerSettings))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerChange:
    """A change of one producer group; of *settings* it holds only those that it names, and they are good."""

    producer_group: str
    create: bool
    settings: dict[str, Any]

    def packed(self) -> dict[str, Any]:
        """As a map again, of what it names."""
        return {"producer_group": self.producer_group, "create": self.create, **self.settings}

    def applied_to(self, settings: ProducerSettings) -> ProducerSettings:
        """*settings* after the change."""
        return ProducerSettings(**{**settings.packed(), **self.settings})


def read_producer_change(request: Mapping[str, Any]) -> ProducerChange:
    """The change in the map *request*; IllegalGroup, or InvalidField with a pointer to what is not allowed."""
    create = request.get("create", False)
    if not isinstance(create, bool):
        raise InvalidField(reason="'create' is true or false", pointer="/create")
    named = named_only({name: request.get(name) for name in SETTINGS})
    for name, (least, most) in _NUMBERS.items():
        if name in named and not is_whole(named[name], least, most):
            raise InvalidField(reason=f"'{name}' is a whole number, {least} to {most}", pointer=f"/{name}")
    if "include_body" in named and not isinstance(named["include_body"], bool):
        raise InvalidField(reason="'include_body' is true or false", pointer="/include_body")
    if "check_url" in named:
        _check_text(named["check_url"], "check_url", CHECK_URL_SIZE_MAX_BYTES)
    if "check_secret" in named:
        secret = _check_text(named["check_secret"], "check_secret", CHECK_SECRET_SIZE_MAX_BYTES)
        if secret and not _is_secret(secret):
            reason = f"A secret is '{SECRET_PREFIX}' and base64, as Standard Webhooks has it"
            raise InvalidField(reason=reason, pointer="/check_secret")
    return ProducerChange(producer_group=check_group(text_of(request, "producer_group")), create=create, settings=named)


def read_producer_settings(document: Mapping[str, Any]) -> ProducerSettings:
    """The settings in a description of a producer group, which has other members, too; InvalidField as `read_producer_change`."""
    return read_producer_change(
        {"producer_group": "any", **{name: document.get(name) for name in SETTINGS}}
    ).applied_to(ProducerSettings())


def _is_secret(text: str) -> bool:
    try:
        return text.startswith(SECRET_PREFIX) and bool(b64decode(text[len(SECRET_PREFIX) :], validate=True))
    except Base64Error:
        return False


def _check_text(value: Any, name: str, size_max_bytes: int) -> str:
    """Printable ASCII without spaces, as URLs and base64 are."""
    is_text = isinstance(value, str) and value.isascii() and (value.isprintable() and " " not in value)
    if not is_text or len(value) > size_max_bytes:
        reason = f"'{name}' is at most {size_max_bytes} visible ASCII characters"
        raise InvalidField(reason=reason, pointer=f"/{name}")
    return str(value)
