"""Homes of queries that publish batches, as this proxy has learned them.

Every broker group is asked about a query that is not known here. An entry is only a shortcut: it is
dropped after each refusal, so that a query that has moved, or was forgotten, is looked up again.
"""

from tern_wire.limits_publications import QUERY_HOMES_MAX


class QueryHomes:
    """Broker groups by query, of at most QUERY_HOMES_MAX queries. Owner: the event loop."""

    __slots__ = ("_homes",)

    def __init__(self) -> None:
        self._homes: dict[str, str] = {}

    def get(self, query: str) -> str:
        """Return the home of *query*, "" if it is not known."""
        return self._homes.get(query, "")

    def put(self, query: str, home: str) -> None:
        """Set the home of *query*; the query that is known for the longest time may go."""
        if query not in self._homes and len(self._homes) >= QUERY_HOMES_MAX:
            del self._homes[next(iter(self._homes))]
        self._homes[query] = home

    def forget(self, query: str) -> None:
        """Look *query* up again at its next request."""
        self._homes.pop(query, None)
