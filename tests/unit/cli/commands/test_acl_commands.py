"""`ternmq acl`: grants added, taken away, listed and explained; what it asks a proxy, and what it shows."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.failures import CommandFailed
from tern_cli.views.acl_lines import with_less, with_more
from tern_wire.errors import PrincipalChanged, PrincipalNotFound
from tern_wire.principals.principals import Grant, read_grant
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, refused, said

RUNNER = CliRunner()


def lines(*texts: str) -> list[Grant]:
    """`allow PUB,SUB topic orders` and so on."""
    words = [text.split() for text in texts]
    return [read_grant(effect, actions.split(","), kind, pattern) for effect, actions, kind, pattern in words]


class Cluster:
    """A proxy that keeps principals as the real one does; *races*: so often somebody else is faster."""

    def __init__(self, *texts: str, races: int = 0) -> None:
        self.grants = [line.document() for line in lines(*texts)]
        self.version, self.races = 3, races
        self.sent: list[dict[str, Any]] = []

    def __call__(self, asked: Asked) -> Reply:
        """Answer."""
        if not asked.path.startswith("/v1/principals/shop"):
            return refused(PrincipalNotFound(principal="x"))
        if asked.method == "PUT":
            self.sent.append(json.loads(asked.body))
            if self.races:
                self.races, self.version = self.races - 1, self.version + 1
                return refused(PrincipalChanged(principal="shop", actual=self.version, expected=self.version - 1))
            self.grants = self.sent[-1].get("grants", self.grants)
        return said(
            {"principal": "shop", "version": self.version, "grants": self.grants, "requests_per_s": 5, "bytes_per_s": 0}
        )


def run(answer: Callable[[Asked], Reply], *words: str) -> tuple[Result, list[Asked]]:
    """A command at a proxy that says *answer*; and what it was asked."""
    with blocking_proxy(answer) as made:
        done = RUNNER.invoke(app, ["acl", *words, "--endpoint", made.url])
    return done, made.asked


def shown(cluster: Cluster) -> list[str]:
    """The grants that the cluster has now."""
    return [str(read_grant(one["effect"], one["actions"], one["kind"], one["pattern"])) for one in cluster.grants]


@pytest.mark.parametrize(
    ("before", "words", "after"),
    [
        ([], "grant shop PUB --topic orders", ["allow PUB topic orders"]),
        (["allow SUB topic orders"], "grant shop PUB --topic orders", ["allow PUB,SUB topic orders"]),
        ([], "grant shop --producer --topic orders* --producer-group shop", ["allow PUB topic orders*", "allow TXN producer-group shop"]),
        ([], "grant shop --consumer --topic a --topic b --group g", ["allow SUB topic a", "allow SUB topic b", "allow SUB,ACK group g"]),
        ([], "grant shop admin,describe --cluster", ["allow DESCRIBE,ADMIN cluster *"]),
        (["allow PUB topic a"], "deny shop ALL --topic salaries", ["allow PUB topic a", "deny ALL topic salaries"]),
        (["allow PUB,SUB topic a", "allow PUB topic b"], "remove shop PUB --topic a", ["allow SUB topic a", "allow PUB topic b"]),
        (["allow PUB topic a", "deny SUB topic a", "allow PUB topic a*"], "remove shop --topic a", ["allow PUB topic a*"]),
        (["allow ALL topic a"], "remove shop ALL --topic a", []),
    ],
)  # fmt: skip
def test_grants_are_added_to_and_taken_from_what_is_there(before: list[str], words: str, after: list[str]) -> None:
    """Read, changed, and written only if nobody else has changed it."""
    cluster = Cluster(*before)
    done, _ = run(cluster, *words.split())
    assert done.exit_code == 0, done.output
    assert shown(cluster) == after
    assert cluster.sent[-1]["version"] == 3


def test_a_change_between_read_and_write_is_read_again() -> None:
    """A few times, then it is told."""
    cluster = Cluster(races=2)
    done, _ = run(cluster, "grant", "shop", "PUB", "--topic", "orders")
    assert (done.exit_code, [each["version"] for each in cluster.sent]) == (0, [3, 4, 5])
    done, _ = run(Cluster(races=99), "grant", "shop", "PUB", "--topic", "orders")
    assert done.exit_code == 1
    assert "The principal has changed" in done.stderr


def test_a_principal_is_created_by_its_first_grant_and_needs_a_key() -> None:
    """Version 0: only if it is still not there."""

    def empty(asked: Asked) -> Reply:
        if asked.method == "GET":
            return refused(PrincipalNotFound(principal="new"))
        return said(
            {"principal": "new", "version": 1, "grants": json.loads(asked.body)["grants"], "created": True}, 201
        )

    done, asked = run(empty, "grant", "new", "PUB", "--topic", "orders")
    assert json.loads(asked[1].body)["version"] == 0
    assert "ternmq key create new" in done.stdout
    done, asked = run(empty, "remove", "new", "--topic", "orders")
    assert (done.exit_code, len(asked)) == (1, 1)


def test_a_principal_is_removed_altogether_when_it_is_sure() -> None:
    """With its keys; nothing else may be named then."""
    done, asked = run(lambda _: said({}, 204), "remove", "shop", "--all", "--yes")
    assert (done.exit_code, [(each.method, each.path) for each in asked]) == (0, [("DELETE", "/v1/principals/shop")])
    assert run(Cluster(), "remove", "shop", "--all")[1] == []
    assert run(Cluster(), "remove", "shop", "--all", "--topic", "x")[0].exit_code == 2


@pytest.mark.parametrize(
    ("words", "may", "because"),
    [
        ("check shop PUB --topic orders", True, "allow PUB topic ord*"),
        ("check shop describe --topic orders", True, "allow PUB topic ord*"),
        ("check shop PUB --topic orders-old", False, "deny PUB topic orders-old"),
        ("check shop SUB --topic orders", False, "No grant speaks of it"),
        ("check shop ADMIN --cluster", False, "No grant speaks of it"),
        ("check root ADMIN --cluster", True, "Root"),
        ("check root PUB --topic orders", False, "Root"),
    ],
)
def test_a_decision_is_explained(words: str, may: bool, because: str) -> None:
    """As the proxy decides; the exit code says it to scripts."""
    done, _ = run(Cluster("allow PUB topic ord*", "deny PUB topic orders-old"), *words.split())
    assert done.exit_code == (0 if may else 1), done.output
    assert because in done.stdout
    done, _ = run(Cluster("allow PUB topic ord*", "deny PUB topic orders-old"), *words.split(), "-o", "json")
    assert json.loads(done.stdout)["allowed"] is may


def test_grants_are_listed_with_their_principals() -> None:
    """All, or those of a topic; a principal that is not there is told from one without grants."""
    rows = [{"principal": name, **lines("allow PUB,SUB topic ord*")[0].document()} for name in ("a", "b")]
    page = said({"acls": rows, "next_cursor": ""})
    done, asked = run(lambda _: page, "ls", "--topic", "orders")
    assert "PUB,SUB" in done.stdout
    assert asked[0].path == "/v1/acls?limit=1000&topic=orders"
    done, _ = run(lambda _: page, "ls", "b", "-o", "json")
    assert json.loads(done.stdout) == rows[1:]
    done, _ = run(lambda asked: page if "acls" in asked.path else refused(PrincipalNotFound(principal="c")), "ls", "c")
    assert done.exit_code == 1


def test_a_quota_is_shown_and_changed() -> None:
    """What is not named stays."""
    cluster = Cluster()
    done, _ = run(cluster, "quota", "shop", "-o", "json")
    assert json.loads(done.stdout) == {"principal": "shop", "requests_per_s": 5, "bytes_per_s": 0}
    assert cluster.sent == []
    run(cluster, "quota", "shop", "--requests-per-s", "0")
    assert cluster.sent == [{"requests_per_s": 0}]


@pytest.mark.parametrize(
    "words",
    [
        "grant shop PUB",
        "grant shop --topic orders",
        "grant shop PUB --producer --topic orders",
        "grant shop --producer --group g",
        "grant shop --consumer --cluster",
        "grant shop TXN --topic orders",
        "grant shop PUB --topic a*b",
        "grant root PUB --topic a",
        "deny shop --topic a",
        "remove shop",
        "check shop PUB --topic a --group b",
        "check shop PUB --topic a*",
        "check shop ALL --topic a",
        "check shop FLY --topic a",
    ],
)
def test_what_means_nothing_is_exit_code_2(words: str) -> None:
    """With a sentence that says what to write."""
    done, asked = run(Cluster(), *words.split())
    assert done.exit_code == 2, done.output
    assert not [each for each in asked if each.method != "GET"]


def test_part_of_all_is_not_taken_away() -> None:
    """Which would grant less or more than anybody asked for."""
    with pytest.raises(CommandFailed):
        with_less(lines("allow ALL topic a"), ["PUB"], {"topic": ["a"]})
    assert with_more(lines("allow PUB topic a"), lines("deny PUB topic a")) == lines(
        "allow PUB topic a", "deny PUB topic a"
    )
