"""Principals, their keys and their grants: converted between the HTTP API's form and the replicated
one. Pure.

The text of a bearer key is in the one answer that makes it and nowhere else; the cluster stores a
hash.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from tern_proxy.core.documents import principals
from tern_proxy.core.documents.principals import (
    ClientKeyState,
    GrantSettings,
    KeySettings,
    PrincipalGrant,
    PrincipalSettings,
    PrincipalState,
)
from tern_proxy.core.documents.values import extended
from tern_wire.errors import InvalidField, PrincipalChanged
from tern_wire.principals.client_keys import (
    BEARER,
    ED25519,
    NOT_ACCEPTED,
    TIME_MAX_MS,
    ClientKey,
    bearer_text,
    check_description,
    check_key_type,
    decoded,
    digest_of,
    encoded_public_key,
    read_networks,
)
from tern_wire.principals.documents import PrincipalDocument, settings_change
from tern_wire.principals.principals import CLUSTER, GROUP, PRODUCER_GROUP, TOPIC, Grant, read_grant
from tern_wire.times import parse_duration_ms, parse_time_ms

# Parameter of GET /v1/acls -> kind.
KIND_OF: Mapping[str, str] = {"topic": TOPIC, "group": GROUP, "producer_group": PRODUCER_GROUP}


def read_grants(settings: Iterable[GrantSettings]) -> list[Grant]:
    """Return the grants of a body. Raise InvalidField with a pointer to the illegal field."""
    return [
        read_grant(each.effect, each.actions, each.kind, each.pattern, f"/grants/{number}")
        for number, each in enumerate(settings)
    ]


def shown_version(document: PrincipalDocument) -> int:
    """Return the version that the API shows; 0 for a principal that does not exist."""
    return document.version if document.is_there else 0


def put_change(known: PrincipalDocument, settings: PrincipalSettings) -> tuple[PrincipalDocument, bool]:
    """What a PUT asks for, and whether that is news. If it is none, it is *known* itself, for
    broker groups that have missed it.

    Without news it is *known* itself, for broker groups that missed it. Raise InvalidField, or
    PrincipalChanged when the principal is not at the version that the PUT expects.
    """
    expected, actual = settings.version, shown_version(known)
    change = settings_change(
        known,
        description=_named(settings.description),
        grants=None if isinstance(settings.grants, UnsetType) else read_grants(settings.grants),
        requests_per_s=_named(settings.requests_per_s),
        bytes_per_s=_named(settings.bytes_per_s),
    )
    if expected is not UNSET and expected != actual:
        raise PrincipalChanged(principal=known.name, actual=actual, expected=expected)
    is_news = not known.is_there or _settings(change) != _settings(known)
    return (change if is_news else known), is_news


def _named(value: Any) -> Any:
    return None if isinstance(value, UnsetType) else value


def _settings(document: PrincipalDocument) -> tuple[Any, ...]:
    return document.description, document.grants, document.requests_per_s, document.bytes_per_s


def new_key(kid: str, chance: bytes, settings: KeySettings, now_ms: int) -> tuple[ClientKey, str]:
    """The key *kid* that *settings* describe, and its text, "" for an Ed25519 key, which the client
    has made.

    *chance*: 32 random bytes, the secret of a bearer key. InvalidField.
    """
    kind, public_key = _kind(settings)
    text = bearer_text(kid, chance) if kind == BEARER else ""
    if settings.expires_at is not None and settings.expires_in is not None:
        raise InvalidField(reason="Give 'expires_at' or 'expires_in', not both", pointer="/expires_in")
    not_before_ms = _time_ms(settings.not_before, "/not_before")
    if settings.expires_in is not None:
        expires_ms = now_ms + _duration_ms(settings.expires_in, "/expires_in")
    else:
        expires_ms = _time_ms(settings.expires_at, "/expires_at")
    if expires_ms and expires_ms <= max(now_ms, not_before_ms):
        pointer = "/expires_at" if settings.expires_in is None else "/expires_in"
        raise InvalidField(reason="The key would never be good: it ends before it begins", pointer=pointer)
    key = ClientKey(
        kid=kid,
        digest=digest_of(text) if text else b"",
        public_key=public_key,
        not_before_ms=not_before_ms,
        expires_ms=expires_ms,
        created_ms=now_ms,
        networks=read_networks(settings.networks),
        description=check_description(settings.description),
    )
    return key, text


def _kind(settings: KeySettings) -> tuple[str, bytes]:
    """The type of the key, and the public key if the request has one; InvalidField."""
    public_key = decoded(settings.public_key) if settings.public_key else b""
    if public_key is None:
        raise InvalidField(
            reason="A public key is 43 characters of base64url: 32 bytes of Ed25519", pointer="/public_key"
        )
    kind = settings.type or (ED25519 if public_key else BEARER)
    check_key_type(kind)
    if bool(public_key) != (kind == ED25519):
        reason = (
            f"A key of type {kind} {'is made here and has' if public_key else 'is made by the client, which sends'} "
        )
        raise InvalidField(reason=reason + ("no public key" if public_key else "its public key"), pointer="/public_key")
    return kind, public_key


def _time_ms(value: str | int | None, pointer: str) -> int:
    if value is None:
        return 0
    try:
        return min(parse_time_ms(value), TIME_MAX_MS)
    except ValueError as error:
        raise InvalidField(reason=str(error)[:120], pointer=pointer) from error


def _duration_ms(value: str | int, pointer: str) -> int:
    try:
        return min(parse_duration_ms(value), TIME_MAX_MS // 2)
    except ValueError as error:
        raise InvalidField(reason=str(error)[:120], pointer=pointer) from error


# Answers ------------------------------------------------------------------------------------------
def grant_state(grant: Grant) -> principals.Grant:
    """Return a grant of the API."""
    return principals.Grant(effect=grant.effect, actions=list(grant.actions), kind=grant.kind, pattern=grant.pattern)


def key_state(key: ClientKey, now_ms: int) -> ClientKeyState:
    """The public facts of a key, for DESCRIBE of the cluster."""
    return ClientKeyState(
        kid=key.kid,
        type=key.kind,
        state=_state(key, now_ms),
        not_before=key.not_before_ms,
        expires_at=key.expires_ms,
        created_at=key.created_ms,
        networks=list(key.networks),
        description=key.description,
        public_key=encoded_public_key(key.public_key) if key.public_key else UNSET,
    )


def _state(key: ClientKey, now_ms: int) -> str:
    if not key.is_accepted:
        return NOT_ACCEPTED
    return "expired" if key.is_expired(now_ms) else "active" if key.is_good_at(now_ms) else "not-yet"


def principal_state(known: PrincipalDocument, now_ms: int) -> PrincipalState:
    """Return a principal with its grants and keys, visible with DESCRIBE of the cluster."""
    return PrincipalState(
        principal=known.name,
        version=shown_version(known),
        description=known.description,
        grants=[grant_state(grant) for grant in known.grants],
        requests_per_s=known.requests_per_s,
        bytes_per_s=known.bytes_per_s,
        keys=[key_state(key, now_ms) for key in known.keys],
    )


def acl_rows(
    documents: Iterable[PrincipalDocument], objects: Mapping[str, str]
) -> Iterator[tuple[str, PrincipalGrant]]:
    """Grants with whose they are: all of them, or those that speak of one of *objects* (kind ->
    name). With a key that sorts them by principal.
    """
    for known in documents:
        for number, grant in enumerate(known.grants):
            if not objects or any(grant.is_of(kind, name) for kind, name in objects.items() if kind != CLUSTER):
                row = extended(grant_state(grant), PrincipalGrant, principal=known.name)
                yield f"{known.name}\x00{number:04}", row
