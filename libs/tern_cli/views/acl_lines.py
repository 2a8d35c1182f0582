"""Grants of `ternmq acl`: made from its options, added to a list, removed from it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tern_cli.failures import CommandFailed
from tern_wire.principals.principals import (
    ACK,
    ALL,
    ALLOW,
    CLUSTER,
    GROUP,
    PRODUCER_GROUP,
    PUB,
    SUB,
    TOPIC,
    TXN,
    Grant,
    Principal,
    read_grant,
)

# Kind -> names or patterns, in the words of the options.
Objects = Mapping[str, Sequence[str]]
# Actions that a producer and a consumer need, by kind of object.
PRODUCER: Mapping[str, tuple[str, ...]] = {TOPIC: (PUB,), PRODUCER_GROUP: (TXN,)}
CONSUMER: Mapping[str, tuple[str, ...]] = {TOPIC: (SUB,), GROUP: (SUB, ACK)}
_OPTIONS = {TOPIC: "--topic", GROUP: "--group", PRODUCER_GROUP: "--producer-group", CLUSTER: "--cluster"}


def objects_of(
    topics: Sequence[str] | None, groups: Sequence[str] | None, producer_groups: Sequence[str] | None, *, cluster: bool
) -> Objects:
    """Return the objects that a command's options name; CommandFailed when there are none."""
    found = {TOPIC: topics, GROUP: groups, PRODUCER_GROUP: producer_groups, CLUSTER: ("*",) if cluster else ()}
    objects = {kind: tuple(names) for kind, names in found.items() if names}
    if not objects:
        detail = "Name at least one of --topic, --group, --producer-group, --cluster. A name may end with '*'."
        raise CommandFailed("Of what?", detail, exit_code=2)
    return objects


def actions_of(text: str) -> tuple[str, ...]:
    """Return the actions in a text such as `PUB,SUB`, in any case."""
    return tuple(word.strip().upper() for word in text.split(",") if word.strip())


def wanted(effect: str, actions: Sequence[str], objects: Objects) -> list[Grant]:
    """Return grants of *actions* on *objects*; InvalidField when a kind has no such action."""
    return [read_grant(effect, list(actions), kind, name) for kind, names in objects.items() for name in names]


def of_role(role: Mapping[str, tuple[str, ...]], objects: Objects, *, word: str) -> list[Grant]:
    """Return the grants that a producer or a consumer needs on *objects*.
    CommandFailed when the role does not apply to one of the kinds.
    """
    for kind in objects:
        if kind not in role:
            known = " and ".join(_OPTIONS[each] for each in role)
            raise CommandFailed(
                "That does not fit", f"{word} goes with {known}, not with {_OPTIONS[kind]}.", exit_code=2
            )
    return [grant for kind, names in objects.items() for grant in wanted(ALLOW, role[kind], {kind: names})]


def with_more(grants: Iterable[Grant], more: Iterable[Grant]) -> list[Grant]:
    """Return *grants* and *more*, merged into one line per effect, kind and pattern."""
    actions: dict[tuple[str, str, str], list[str]] = {}
    for grant in (*grants, *more):
        actions.setdefault((grant.effect, grant.kind, grant.pattern), []).extend(grant.actions)
    return [
        read_grant(effect, list(dict.fromkeys(words)), kind, pattern)
        for (effect, kind, pattern), words in actions.items()
    ]


def with_less(grants: Iterable[Grant], actions: Sequence[str], objects: Objects) -> list[Grant]:
    """Return *grants* without *actions* (none: all) on exactly these patterns.
    Both allowing and denying grants are reduced. CommandFailed when an ALL would have to be split.
    """
    left: list[Grant] = []
    for grant in grants:
        if grant.pattern not in objects.get(grant.kind, ()):
            left.append(grant)
            continue
        if not actions:
            continue
        if ALL in grant.actions and ALL not in actions:
            detail = f"'{grant}' stands for every action. Remove ALL, and grant the actions that should stay."
            raise CommandFailed("Part of ALL cannot be removed", detail, exit_code=2)
        words = [action for action in grant.actions if action not in actions]
        if words:
            left.append(read_grant(grant.effect, words, grant.kind, grant.pattern))
    return left


def grants_in(document: Mapping[str, Any]) -> list[Grant]:
    """Return the grants in the API's document of a principal."""
    return [read_grant(one["effect"], one["actions"], one["kind"], one["pattern"]) for one in document["grants"]]


def principal_in(document: Mapping[str, Any]) -> Principal:
    """Return the principal in the API's document, for access decisions."""
    return Principal(name=document["principal"], grants=tuple(grants_in(document)))
