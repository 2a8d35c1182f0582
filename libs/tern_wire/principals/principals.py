"""Principals: the identity of a client, its grants, and the one function that decides. Pure.

The proxy enforces the decision, the command line explains it.

A grant allows or denies actions on the objects of one kind whose name is its pattern, or begins
with the text before its `*`:

    allow PUB,DESCRIBE topic orders     deny PUB topic orders-audit-*
    allow ALL group *                   allow ADMIN cluster

`decide`: an action without a grant is denied; a deny wins over every allow, however specific.
`is_permitted`: a principal that may use or change an object may also DESCRIBE it, unless a grant
denies that. ALL stands for every action of the kind. The cluster is one object, with the pattern
`*`. Root, the holder of the root key, manages everything and never sends or receives: an
all-powerful key has no place in clients.
Reference: Kafka's ACLs (deny wins, READ and WRITE imply DESCRIBE, literal and prefixed patterns);
RocketMQ's ACL 2.0 (actions and resources).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from tern_wire.errors import InvalidField
from tern_wire.limits import GRANTS_PER_PRINCIPAL_MAX, PRINCIPAL_NAME_LENGTH_MAX
from tern_wire.principals.client_keys import ClientKey

CLUSTER, TOPIC, GROUP, PRODUCER_GROUP = KINDS = ("cluster", "topic", "group", "producer-group")
PUB, SUB, ACK, SEEK, CREATE, ALTER, DELETE, DESCRIBE, LIST, TXN, ADMIN, AUDIT = ACTIONS = (
    *("PUB", "SUB", "ACK", "SEEK", "CREATE", "ALTER", "DELETE", "DESCRIBE", "LIST", "TXN", "ADMIN", "AUDIT"),
)
ALL = "ALL"
_MANAGING = (CREATE, ALTER, DELETE, DESCRIBE, LIST)
# The actions of each kind; a grant of another one would have no effect.
ACTIONS_OF: Mapping[str, frozenset[str]] = {
    CLUSTER: frozenset({DESCRIBE, ADMIN, AUDIT}),
    TOPIC: frozenset({*_MANAGING, PUB, SUB}),
    GROUP: frozenset({*_MANAGING, SUB, ACK, SEEK}),
    PRODUCER_GROUP: frozenset({*_MANAGING, TXN}),
}
# Not CREATE and LIST: they do not show whether an object exists.
DESCRIBING = frozenset({PUB, SUB, ACK, SEEK, ALTER, DELETE, TXN, ADMIN})
ROOT_ACTIONS = frozenset({*_MANAGING, ADMIN, AUDIT})
ALLOW, DENY = EFFECTS = ("allow", "deny")
ROOT_NAME = "root"
# Names with a meaning in logs and answers.
RESERVED_NAMES = frozenset({ROOT_NAME, "anonymous"})

PRINCIPAL_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._@-]{{0,{PRINCIPAL_NAME_LENGTH_MAX - 1}}}"
_NAME = re.compile(PRINCIPAL_PATTERN)
# Names with a namespace in front, and internal ones, have a `%`.
_OBJECT_PATTERN = re.compile(r"(?=.)[A-Za-z0-9_%-]{0,127}\*?")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Grant:
    """One rule that allows or denies. *actions* may hold ALL; *pattern*: a name, or `prefix*`."""

    effect: str
    kind: str
    pattern: str
    actions: tuple[str, ...]

    def is_of(self, kind: str, name: str) -> bool:
        """Whether it applies to the *kind* called *name* (any name, for the cluster)."""
        if self.kind != kind:
            return False
        if self.pattern.endswith("*"):
            return kind == CLUSTER or name.startswith(self.pattern[:-1])
        return name == self.pattern

    def covers(self, other: "Grant") -> bool:
        """Whether it applies to all objects of its kind that *other* applies to."""
        return self.pattern == other.pattern or (
            self.pattern.endswith("*") and other.pattern.rstrip("*").startswith(self.pattern[:-1])
        )

    def names(self, action: str) -> bool:
        """Whether it names *action*."""
        return action in self.actions or ALL in self.actions

    @property
    def describes(self) -> bool:
        """Whether its actions imply DESCRIBE."""
        return not DESCRIBING.isdisjoint(self.actions)

    def document(self) -> dict[str, Any]:
        """The grant in the form of the HTTP API."""
        return {"effect": self.effect, "actions": list(self.actions), "kind": self.kind, "pattern": self.pattern}

    def __str__(self) -> str:
        return f"{self.effect} {','.join(self.actions)} {self.kind} {self.pattern}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The identity of a client.

    Quotas are per proxy; 0: unlimited. *keys* include expired and future ones.
    """

    name: str
    grants: tuple[Grant, ...] = ()
    keys: tuple[ClientKey, ...] = ()
    requests_per_s: int = 0
    bytes_per_s: int = 0
    is_root: bool = False

    @property
    def number(self) -> int:
        """A number for places with room for 8 bytes, such as transaction ids; never 0 (none)."""
        return principal_number(self.name)


