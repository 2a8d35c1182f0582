"""Principals, keys and grants: requests as values, and the calls of both clients' Admin, which say the same.

A grant is a map {effect, actions, kind, pattern}, or a `tern_wire.principals.principals.Grant`. What is left out (None) of a principal stays as it is, or
gets its default in a new one; `grants` replaces all that it has. Durations and times are as the HTTP API takes them: `90d`, RFC 3339, ms.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from tern_client.calls.documents import get_request, read_document
from tern_client.calls.topics import Document, all_rows
from tern_client.client import AsyncClient, BlockingClient
from tern_client.transport.exchange import Request
from tern_client.transport.transport import now_ms
from tern_wire import paths
from tern_wire.errors import ClientKeyNotFound, PrincipalNotFound
from tern_wire.link.codec import encode_json
from tern_wire.principals.client_keys import is_kid
from tern_wire.principals.principals import Grant, check_principal

_JSON_HEADERS = (("Content-Type", paths.JSON),)


class PrincipalOptions(TypedDict, total=False):
    """Settings of a principal. Quotas are at each proxy, 0: unlimited. `version`: only if it is at that one, else PrincipalChanged; 0: only if
    it is not there."""

    description: str | None
    grants: Sequence[Grant | Mapping[str, Any]] | None
    requests_per_s: int | None
    bytes_per_s: int | None
    version: int | None


class KeyOptions(TypedDict, total=False):
    """Settings of a key. `type`: `bearer`, `ed25519` or `hmac-sha256`. `public_key`: 43 characters of base64url, an Ed25519 one. Without both the
    key is a bearer key. `expires_at` or `expires_in` (`90d`); `networks` such as `10.0.0.0/8`, from which alone it is good."""

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
    return Request("PUT", _path(principal), _JSON_HEADERS, encode_json(document))


def key_request(principal: str, options: KeyOptions) -> Request:
    """Give *principal* a key. Not repeated when its outcome is not known: that would be one more key."""
    document = {name: value for name, value in options.items() if value is not None}
    path = paths.keys_path(check_principal(principal))
    return Request("POST", path, _JSON_HEADERS, encode_json(document), repeatable=False)


def revoke_request(principal: str, kid: str) -> Request:
    """Revoke a key; safe to repeat. ClientKeyNotFound when that is no key's name."""
    if not is_kid(kid):
        raise ClientKeyNotFound(principal=principal, kid=kid[:40])
    return Request("DELETE", paths.keys_path(check_principal(principal), kid))


def _path(principal: str) -> str:
    return paths.principal_path(check_principal(principal))


# Calls ------------------------------------------------------------------------------------------------------------
class PrincipalCalls(AsyncClient):
    """What the async Admin can do about principals."""

    __slots__ = ()

    async def whoami(self) -> Document:
        """Who this client is: its principal ("" where credentials are not required), grants and quotas."""
        return read_document(await self._call(get_request(paths.WHOAMI_PATH)))

    async def put_principal(self, principal: str, **options: Unpack[PrincipalOptions]) -> Document:
        """Create *principal*, or give it what is named. PrincipalPartlyWritten when not every broker group has it in time: repeat."""
        return read_document(await self._call(principal_request(principal, options)))

    async def principal(self, principal: str) -> Document:
        """Its grants, quotas and what is known of its keys; PrincipalNotFound."""
        return read_document(await self._call(get_request(_path(principal))))

    async def principals(self) -> list[Document]:
        """All principals."""
        return await self._drive(all_rows(self._course, paths.PRINCIPALS_PATH, "principals", {}, now_ms()))

    async def delete_principal(self, principal: str, *, missing_ok: bool = False) -> None:
        """Delete it with its keys: refused everywhere within 5 s. PrincipalNotFound unless that is *missing_ok*; PrincipalPartlyWritten."""
        try:
            await self._call(Request("DELETE", _path(principal)))
        except PrincipalNotFound:
            if not missing_ok:
                raise

    async def create_key(self, principal: str, **options: Unpack[KeyOptions]) -> Document:
        """A new key of *principal*. A bearer or HMAC key is in `key` of this answer and nowhere else. PrincipalNotFound, LimitReached."""
        return read_document(await self._call(key_request(principal, options)))

    async def revoke_key(self, principal: str, kid: str) -> None:
        """Revoke a key: refused everywhere within 5 s, for good. ClientKeyNotFound, PrincipalNotFound, PrincipalPartlyWritten: repeat."""
        await self._call(revoke_request(principal, kid))

    async def acls(self, **wanted: Unpack[AclFilter]) -> list[Document]:
        """Grants with their principals."""
        query = {name: str(value) for name, value in wanted.items() if value}
        return await self._drive(all_rows(self._course, paths.ACLS_PATH, "acls", query, now_ms()))


class BlockingPrincipalCalls(BlockingClient):
    """As PrincipalCalls, for threads."""

    def whoami(self) -> Document:
        """As PrincipalCalls.whoami."""
        return read_document(self._call(get_request(paths.WHOAMI_PATH)))

    def put_principal(self, principal: str, **options: Unpack[PrincipalOptions]) -> Document:
        """As PrincipalCalls.put_principal."""
        return read_document(self._call(principal_request(principal, options)))

    def principal(self, principal: str) -> Document:
        """As PrincipalCalls.principal."""
        return read_document(self._call(get_request(_path(principal))))

    def principals(self) -> list[Document]:
        """As PrincipalCalls.principals."""
        return self._drive(all_rows(self._course, paths.PRINCIPALS_PATH, "principals", {}, now_ms()))

    def delete_principal(self, principal: str, *, missing_ok: bool = False) -> None:
        """As PrincipalCalls.delete_principal."""
        try:
            self._call(Request("DELETE", _path(principal)))
        except PrincipalNotFound:
            if not missing_ok:
                raise

    def create_key(self, principal: str, **options: Unpack[KeyOptions]) -> Document:
        """As PrincipalCalls.create_key."""
        return read_document(self._call(key_request(principal, options)))

    def revoke_key(self, principal: str, kid: str) -> None:
        """As PrincipalCalls.revoke_key."""
        self._call(revoke_request(principal, kid))

    def acls(self, **wanted: Unpack[AclFilter]) -> list[Document]:
        """As PrincipalCalls.acls."""
        query = {name: str(value) for name, value in wanted.items() if value}
        return self._drive(all_rows(self._course, paths.ACLS_PATH, "acls", query, now_ms()))
