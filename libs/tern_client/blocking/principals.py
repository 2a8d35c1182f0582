# Made by `make blocking` from the file of this name in asynchronous/. Change that one.
"""Calls about principals, their keys and their grants."""

from typing import Unpack

from tern_client.blocking.client import BlockingClient
from tern_client.calls.documents import get_request, read_document
from tern_client.calls.principals import (
    AclFilter,
    KeyOptions,
    PrincipalOptions,
    key_request,
    path_of,
    principal_request,
    revoke_request,
)
from tern_client.calls.topics import Document, all_rows
from tern_client.transport.clock import now_ms
from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.errors import PrincipalNotFound


class BlockingPrincipalCalls(BlockingClient):
    """Calls of BlockingAdmin about principals."""

    def whoami(self) -> Document:
        """Return the principal of this client ("" where credentials are not required), its grants
        and quotas.
        """
        return read_document(self._call(get_request(paths.WHOAMI_PATH)))

    def put_principal(self, principal: str, **options: Unpack[PrincipalOptions]) -> Document:
        """Create *principal*, or change the named settings of an existing one.
        PrincipalPartlyWritten when not every broker group has it in time: repeat the call.
        """
        return read_document(self._call(principal_request(principal, options)))

    def principal(self, principal: str) -> Document:
        """Return the grants and quotas of *principal*, and what is stored of its keys;
        PrincipalNotFound.
        """
        return read_document(self._call(get_request(path_of(principal))))

    def principals(self) -> list[Document]:
        """Return all principals."""
        return self._drive(all_rows(self._course, paths.PRINCIPALS_PATH, "principals", {}, now_ms()))

    def delete_principal(self, principal: str, *, missing_ok: bool = False) -> None:
        """Delete *principal* with its keys, which are refused everywhere within 5 s.
        PrincipalNotFound unless *missing_ok*; PrincipalPartlyWritten: repeat the call.
        """
        try:
            self._call(Request("DELETE", path_of(principal)))
        except PrincipalNotFound:
            if not missing_ok:
                raise

    def create_key(self, principal: str, **options: Unpack[KeyOptions]) -> Document:
        """Make a key of *principal*. Only this answer contains a bearer key, as `key`.
        PrincipalNotFound, LimitReached.
        """
        return read_document(self._call(key_request(principal, options)))

    def revoke_key(self, principal: str, kid: str) -> None:
        """Revoke a key for good: it is refused everywhere within 5 s. ClientKeyNotFound,
        PrincipalNotFound; PrincipalPartlyWritten: repeat the call.
        """
        self._call(revoke_request(principal, kid))

    def acls(self, **wanted: Unpack[AclFilter]) -> list[Document]:
        """Return grants with their principals; see AclFilter."""
        query = {name: str(value) for name, value in wanted.items() if value}
        return self._drive(all_rows(self._course, paths.ACLS_PATH, "acls", query, now_ms()))
