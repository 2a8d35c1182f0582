"""What principals may do: grants read, patterns, and decisions."""

from typing import Any

import pytest

from tern_wire.errors import InvalidField
from tern_wire.limits import GRANTS_PER_PRINCIPAL_MAX
from tern_wire.principals.client_keys import ClientKey
from tern_wire.principals.principals import (
    ACTIONS,
    ACTIONS_OF,
    ALL,
    KINDS,
    ROOT,
    Grant,
    Principal,
    PrincipalTable,
    allows_some,
    check_grants,
    check_principal,
    decide,
    deciding,
    is_denied,
    is_permitted,
    principal_number,
    read_grant,
)


def grants(*lines: str) -> tuple[Grant, ...]:
    """`allow PUB,DESCRIBE topic orders*` and so on."""
    words = [line.split() for line in lines]
    return tuple(read_grant(effect, actions.split(","), kind, pattern) for effect, actions, kind, pattern in words)


def shop(*lines: str) -> Principal:
    """A principal with those grants."""
    return Principal(name="shop", grants=grants(*lines))


@pytest.mark.parametrize(
    ("lines", "asked", "may"),
    [
        ((), "PUB topic orders", False),
        (("allow PUB topic orders",), "PUB topic orders", True),
        (("allow PUB topic orders",), "PUB topic orders2", False),
        (("allow PUB topic orders",), "SUB topic orders", False),
        (("allow PUB topic orders",), "PUB group orders", False),
        (("allow PUB topic orders*",), "PUB topic orders", True),
        (("allow PUB topic orders*",), "PUB topic orders-eu", True),
        (("allow PUB topic orders*",), "PUB topic order", False),
        (("allow PUB topic *",), "PUB topic anything", True),
        (("allow PUB topic shop%*",), "PUB topic shop%orders", True),
        (("allow ALL topic orders",), "DELETE topic orders", True),
        (("allow ALL topic *",), "ACK group billing", False),
        (("allow ALL topic *", "deny PUB topic orders"), "PUB topic orders", False),
        (("allow PUB topic orders", "deny PUB topic *"), "PUB topic orders", False),
        (("allow PUB topic orders", "deny ALL topic ord*"), "PUB topic orders", False),
        (("allow PUB topic orders", "deny SUB topic orders"), "PUB topic orders", True),
        (("allow ADMIN cluster *",), "ADMIN cluster", True),
        (("allow ADMIN cluster *",), "AUDIT cluster", False),
        (("allow ALL cluster *",), "AUDIT cluster", True),
        (("allow ALL cluster *",), "PUB topic orders", False),
    ],
)
def test_what_is_not_allowed_is_denied_and_a_denial_wins(lines: tuple[str, ...], asked: str, may: bool) -> None:
    """Literal names and prefixes; in whatever order the grants stand."""
    action, kind, *name = asked.split()
    for ordered in (lines, lines[::-1]):
        assert decide(shop(*ordered), action, kind, *name) is may
        assert is_permitted(shop(*ordered), action, kind, *name) is may


@pytest.mark.parametrize(
    ("lines", "sees"),
    [
        (("allow PUB topic orders",), True),
        (("allow ALTER topic ord*",), True),
        (("allow CREATE topic orders",), False),
        (("allow LIST topic orders",), False),
        (("allow DESCRIBE topic orders",), True),
        (("allow PUB topic orders", "deny DESCRIBE topic orders"), False),
        (("allow PUB topic orders", "deny ALL topic orders"), False),
        (("allow PUB topic orders", "deny PUB topic orders"), False),
        (("allow PUB,SUB topic orders", "deny PUB topic orders"), True),
    ],
)
def test_whoever_may_use_a_thing_sees_it_unless_that_is_denied(lines: tuple[str, ...], sees: bool) -> None:
    """Implied DESCRIBE, which `decide` alone does not know; who may create a thing does not learn whether it is there."""
    assert is_permitted(shop(*lines), "DESCRIBE", "topic", "orders") is sees
    assert decide(shop(*lines), "DESCRIBE", "topic", "orders") is (lines == ("allow DESCRIBE topic orders",))


def test_root_manages_everything_and_never_sends_or_receives() -> None:
    """Whatever the name."""
    for kind in KINDS:
        for action in ("ADMIN", "AUDIT", "CREATE", "ALTER", "DELETE", "DESCRIBE", "LIST"):
            assert decide(ROOT, action, kind, "orders")
        for action in ("PUB", "SUB", "ACK", "SEEK", "TXN"):
            assert not decide(ROOT, action, kind, "orders")


def test_a_denial_and_the_reasons_of_a_decision_can_be_asked_for() -> None:
    """What denies stands first; other grants are not named."""
    lines = ("allow PUB topic orders*", "deny PUB topic orders", "allow SUB topic orders", "allow PUB topic bills")
    assert [str(each) for each in deciding(shop(*lines), "PUB", "topic", "orders")] == [
        "deny PUB topic orders",
        "allow PUB topic orders*",
    ]
    assert is_denied(shop(*lines), "PUB", "topic", "orders")
    assert not is_denied(shop(*lines), "PUB", "topic", "orders2")
    assert not is_denied(shop(*lines), "SUB", "topic", "orders")


