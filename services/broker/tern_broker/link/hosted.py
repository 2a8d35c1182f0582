"""What proxies ask before a broker group may go: which topics it hosts, and what of them is left to be read. Looked up in turns."""

from collections.abc import Iterator
from typing import Any

from tern_broker.core.hosted import dead_groups, hosted_page
from tern_broker.link.requests import RequestHandler, Requests, bounded
from tern_remoting import Link
from tern_wire.limits import LISTED_MAX
from tern_wire.link.requests import RequestCode, body_parts


class HostedRequests(Requests):
    """HOSTED. Owner: the core loop."""

    reads = frozenset({RequestCode.HOSTED})

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {RequestCode.HOSTED: self._hosted}

    def _hosted(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        state = self._engine.state
        after, limit = str(head["after"]), bounded(head["limit"], 1, LISTED_MAX)

        def steps() -> Iterator[None]:
            found = yield from hosted_page(state.names, state.leasing, state.timing, after=after, limit=limit)
            dead = dead_groups(state.names, state.leasing) if not after else {"dead_letters": 0, "dead_groups": []}
            link.reply(opaque, 0, body_parts({**found, **dead, "open": len(state.transactions.table)}))

        self.answer_in_turns(link, opaque, steps())
