"""A principal in its replicated form: one document in every broker group, and merges of two. Pure.

Every broker group has every principal, in no order of groups: a change is itself a document, joined
with the existing one. `joined` is commutative, associative and idempotent, so neither the order nor
the number of the writes to a broker group matters, and a group that missed a change gets it later
from any proxy.

Law: a removal is never undone by a join. Settings (grants, quotas) are those of the highest
*version*. A revoked key stays revoked, also after a join with a document that still has it. A
principal exists while its *version* is above that of its last deletion. Its keys are those with a
version above that deletion and above *floor*.

    {name, version,          the settings, and the document's version
     description, grants,
     requests_per_s, bytes_per_s}
    {deleted, deleted_ms}    version and time (ms since 1970) of the last deletion
    {keys, revoked}          keys, each with the version that added it; [kid, that version] of each
                             revoked one
    {floor}                  keys up to this version are gone, so that *revoked* need not name them

Reference: M. Shapiro et al., "A comprehensive study of Convergent and Commutative Replicated Data
Types" (2011): a last-writer-wins register and a two-phase set.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tern_wire.errors import InvalidField, LimitReached
from tern_wire.limits import KEYS_LIVE_MAX, REVOKED_KEPT_MAX
from tern_wire.link.codec import encode_msgpack
from tern_wire.principals.client_keys import TIME_MAX_MS, ClientKey, check_description, is_kid, read_client_key
from tern_wire.principals.principals import Grant, Principal, check_grants, check_principal, read_grant
from tern_wire.settings.topic_settings import is_whole

# Requests and bytes a second: far above the capacity of a proxy.
QUOTA_MAX = 1 << 40
# A deletion reaches so many versions beyond its writer's: it also ends a key that another writer
# adds at this moment.
DELETION_LEAP = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalDocument:
    """One principal with the part of its history that matters; or a change of it. `joined` gives
    the normal form.
    """

    name: str
    version: int = 0
    description: str = ""
    grants: tuple[Grant, ...] = ()
    requests_per_s: int = 0
    bytes_per_s: int = 0
    deleted: int = 0
    deleted_ms: int = 0
    floor: int = 0
    keys: tuple[ClientKey, ...] = ()
    revoked: tuple[tuple[str, int], ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether the principal exists."""
        return self.version > self.deleted

    @property
    def latest(self) -> int:
        """The highest version that it names; a change has one more."""
        made = (key.version for key in self.keys)
        return max(self.version, self.deleted, self.floor, *made, *(version for _, version in self.revoked), 0)

    @property
    def settled(self) -> int:
        """The version of its settings, or of its deletion if that came later. A change of settings
        is based on it.
        """
        return max(self.version, self.deleted)

    def principal(self) -> Principal | None:
        """The principal for authorization; None when it is deleted, or never existed."""
        if not self.is_there:
            return None
        return Principal(
            name=self.name,
            grants=self.grants,
            keys=self.keys,
            requests_per_s=self.requests_per_s,
            bytes_per_s=self.bytes_per_s,
        )

    def packed(self) -> dict[str, Any]:
        """The document as a map, without empty members."""
        document: dict[str, Any] = {
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "grants": [[grant.effect, grant.kind, grant.pattern, list(grant.actions)] for grant in self.grants],
            "requests_per_s": self.requests_per_s,
            "bytes_per_s": self.bytes_per_s,
            "deleted": self.deleted,
            "deleted_ms": self.deleted_ms,
            "floor": self.floor,
            "keys": [key.packed() for key in self.keys],
            "revoked": [list(entry) for entry in self.revoked],
        }
        return {name: value for name, value in document.items() if value}


def read_principal_document(packed: Any) -> PrincipalDocument:
    """Read the output of `PrincipalDocument.packed`, in normal form.

    InvalidField for a wrong part.
    """
    if not isinstance(packed, Mapping):
        raise InvalidField(reason="A principal is a map", pointer="/")
    numbers = {name: _number(packed, name, TIME_MAX_MS) for name in ("version", "deleted", "deleted_ms", "floor")} | {
        name: _number(packed, name, QUOTA_MAX) for name in ("requests_per_s", "bytes_per_s")
    }
    document = PrincipalDocument(
        name=check_principal(packed.get("name"), "/name"),
        description=check_description(packed.get("description", "")),
        grants=check_grants(_read_grants(packed.get("grants", []))),
        keys=tuple(read_client_key(key) for key in _list(packed, "keys")),
        revoked=tuple(_read_revoked(entry) for entry in _list(packed, "revoked")),
        **numbers,
    )
    return joined(document, document)


