"""What proxies say of principals, and what they ask about them."""

from typing import Any

from tern_broker.core.principals import read_put
from tern_broker.link.requests import RequestHandler, Requests, bounded
from tern_remoting import Link
from tern_wire.limits import PRINCIPALS_PAGE_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode, body_parts

REVISION_MAX = (1 << 63) - 1


class PrincipalRequests(Requests):
    """PUT_PRINCIPAL and LIST_PRINCIPALS. Owner: the core loop."""

    # A leader that was deposed must not tell of keys that its successor has revoked.
    reads = frozenset({RequestCode.LIST_PRINCIPALS})

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {RequestCode.PUT_PRINCIPAL: self._put, RequestCode.LIST_PRINCIPALS: self._list}

    # What is not allowed is refused here, too: it would cost an entry to hear the same from apply.
    def _put(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        change, base, is_repair = read_put(head)
        request = {"document": change.packed(), "base": base, "is_repair": is_repair}
        self.propose_map(link, opaque, CommandKind.PUT_PRINCIPAL, request)

    def _list(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        after, limit = bounded(head["after"], 0, REVISION_MAX), bounded(head["limit"], 1, PRINCIPALS_PAGE_MAX)
        link.reply(opaque, 0, body_parts(self._engine.state.principals.changed_after(after, limit)))
