"""Requests made before a broker group is removed: the topics that it hosts, and their unread
messages. Looked up in turns.
"""

from collections.abc import Iterator

import msgspec

from tern_broker.core.hosted import dead_groups, hosted_page
from tern_broker.link.requests import Handler, Requests, handler
from tern_remoting import Link
from tern_wire.link.hosted import HostedPage, ListHosted
from tern_wire.link.requests import RequestCode


class HostedRequests(Requests):
    """HOSTED. Owner: the core loop."""

    reads = frozenset({RequestCode.HOSTED})

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(ListHosted, self._hosted)]

    def _hosted(self, link: Link, opaque: int, request: ListHosted, _raw: memoryview) -> None:
        state, after = self._engine.state, request.after

        def steps() -> Iterator[None]:
            found = yield from hosted_page(state.names, state.leasing, state.timing, after=after, limit=request.limit)
            dead = dead_groups(state.names, state.leasing) if not after else {"dead_letters": 0, "dead_groups": []}
            page = {**found, **dead, "open": len(state.transactions.table)}
            self.answer(link, opaque, msgspec.convert(page, HostedPage))

        self.answer_in_turns(link, opaque, steps())