def joined(one: PrincipalDocument, other: PrincipalDocument) -> PrincipalDocument:
    """Merge two documents of the same principal, in normal form."""
    if one is other or one.version != other.version:
        settings = one if one.version >= other.version else other
    else:
        settings = max(one, other, key=_rank)
    deleted, deleted_ms = max((one.deleted, one.deleted_ms), (other.deleted, other.deleted_ms))
    floor = max(one.floor, other.floor)
    dead = max(deleted, floor)
    revoked = {entry for entry in (*one.revoked, *other.revoked) if entry[1] > dead}
    gone: dict[str, int] = {}
    for kid, version in revoked:
        gone[kid] = max(gone.get(kid, 0), version)
    keys: dict[str, ClientKey] = {}
    for key in (*one.keys, *other.keys):
        if key.version > max(dead, gone.get(key.kid, 0)):
            known = keys.get(key.kid, key)
            # A kid names one key; if there are two of it, all replicas choose the same.
            keys[key.kid] = max(known, key, key=lambda each: (each.version, encode_msgpack(each.packed())))
    if settings.version <= deleted:
        settings = PrincipalDocument(name=settings.name, version=settings.version)
    return replace(
        settings,
        deleted=deleted,
        deleted_ms=deleted_ms,
        floor=floor if floor > deleted else 0,
        keys=tuple(sorted(keys.values(), key=lambda key: (key.version, key.kid))),
        revoked=tuple(sorted(revoked, key=lambda entry: (entry[1], entry[0]))),
    )


def _rank(document: PrincipalDocument) -> bytes:
    """Order two concurrent writes of one version, so that all replicas choose the same."""
    settings = replace(document, deleted=0, deleted_ms=0, floor=0, keys=(), revoked=())
    return encode_msgpack(settings.packed())


# Changes ------------------------------------------------------------------------------------------
def settings_change(
    known: PrincipalDocument,
    *,
    description: str | None = None,
    grants: Iterable[Grant] | None = None,
    requests_per_s: int | None = None,
    bytes_per_s: int | None = None,
) -> PrincipalDocument:
    """The change that gives *known* these settings and makes it if it is not there; None: as it
    was, or the default. InvalidField.
    """
    quotas = {"requests_per_s": requests_per_s, "bytes_per_s": bytes_per_s}
    named = {name: _number({name: value}, name, QUOTA_MAX) for name, value in quotas.items() if value is not None}
    return PrincipalDocument(
        name=known.name,
        version=known.latest + 1,
        description=known.description if description is None else check_description(description),
        grants=known.grants if grants is None else check_grants(grants),
        **{name: named.get(name, getattr(known, name)) for name in quotas},
    )


def deletion(known: PrincipalDocument, now_ms: int) -> PrincipalDocument:
    """The change that deletes *known* with all its keys."""
    return PrincipalDocument(name=known.name, deleted=known.latest + DELETION_LEAP, deleted_ms=now_ms)


def addition(known: PrincipalDocument, key: ClientKey, now_ms: int) -> PrincipalDocument:
    """The change that gives *known* the new *key*, and drops its expired ones; LimitReached when it
    has KEYS_LIVE_MAX that are not.
    """
    live = [old for old in known.keys if not old.is_expired(now_ms)]
    if len(live) >= KEYS_LIVE_MAX:
        raise LimitReached(what=f"Keys of '{known.name}'", actual=len(live), limit=KEYS_LIVE_MAX)
    revoked = tuple((old.kid, old.version) for old in known.keys if old not in live)
    floor = 0
    if len(known.revoked) + len(revoked) >= REVOKED_KEPT_MAX:
        # Keys older than the oldest live one need no names.
        floor = min((old.version for old in live), default=known.latest + 1) - 1
        left = sum(version > floor for _, version in (*known.revoked, *revoked))
        if left >= REVOKED_KEPT_MAX:
            what = f"Revoked keys of '{known.name}' younger than its key {live[0].kid}, which should be rotated too"
            raise LimitReached(what=what, actual=left, limit=REVOKED_KEPT_MAX)
    return PrincipalDocument(
        name=known.name, floor=floor, keys=(replace(key, version=known.latest + 1),), revoked=revoked
    )


def revocation(name: str, keys: Iterable[ClientKey]) -> PrincipalDocument:
    """The change that takes *keys* away from the principal *name*."""
    return PrincipalDocument(name=name, revoked=tuple((key.kid, key.version) for key in keys))


# Reading ------------------------------------------------------------------------------------------
def _number(packed: Mapping[str, Any], name: str, most: int) -> int:
    value = packed.get(name, 0)
    if not is_whole(value, 0, most):
        raise InvalidField(reason=f"'{name}' is a whole number, 0 to {most}", pointer=f"/{name}")
    return value


def _list(packed: Mapping[str, Any], name: str) -> list[Any]:
    value = packed.get(name, [])
    if not isinstance(value, list | tuple) or len(value) > 2 * REVOKED_KEPT_MAX:
        raise InvalidField(reason=f"'{name}' is a list of at most {2 * REVOKED_KEPT_MAX}", pointer=f"/{name}")
    return list(value)


def _read_grants(packed: Any) -> list[Grant]:
    if not isinstance(packed, list | tuple) or not all(
        isinstance(line, list | tuple) and len(line) == 4 for line in packed
    ):
        raise InvalidField(reason="'grants' is a list of [effect, kind, pattern, actions]", pointer="/grants")
    return [
        read_grant(effect, actions, kind, pattern, f"/grants/{number}")
        for number, (effect, kind, pattern, actions) in enumerate(packed)
    ]


def _read_revoked(entry: Any) -> tuple[str, int]:
    if (
        not isinstance(entry, list | tuple)
        or len(entry) != 2
        or not is_kid(entry[0])
        or not is_whole(entry[1], 0, TIME_MAX_MS)
    ):
        raise InvalidField(reason="'revoked' is a list of [kid, version]", pointer="/revoked")
    return entry[0], entry[1]