ROOT = Principal(name=ROOT_NAME, is_root=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalTable:
    """All principals of a proxy, and the owner of each key.

    Immutable: a change makes a new table, in which unchanged principals are the same objects.
    *version* grows with every change.
    """

    version: int = 0
    principals: Mapping[str, Principal] = field(default_factory=dict)
    by_kid: Mapping[str, tuple[Principal, ClientKey]] = field(default_factory=dict)

    @classmethod
    def of(cls, principals: Iterable[Principal], version: int) -> "PrincipalTable":
        """The table of *principals*."""
        named = {principal.name: principal for principal in principals}
        by_kid = {key.kid: (principal, key) for principal in named.values() for key in principal.keys}
        return cls(version=version, principals=named, by_kid=by_kid)

    def find(self, kid: str) -> tuple[Principal, ClientKey] | None:
        """Return the key and its principal; None for an unknown key.

        The key itself decides whether it is good at this time and from this address.
        """
        return self.by_kid.get(kid)


def decide(principal: Principal, action: str, kind: str, name: str = "") -> bool:
    """Whether the grants of *principal* allow *action* on the *kind* with exactly this *name*."""
    if principal.is_root:
        return action in ROOT_ACTIONS
    is_allowed = False
    for grant in principal.grants:
        if grant.is_of(kind, name):
            is_named = grant.names(action)
            if grant.effect == DENY and is_named:
                return False
            is_allowed |= grant.effect == ALLOW and is_named
    return is_allowed


def allows_some(principal: Principal, action: str, kind: str) -> bool:
    """Whether the grants of *principal* allow *action* on any *kind* at all.

    For what has its object's name only behind a question to a broker: False spares the question.
    """
    if principal.is_root:
        return action in ROOT_ACTIONS
    named = [grant for grant in principal.grants if grant.kind == kind and grant.names(action)]
    denials = [grant for grant in named if grant.effect == DENY]
    return any(grant.effect == ALLOW and not any(each.covers(grant) for each in denials) for grant in named)


def is_permitted(principal: Principal, action: str, kind: str, name: str = "") -> bool:
    """Whether the proxy permits the action: `decide`, and the DESCRIBE that other actions imply."""
    is_said = decide(principal, action, kind, name)
    if is_said or action != DESCRIBE or is_denied(principal, action, kind, name):
        return is_said
    return any(decide(principal, other, kind, name) for other in sorted(DESCRIBING))


def is_denied(principal: Principal, action: str, kind: str, name: str = "") -> bool:
    """Whether a grant of *principal* denies the action, whatever others allow."""
    return any(grant.effect == DENY and grant.names(action) and grant.is_of(kind, name) for grant in principal.grants)


def deciding(principal: Principal, action: str, kind: str, name: str = "") -> Iterator[Grant]:
    """The grants behind the answer of `is_permitted`, denials first."""
    applying = [grant for grant in principal.grants if grant.is_of(kind, name)]
    yield from (grant for grant in applying if grant.effect == DENY and grant.names(action))
    yield from (
        grant
        for grant in applying
        if grant.effect == ALLOW and (grant.names(action) or (action == DESCRIBE and grant.describes))
    )


def principal_number(name: str) -> int:
    """Return a 63-bit number for the principal *name*, the same at every proxy; never 0."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") >> 1 or 1


# Reading ------------------------------------------------------------------------------------------
def check_principal(name: Any, pointer: str = "path/principal") -> str:
    """Return *name*; raise InvalidField unless it is valid.

    A name is 1 to 64 letters, digits or `._@-`, the first a letter or digit, and not reserved.
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or name in RESERVED_NAMES:
        reason = (
            f"'{str(name)[:80]}' is no principal. Use 1 to {PRINCIPAL_NAME_LENGTH_MAX} letters, digits or '._@-', beginning with a "
            f"letter or digit; {' and '.join(sorted(RESERVED_NAMES))} are taken"
        )
        raise InvalidField(reason=reason, pointer=pointer)
    return name


def read_grant(effect: Any, actions: Any, kind: Any, pattern: Any, pointer: str = "") -> Grant:
    """Return the grant with its actions in their usual order.

    InvalidField below *pointer* for a wrong part.
    """
    if effect not in EFFECTS:
        raise InvalidField(reason=f"'effect' is one of {', '.join(EFFECTS)}", pointer=f"{pointer}/effect")
    if kind not in KINDS:
        raise InvalidField(reason=f"'kind' is one of {', '.join(KINDS)}", pointer=f"{pointer}/kind")
    known = ACTIONS_OF[kind]
    if not isinstance(actions, list | tuple) or not actions or len(actions) > len(ACTIONS):
        raise InvalidField(reason="'actions' is a list with at least one", pointer=f"{pointer}/actions")
    for action in actions:
        if not isinstance(action, str) or (action != ALL and action not in known):
            usual = ", ".join(action for action in ACTIONS if action in known)
            reason = f"'{str(action)[:20]}' cannot be done with a {kind}; use ALL or some of {usual}"
            raise InvalidField(reason=reason, pointer=f"{pointer}/actions")
    if not isinstance(pattern, str) or _OBJECT_PATTERN.fullmatch(pattern) is None:
        reason = f"'{str(pattern)[:140]}' is no pattern: write a name, the begin of names and '*', or '*'"
        raise InvalidField(reason=reason, pointer=f"{pointer}/pattern")
    if kind == CLUSTER and pattern != "*":
        raise InvalidField(reason="There is one cluster: its pattern is '*'", pointer=f"{pointer}/pattern")
    ordered = (ALL,) if ALL in actions else tuple(action for action in ACTIONS if action in actions)
    return Grant(effect=effect, kind=kind, pattern=pattern, actions=ordered)


def check_grants(grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """*grants* without repetitions, in one order; InvalidField when they are too many."""
    found = tuple(sorted(set(grants)))
    if len(found) > GRANTS_PER_PRINCIPAL_MAX:
        raise InvalidField(
            reason=f"A principal has at most {GRANTS_PER_PRINCIPAL_MAX} grants; use prefixes", pointer="/grants"
        )
    return found
