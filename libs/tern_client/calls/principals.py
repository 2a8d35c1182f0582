"""Principals, keys and grants: requests as values. Pure.

A grant is a map {effect, actions, kind, pattern}, or a `tern_wire.principals.principals.Grant`. A
setting of a principal that is None or left out stays as it is, or gets its default in a new one;
`grants` replaces all of its grants. Durations and times have the forms of the HTTP API: `90d`, RFC
3339, milliseconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.errors import ClientKeyNotFound
from tern_wire.link.codec import encode_json
from tern_wire.principals.client_keys import check_key_type, is_kid
from tern_wire.principals.principals import Grant, check_principal

_JSON_HEADERS = (("Content-Type", paths.JSON),)


class PrincipalOptions(TypedDict, total=False):
    """Settings of a principal. Quotas apply at each proxy; 0: unlimited. `version`: change the
    principal only if it has this version, else PrincipalChanged; 0: only if it does not exist.
    """

    description: str | None
    grants: Sequence[Grant | Mapping[str, Any]] | None
    requests_per_s: int | None
    bytes_per_s: int | None
    version: int | None


class KeyOptions(TypedDict, total=False):
    """Settings of a key; a bearer key unless `type` or `public_key` is given.

    - `type`: `bearer` or `ed25519`. `public_key`: an Ed25519 key as 43 characters of
      base64url.
    - `expires_at` or `expires_in` (`90d`). `networks` such as `10.0.0.0/8`: the only ones from
      which the key is accepted.
    """

    type: str | None
    public_key: str | None
    not_before: str | int | None
    expires_at: str | int | None
    expires_in: str | int | None
    networks: Sequence[str] | None
    description: str | None


class AclFilter(TypedDict, total=False):
    """Which grants to list: those about this object; by default all."""

    topic: str
    group: str
    producer_group: str


# Requests ---------------------------------------------------------------------------------------
def principal_request(principal: str, options: PrincipalOptions) -> Request:
    """Request to declare *principal*. A repeat is safe, also after an unknown outcome."""
    document: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "grants" in document:
        lines = document["grants"]
        document["grants"] = [line.document() if isinstance(line, Grant) else dict(line) for line in lines]
    return Request("PUT", path_of(principal), _JSON_HEADERS, encode_json(document))


def key_request(principal: str, options: KeyOptions) -> Request:
    """Request a key of *principal*; InvalidField for another type.

    It is not repeated after an unknown outcome: that could make a second key.
    """
    document = {name: value for name, value in options.items() if value is not None}
    if kind := options.get("type"):
        check_key_type(kind)
    path = paths.keys_path(check_principal(principal))
    return Request("POST", path, _JSON_HEADERS, encode_json(document), repeatable=False)


def revoke_request(principal: str, kid: str) -> Request:
    """Request to revoke a key; a repeat is safe. ClientKeyNotFound when *kid* is not the name of a
    key.
    """
    if not is_kid(kid):
        raise ClientKeyNotFound(principal=principal, kid=kid[:40])
    return Request("DELETE", paths.keys_path(check_principal(principal), kid))


def path_of(principal: str) -> str:
    """Return the path of *principal*; InvalidField when it is not a name."""
    return paths.principal_path(check_principal(principal))
