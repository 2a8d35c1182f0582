"""The table of requirements: it has every route and no other, and says where each name is read."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from tern_proxy.app import build_app
from tern_proxy.core.access.requirements import Requirement
from tern_proxy.hot import HotRoutes
from tern_proxy.proxy import Proxy
from tern_proxy.routes.route import Route
from tern_proxy.routes.table import KNOWN_PATHS_MAX, ROUTES, RULES, RouteTable
from tests.support.proxy.proxy_mesh import KEY, FixedClock, ScriptedNameServer

TABLE = RouteTable()
DECLARED = {(rule.method, rule.path) for rule in RULES}


def filled(path: str) -> str:
    """*path* with a name in every hole."""
    return "/".join(f"a-{segment[1:-1]}" if segment.startswith("{") else segment for segment in path.split("/"))


def routes_of(routes: list[Any]) -> Iterator[tuple[str, str]]:
    """Method and path of every route of FastAPI, those of included routers too."""
    for route in routes:
        if hasattr(route, "original_router"):
            yield from routes_of(route.original_router.routes)
        else:
            yield from ((method, route.path) for method in route.methods)


def application() -> Any:
    """FastAPI's part of the proxy."""
    app = build_app(Proxy(cluster_key=KEY, name_servers=ScriptedNameServer([]), clock=FixedClock()))
    assert isinstance(app.app, HotRoutes)
    return app.app._app


def test_every_route_of_the_application_has_a_requirement() -> None:
    """Admin, health and metrics included: all that FastAPI would answer is declared."""
    assert set(routes_of(application().routes)) - DECLARED == set()


def test_nothing_is_declared_that_is_not_there() -> None:
    """Every row is served: in front, or by FastAPI. A row without a handler is the service's own."""
    known = set(routes_of(application().routes))
    hot = {(route.method, route.path) for route in ROUTES if route.hot}
    assert len(hot) > 10
    assert known | hot == DECLARED
    assert not known & hot


def test_a_path_leads_to_one_rule_only() -> None:
    """Two templates that one path fits could be taken for one another, unless one of them is hot and has a fixed word there."""
    for one, other in combinations(RULES, 2):
        if one.method != other.method or one.path.count("/") != other.path.count("/"):
            continue
        pairs = list(zip(one.path.split("/"), other.path.split("/"), strict=True))
        assert any(a != b and not a.startswith("{") and not b.startswith("{") for a, b in pairs), (
            f"{one.path} {other.path}"
        )


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_each_path_finds_its_own_row(route: Route) -> None:
    """With names in its holes, a path leads back to its row and gives the names, and the places in front are those of its names."""
    segments = filled(route.path).split("/")
    names = tuple(segment for segment in segments if segment.startswith("a-"))
    assert TABLE.find(route.method, filled(route.path)) == (route, names)
    assert TABLE.find(route.method, filled(route.path)) == (route, names), "remembered"
    for requirement, place in route.rule.in_front:
        assert requirement.kind == "cluster" or segments[place] == f"a-{requirement.place[1:-1]}"


def test_what_is_remembered_of_paths_is_bounded() -> None:
    """However many topics there are."""
    table = RouteTable()
    for number in range(KNOWN_PATHS_MAX + 10):
        found = table.find("POST", f"/v1/topics/t{number}/messages")
        assert found is not None
        assert (found[0].id, found[1]) == ("sendMessage", (f"t{number}",))
    assert len(table._known) <= KNOWN_PATHS_MAX


def test_only_health_is_anonymous() -> None:
    """One constant answer; everything else needs credentials."""
    assert [rule.path for rule in RULES if rule.is_anonymous] == ["/healthz"]


@pytest.mark.parametrize(
    "path", ["/v1/topics//stats", "/v1/topics/orders/stats/", "/nothing", "", "/v1/topics/a/b/c/d/e/f/g"]
)
def test_what_is_not_in_the_table_is_not_found(path: str) -> None:
    """Empty names and longer paths lead nowhere."""
    assert TABLE.find("GET", path) is None
    refusal = TABLE.refusal("GET", path)
    assert (refusal.status, refusal.code) == (404, "route-not-found")


def test_other_methods_are_told_which_there_are() -> None:
    """All of them, also where a path is hot by one method and ordinary by another, or fits a word and a name."""
    assert TABLE.find("TRACE", "/v1/topics/orders") is None
    assert TABLE.refusal("TRACE", "/v1/topics/orders").fields["allowed"] == "DELETE, GET, PATCH, PUT"
    assert TABLE.refusal("PUT", "/v1/topics/orders/messages").fields["allowed"] == "GET, POST"
    assert TABLE.refusal("PUT", "/v1/topics/orders/messages/batch").fields["allowed"] == "GET, POST"


@pytest.mark.parametrize(
    "text",
    [
        "PUB topic",
        "DESCRIBE cluster {topic}",
        "ADMIN topic {topic}",
        "TXN group {group}",
        "PUB queue {queue}",
        "pub topic {topic}",
    ],
)
def test_a_requirement_that_could_never_be_granted_is_refused(text: str) -> None:
    """Actions are those of their kinds, as grants have them."""
    with pytest.raises(ValueError, match="is not written as a requirement"):
        Requirement.parse(text)
