"""Principals, keys and grants: requests as values. Pure.

A grant is a map {effect, actions, kind, pattern}, or a `tern_wire.principals.principals.Grant`.
What is left out (None) of a principal stays as it is, or gets its default in a new one; `grants`
replaces all that it has. Durations and times are as the HTTP API takes them: `90d`, RFC 3339, ms.
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
    """Settings of a principal. Quotas are at each proxy, 0: unlimited. `version`: only if it is at
    that one, else PrincipalChanged; 0: only if it is not there.
    """

    description: str | None
    grants: Sequence[Grant | Mapping[str, Any]] | None
    requests_per_s: int | None
    bytes_per_s: int | None
    version: int | None


class KeyOptions(TypedDict, total=False):
    """Settings of a key. `type`: `bearer` or `ed25519`. `public_key`: an Ed25519 one, 43 characters
    of base64url. Without both the key is a bearer key. `expires_at` or `expires_in` (`90d`);
    `networks` such as `10.0.0.0/8`, from which alone it is good.
    """

    type: str | None
    public_key: str | None
    not_before: str | int | None
    expires_at: str | int | None
    expires_in: str | int | None
    networks: Sequence[str] | None
    description: str | None


class AclFilter(TypedDict, total=False):
    """Whose grants to list: those that speak of this object; none: all."""

    topic: str
    group: str
    producer_group: str


# Requests ---------------------------------------------------------------------------------------------------------
def principal_request(principal: str, options: PrincipalOptions) -> Request:
    """Declare *principal*; safe to repeat, also when its outcome is not known."""
    document: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "grants" in document:
        lines = document["grants"]
        document["grants"] = [line.document() if isinstance(line, Grant) else dict(line) for line in lines]
    return Request("PUT", path_of(principal), _JSON_HEADERS, encode_json(document))


def key_request(principal: str, options: KeyOptions) -> Request:
    """Give *principal* a key; InvalidField for a type that is not made. Not repeated when its
    outcome is unknown: that would be one more key.
    """
    document = {name: value for name, value in options.items() if value is not None}
    if kind := options.get("type"):
        check_key_type(kind)
    path = paths.keys_path(check_principal(principal))
    return Request("POST", path, _JSON_HEADERS, encode_json(document), repeatable=False)


def revoke_request(principal: str, kid: str) -> Request:
    """Revoke a key; safe to repeat. ClientKeyNotFound when that is no key's name."""
    if not is_kid(kid):
        raise ClientKeyNotFound(principal=principal, kid=kid[:40])
    return Request("DELETE", paths.keys_path(check_principal(principal), kid))


def path_of(principal: str) -> str:
    """The path of *principal*; InvalidField for what is no name of one."""
    return paths.principal_path(check_principal(principal))
