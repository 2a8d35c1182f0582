"""Table of all rows of the HTTP API, with the one matcher for the guard, the hot routes and
FastAPI's registration.

Two rows may share a path with different methods, and at one place a path may match both a fixed
word and a name. The word is tried first, and the name if no row behind the word has the method
(`POST .../messages/batch`, `GET .../messages/{message_id}`).
"""

from collections.abc import Awaitable, Callable, Iterable

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.routing import Route as ServedRoute

from tern_proxy.core.access.requirements import Rule
from tern_proxy.proxy import Proxy
from tern_proxy.routes.broker_groups.routes import ROUTES as BROKER_GROUPS
from tern_proxy.routes.call import Call
from tern_proxy.routes.cluster.routes import ROUTES as CLUSTER
from tern_proxy.routes.dead_letters.routes import ROUTES as DEAD_LETTERS
from tern_proxy.routes.groups.routes import ROUTES as GROUPS
from tern_proxy.routes.health.routes import ROUTES as HEALTH
from tern_proxy.routes.members.routes import ROUTES as MEMBERS
from tern_proxy.routes.messages.routes import ROUTES as MESSAGES
from tern_proxy.routes.offsets.routes import ROUTES as OFFSETS
from tern_proxy.routes.principals.routes import ROUTES as PRINCIPALS
from tern_proxy.routes.producer_groups.routes import ROUTES as PRODUCER_GROUPS
from tern_proxy.routes.publications.routes import ROUTES as PUBLICATIONS
from tern_proxy.routes.queries.routes import ROUTES as QUERIES
from tern_proxy.routes.reads.routes import ROUTES as READS
from tern_proxy.routes.reference.routes import ROUTES as REFERENCE
from tern_proxy.routes.requests.routes import ROUTES as REQUESTS
from tern_proxy.routes.route import Route
from tern_proxy.routes.scheduled.routes import ROUTES as SCHEDULED
from tern_proxy.routes.statistics.routes import ROUTES as STATISTICS
from tern_proxy.routes.tails.routes import ROUTES as TAILS
from tern_proxy.routes.topics.routes import ROUTES as TOPICS
from tern_proxy.routes.transactions.routes import ROUTES as TRANSACTIONS
from tern_wire.errors import MethodNotAllowed, RouteNotFound

# In the order of the API document.
ROUTES: tuple[Route, ...] = (
    *MESSAGES,
    *TAILS,
    *REQUESTS,
    *PRODUCER_GROUPS,
    *TRANSACTIONS,
    *PUBLICATIONS,
    *QUERIES,
    *SCHEDULED,
    *STATISTICS,
    *OFFSETS,
    *READS,
    *CLUSTER,
    *HEALTH,
    *REFERENCE,
    *MEMBERS,
    *BROKER_GROUPS,
    *TOPICS,
    *GROUPS,
    *DEAD_LETTERS,
    *PRINCIPALS,
)
RULES: tuple[Rule, ...] = tuple(route.rule for route in ROUTES)
_BRIEF_ENDS = tuple({f"/{route.path.rpartition('/')[2]}".encode() for route in ROUTES if route.is_brief})
# Paths of topics and groups recur; pairs seldom outnumber groups.
KNOWN_PATHS_MAX = 4_096
# A route, and the names in the path's holes.
Found = tuple[Route, tuple[str, ...]]


def may_be_brief(target: bytes) -> bool:
    """Return whether the *target* of a POST, as sent, may be that of a brief route."""
    return target.partition(b"?")[0].endswith(_BRIEF_ENDS)


class RouteTable:
    """Matcher of requests to rows. Owner of its cache: the event loop."""

    __slots__ = ("_known", "_root")

    def __init__(self, routes: Iterable[Route] = ROUTES) -> None:
        self._root = _Node()
        self._known: dict[tuple[str, str], Found] = {}
        for route in routes:
            node = self._root
            for segment in route.path.split("/")[1:]:
                node = node.child(segment)
            if route.method in node.routes:
                raise ValueError(f"{route.method} {route.path} is declared twice")
            node.routes[route.method] = route

    def find(self, method: str, path: str) -> Found | None:
        """Return the row of *path* (decoded, as the application gets it) and its names in order.

        Return None when there is none; `refusal` has the error.
        """
        known = self._known.get((method, path))
        if known is not None:
            return known
        segments = path.split("/")
        route = self._root.find(method, segments, 1)
        if route is None:
            return None
        names = tuple(segments[place] for place in route.holes)
        if "" in names and not route.hot:
            # FastAPI does not serve it. A hot route has its own error for an empty name.
            return None
        found = (route, names)
        if route.rule.is_cacheable:
            if len(self._known) >= KNOWN_PATHS_MAX:
                self._known.clear()
            self._known[method, path] = found
        return found

    def methods(self, path: str) -> tuple[str, ...]:
        """Return the methods of *path*, ascending; empty if there is no such path."""
        found: set[str] = set()
        self._root.gather(path.split("/"), 1, found)
        return tuple(sorted(found))

    def refusal(self, method: str, path: str) -> MethodNotAllowed | RouteNotFound:
        """Return the error of a request without a matching row."""
        if methods := self.methods(path):
            return MethodNotAllowed(path=path, allowed=", ".join(methods))
        return RouteNotFound(method=method, path=path)


class _Node:
    """One segment of all paths with the same beginning."""

    __slots__ = ("hole", "named", "routes")

    def __init__(self) -> None:
        self.named: dict[str, _Node] = {}
        self.hole: _Node | None = None
        self.routes: dict[str, Route] = {}

    def child(self, segment: str) -> "_Node":
        """Return the node behind *segment*, created if missing."""
        if segment.startswith("{"):
            self.hole = self.hole or _Node()
            return self.hole
        return self.named.setdefault(segment, _Node())

    def find(self, method: str, segments: list[str], at: int) -> Route | None:
        """Return the row behind the *segments* from *at* on."""
        if at == len(segments):
            return self.routes.get(method)
        named = self.named.get(segments[at])
        if named is not None and (route := named.find(method, segments, at + 1)) is not None:
            return route
        return self.hole.find(method, segments, at + 1) if self.hole is not None else None

    def gather(self, segments: list[str], at: int, found: set[str]) -> None:
        """Add the methods of all rows that match the *segments* from *at* on."""
        if at == len(segments):
            found.update(self.routes)
            return
        named = self.named.get(segments[at])
        if named is not None:
            named.gather(segments, at + 1, found)
        if self.hole is not None and segments[at]:
            self.hole.gather(segments, at + 1, found)


def register(app: FastAPI, proxy: Proxy) -> None:
    """Register every ordinary row with *app*."""
    for route in ROUTES:
        if route.handler is not None and not route.hot:
            # Not add_api_route, which searches endpoints for parameters that rows have: 25 ms.
            served = ServedRoute(route.path, _endpoint(proxy, route), methods=[route.method])
            served.methods = {route.method}  # Starlette adds HEAD, which no row declares
            app.router.routes.append(served)


def _endpoint(proxy: Proxy, route: Route) -> Callable[[Request], Awaitable[Response]]:
    handler = route.handler
    assert handler is not None

    async def endpoint(request: Request) -> Response:
        call = Call(proxy, request, route, ROUTES)
        return call.respond(await handler(call, **request.path_params))

    return endpoint
