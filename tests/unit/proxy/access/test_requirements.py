"""The table of requirements: it has every route and no other, and says where each name is read."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

import tern_proxy.hot
from tern_proxy.app import build_app
from tern_proxy.core.access.requirements import RULES, Requirement, RouteTable, Rule
from tern_proxy.hot import HotRoutes, match
from tern_proxy.proxy import Proxy
from tests.support.proxy.proxy_mesh import KEY, FixedClock, ScriptedNameServer

TABLE = RouteTable()
DECLARED = {(rule.method, rule.path) for rule in RULES}


def filled(path: str) -> str:
    """*path* with a name in every hole."""
    return "/".join(f"a-{segment[1:-1]}" if segment.startswith("{") else segment for segment in path.split("/"))


def hot_routes() -> set[tuple[str, str]]:
    """Name and method of every hot route, as hot.py has them: as module variables, and in tables."""
    found = set()
    for value in vars(tern_proxy.hot).values():
        for each in value.values() if isinstance(value, dict) else [value]:
            if isinstance(each, tuple) and len(each) == 3 and isinstance(each[0], str) and callable(each[2]):
                found.add((each[0], each[1]))
    return found


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


def test_every_hot_route_has_a_requirement() -> None:
    """A hot route that no declared path leads to would be one that nobody asks about; there is none."""
    reached = set()
    for rule in RULES:
        found = match(filled(rule.path))
        if found is not None and found[0][1] == rule.method:
            reached.add(found[0][:2])
    assert hot_routes() == reached
    assert len(reached) > 10


def test_every_route_of_the_application_has_a_requirement() -> None:
    """Admin, health and metrics included: all that FastAPI would answer is declared."""
    assert set(routes_of(application().routes)) - DECLARED == set()


def test_nothing_is_declared_that_is_not_there() -> None:
    """A rule without a route is a mistake in its path."""
    known = set(routes_of(application().routes))
    hot = {
        (rule.method, rule.path) for rule in RULES if (found := match(filled(rule.path))) and found[0][1] == rule.method
    }
    assert DECLARED - known - hot == set()


def test_a_path_leads_to_one_rule_only() -> None:
    """Two templates that one path fits could be taken for one another, unless one of them is hot and has a fixed word there."""
    for one, other in combinations(RULES, 2):
        if one.method != other.method or one.path.count("/") != other.path.count("/"):
            continue
        pairs = list(zip(one.path.split("/"), other.path.split("/"), strict=True))
        assert any(a != b and not a.startswith("{") and not b.startswith("{") for a, b in pairs), (
            f"{one.path} {other.path}"
        )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.method} {rule.path}")
def test_each_path_finds_its_own_rule(rule: Rule) -> None:
    """With names in its holes, a path leads back to its rule, and the places in front are those of its names."""
    assert TABLE.find(rule.method, filled(rule.path)) == (rule, ())
    segments = filled(rule.path).split("/")
    for requirement, place in rule.in_front:
        assert requirement.kind == "cluster" or segments[place] == f"a-{requirement.place[1:-1]}"


def test_only_health_is_anonymous() -> None:
    """One constant answer; everything else needs credentials."""
    assert [rule.path for rule in RULES if rule.is_anonymous] == ["/healthz"]


def test_what_is_not_in_the_table_is_not_found() -> None:
    """Empty names, longer paths and other methods lead nowhere; the last are told which there are."""
    assert TABLE.find("GET", "/v1/topics//stats") == (None, ())
    assert TABLE.find("GET", "/v1/topics/orders/stats/") == (None, ())
    assert TABLE.find("GET", "/docs") == (None, ())
    assert TABLE.find("TRACE", "/v1/topics/orders") == (None, ("DELETE", "GET", "PATCH", "PUT"))


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