@pytest.mark.parametrize(
    ("effect", "actions", "kind", "pattern", "pointer"),
    [
        ("permit", ["PUB"], "topic", "x", "/effect"),
        ("allow", [], "topic", "x", "/actions"),
        ("allow", "PUB", "topic", "x", "/actions"),
        ("allow", ["pub"], "topic", "x", "/actions"),
        ("allow", ["TXN"], "topic", "x", "/actions"),
        ("allow", ["PUB"], "group", "x", "/actions"),
        ("allow", [["PUB"]], "topic", "x", "/actions"),
        ("allow", ["PUB"] * 13, "topic", "x", "/actions"),
        ("allow", ["PUB"], "queue", "x", "/kind"),
        ("allow", ["PUB"], ["topic"], "x", "/kind"),
        ("allow", ["PUB"], "topic", "", "/pattern"),
        ("allow", ["PUB"], "topic", "a*b", "/pattern"),
        ("allow", ["PUB"], "topic", "**", "/pattern"),
        ("allow", ["PUB"], "topic", "a b", "/pattern"),
        ("allow", ["PUB"], "topic", "x\n", "/pattern"),
        ("allow", ["PUB"], "topic", "x" * 128, "/pattern"),
        ("allow", ["PUB"], "topic", None, "/pattern"),
        ("allow", ["ADMIN"], "cluster", "mine", "/pattern"),
    ],
)
def test_a_grant_that_means_nothing_is_refused(
    effect: Any, actions: Any, kind: Any, pattern: Any, pointer: str
) -> None:
    """With a pointer to what is not allowed."""
    with pytest.raises(InvalidField) as refused:
        read_grant(effect, actions, kind, pattern, "/grants/3")
    assert refused.value.fields["pointer"] == f"/grants/3{pointer}"


def test_grants_have_one_form() -> None:
    """Actions in their order, ALL instead of others, no line twice, at most so many."""
    (one,) = check_grants(
        [read_grant("allow", ["SUB", "PUB", "PUB"], "topic", "x"), read_grant("allow", ["PUB", "SUB"], "topic", "x")]
    )
    assert one.actions == ("PUB", "SUB")
    assert read_grant("deny", ["PUB", ALL], "topic", "x").actions == (ALL,)
    many = [read_grant("allow", ["PUB"], "topic", f"t{number}") for number in range(GRANTS_PER_PRINCIPAL_MAX + 1)]
    assert len(check_grants(many[1:])) == GRANTS_PER_PRINCIPAL_MAX
    with pytest.raises(InvalidField):
        check_grants(many)


def test_every_action_belongs_to_a_kind() -> None:
    """Otherwise nobody could be granted it."""
    assert frozenset().union(*ACTIONS_OF.values()) == set(ACTIONS)
    assert ACTIONS_OF.keys() == set(KINDS)


@pytest.mark.parametrize("name", ["", "root", "anonymous", "a b", "-x", "a/b", "ü", "x" * 65, "x\n", None, 7])
def test_what_is_no_principals_name_is_refused(name: Any) -> None:
    """Also the names that stand for somebody."""
    with pytest.raises(InvalidField):
        check_principal(name)


def test_a_table_finds_whose_a_key_is() -> None:
    """By its kid; a number stands for a principal where there is room for 8 bytes, and is never 0."""
    key = ClientKey(kid="k" * 16, digest=bytes(32))
    table = PrincipalTable.of([Principal(name="a"), Principal(name="b", keys=(key,))], 3)
    assert table.find("k" * 16) == (table.principals["b"], key)
    assert table.find("x" * 16) is None
    assert check_principal("ops@example.org") == "ops@example.org"
    numbers = {principal_number(f"p{number}") for number in range(1_000)}
    assert len(numbers) == 1_000
    assert all(0 < number < 1 << 63 for number in numbers)


@pytest.mark.parametrize(
    ("lines", "some"),
    [
        ((), False),
        (("allow PUB topic *",), False),
        (("allow SUB group *",), False),
        (("allow SUB topic orders",), True),
        (("allow ALL topic a*", "deny SUB topic a"), True),
        (("allow SUB topic a*", "deny SUB topic ab*"), True),
        (("allow SUB topic ab*", "deny ALL topic a*"), False),
        (("allow SUB topic orders", "deny SUB topic orders"), False),
        (("allow SUB topic *", "deny SUB topic *", "allow SUB topic orders"), False),
        (("allow SUB topic a", "deny SUB topic b*"), True),
    ],
)
def test_a_right_on_any_object_is_known_without_its_name(lines: tuple[str, ...], some: bool) -> None:
    """Where it says no, no name would get a yes."""
    assert allows_some(shop(*lines), "SUB", "topic") is some
    if not some:
        assert not any(decide(shop(*lines), "SUB", "topic", name) for name in ("a", "ab", "abc", "b", "orders"))
    assert allows_some(ROOT, "ADMIN", "topic")
