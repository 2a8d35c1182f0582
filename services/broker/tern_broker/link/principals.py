"""Requests that change or list principals."""

import msgspec

from tern_broker.core.principals import read_put
from tern_broker.link.requests import Handler, Requests, handler
from tern_remoting import Link
from tern_wire.link.codec import decode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.principals import ChangedPrincipals, ListPrincipals, PrincipalPut, PutPrincipal
from tern_wire.link.requests import RequestCode


class PrincipalRequests(Requests):
    """PUT_PRINCIPAL and LIST_PRINCIPALS. Owner: the core loop."""

    # A leader that was deposed must not return keys that its successor has revoked.
    reads = frozenset({RequestCode.LIST_PRINCIPALS})

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(PutPrincipal, self._put), handler(ListPrincipals, self._list)]

    # Invalid values are refused here as well: a refusal by apply would cost an entry.
    def _put(self, link: Link, opaque: int, request: PutPrincipal, _raw: memoryview) -> None:
        document = decode_msgpack(request.document)
        change, base, is_repair = read_put({"document": document, "base": request.base, "is_repair": request.is_repair})
        command = {"document": change.packed(), "base": base, "is_repair": is_repair}
        self.propose(link, opaque, CommandKind.PUT_PRINCIPAL, command, PrincipalPut)

    def _list(self, link: Link, opaque: int, request: ListPrincipals, _raw: memoryview) -> None:
        found = self._engine.state.principals.changed_after(request.after, request.limit)
        self.answer(link, opaque, msgspec.convert(found, ChangedPrincipals))
