"""The table of requirements: what every route of the proxy, hot or not, asks of the principal that calls it. Pure.

The guard looks a request up here before any handler sees it; a path that is not here is answered 404, whatever the application has, so a
route that nobody has declared is closed. Tests hold that the table and the routes are the same, and that what it says is what happens.

A requirement is written `ACTION kind place`, perhaps with a condition:

    PUB topic {topic}                         the name is in the path: checked in front of the handler
    DESCRIBE cluster                          there is one cluster
    TXN producer-group of the header          the name is in a header, the query, the body, or what an id names: checked where that is read
    ACK group {group} if it settles           as above: the handler knows whether

Lists ask nothing in front: they show what the principal may LIST or DESCRIBE. What an action implies is in `rights.py`.
Reference: Kafka's table of operations and resources per request (DESCRIBE is implied by READ, WRITE, ALTER and DELETE; a consumer needs READ of
the topic and of the group); RocketMQ's ACL 2.0 (Pub, Sub, Create, Update, Delete, Get, List of Cluster, Topic and Group).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tern_wire.principals.principals import ACTIONS_OF, CLUSTER

_TEXT = re.compile(r"([A-Z]+) (cluster|topic|group|producer-group)(?: (\{\w+\}|of the [\w -]+?))?(?: if ([\w ,]+))?")


@dataclass(frozen=True, slots=True)
class Requirement:
    """*action* on the *kind* whose name is at *place* (`{topic}` of the path, or in words; "" for the cluster), perhaps only on a *condition*."""

    action: str
    kind: str
    place: str = ""
    condition: str = ""

    @classmethod
    def parse(cls, text: str) -> "Requirement":
        """As it is written above; ValueError."""
        match = _TEXT.fullmatch(text)
        if match is None or (match[2] == CLUSTER) == bool(match[3]) or match[1] not in ACTIONS_OF[match[2]]:
            raise ValueError(f"'{text}' is not written as a requirement")
        return cls(match[1], match[2], match[3] or "", match[4] or "")

    def __str__(self) -> str:
        condition = f"if {self.condition}" if self.condition else ""
        return " ".join(part for part in (self.action, self.kind, self.place, condition) if part)

    @property
    def is_in_front(self) -> bool:
        """Whether the path alone tells what is asked for."""
        return not self.condition and (self.kind == CLUSTER or self.place.startswith("{"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What one route asks. *is_admin*: every decision about it is audited; *is_anonymous*: it needs no credentials."""

    method: str
    path: str
    requirements: tuple[Requirement, ...] = ()
    is_admin: bool = False
    is_anonymous: bool = False
    # Requirements of the path, and which segment of it has each one's name; -1 for the cluster.
    in_front: tuple[tuple[Requirement, int], ...] = field(init=False)
    # A path of it says no more than names of topics and groups, so the same path comes again and again.
    is_cacheable: bool = field(init=False)

    def __post_init__(self) -> None:
        segments = self.path.split("/")
        front = tuple(
            (each, segments.index(each.place) if each.place else -1) for each in self.requirements if each.is_in_front
        )
        object.__setattr__(self, "in_front", front)
        holes = {segment for segment in segments if segment.startswith("{")}
        object.__setattr__(self, "is_cacheable", bool(front) and holes <= {"{topic}", "{group}", "{queue}"})


def _rule(line: str, *requirements: str, is_admin: bool = False, is_anonymous: bool = False) -> Rule:
    method, path = line.split()
    parsed = tuple(Requirement.parse(text) for text in requirements)
    return Rule(method=method, path=path, requirements=parsed, is_admin=is_admin, is_anonymous=is_anonymous)


def _admin(line: str, *requirements: str) -> Rule:
    return _rule(line, *requirements, is_admin=True)


_T, _G, _PG = "/v1/topics/{topic}", "/v1/groups/{group}", "/v1/producer-groups/{producer_group}"
_PUB, _SUB, _SUB_GROUP = "PUB topic {topic}", "SUB topic {topic}", "SUB group {group}"
_SEE_TOPIC, _SEE_GROUP = "DESCRIBE topic {topic}", "DESCRIBE group {group}"
_CREATE_TOPIC = "CREATE topic {topic} if it is created by its first use"
_TXN_HEADER = "TXN producer-group of the header"
_CREATE_PRODUCER_GROUP = "CREATE producer-group of the header if it is created by its first use"
_ACK, _CLUSTER, _ADMIN = "ACK group {group}", "DESCRIBE cluster", "ADMIN cluster"

RULES: tuple[Rule, ...] = (
    # Messages. Whoever may read a topic may look for single messages in it; whoever may send to it may recall.
    _rule(f"POST {_T}/messages", _PUB, _CREATE_TOPIC),
    _rule(f"POST {_T}/messages/batch", _PUB, _CREATE_TOPIC),
    _rule(f"GET {_T}/messages", _SUB),
    _rule(f"GET {_T}/messages/{{message_id}}", _SUB),
    _rule(f"GET {_T}/queues/{{queue}}/messages", _SUB),
    _rule(
        f"POST {_T}/groups/{{group}}/receive",
        *(
            _SUB,
            _SUB_GROUP,
            "ACK group {group} if it settles",
            "CREATE group {group} if it is created by its first use",
        ),
    ),
    _rule(f"POST {_T}/groups/{{group}}/ack", _SUB, _ACK),
    _rule(f"POST {_T}/groups/{{group}}/settle", _SUB, _ACK),
    _rule("GET /v1/messages/{message_id}/trace", "DESCRIBE topic of the query"),
    _rule(f"GET {_T}/scheduled", _SEE_TOPIC),
    _rule(f"DELETE {_T}/scheduled/{{recall_handle}}", _PUB),
    # Request and reply. A reply is for whoever asked: the address names the principal, and nobody else finds it.
    _rule(f"POST {_T}/requests", _PUB, _CREATE_TOPIC),
    _rule(f"GET {_T}/requests/{{correlation_id}}", _PUB),
    _rule(f"POST {_T}/replies", _SUB),
    # Transactions.
    _rule(f"POST {_T}/transactions", _PUB, _TXN_HEADER, _CREATE_TOPIC, _CREATE_PRODUCER_GROUP),
    _rule(
        "POST /v1/transactions",
        *("PUB topic of the body", "TXN producer-group of the body"),
        *("CREATE topic of the body if it is created by its first use",),
        *("CREATE producer-group of the body if it is created by its first use",),
    ),
    _rule("POST /v1/transactions/{transaction_id}/commit", "TXN producer-group of the transaction"),
    _rule("POST /v1/transactions/{transaction_id}/rollback", "TXN producer-group of the transaction"),
    # By hand and against what the producers may say: an operator's, not a producer's.
    _admin("POST /v1/transactions/{transaction_id}/resolve", "ALTER producer-group of the transaction"),
    _rule("GET /v1/transactions/{transaction_id}", "DESCRIBE producer-group of the transaction"),
    _rule("GET /v1/transactions"),
    _rule(
        f"POST {_PG}/checks/receive",
        *("TXN producer-group {producer_group}",),
        *("CREATE producer-group {producer_group} if it is created by its first use",),
    ),
    _rule("GET /v1/producer-groups"),
    _rule(f"GET {_PG}", "DESCRIBE producer-group {producer_group}"),
    _admin(
        f"PUT {_PG}",
        *("CREATE producer-group {producer_group}", "ALTER producer-group {producer_group} if it names settings"),
    ),
    _admin(f"DELETE {_PG}", "DELETE producer-group {producer_group}"),
    # Topics. A PUT that names settings may change a topic that is there; with If-None-Match it cannot.
    _rule("GET /v1/topics"),
    _rule(f"GET {_T}", _SEE_TOPIC),
    _admin(f"PUT {_T}", "CREATE topic {topic}", "ALTER topic {topic} if it names settings"),
    _admin(f"PATCH {_T}", "ALTER topic {topic}"),
    _admin(f"DELETE {_T}", "DELETE topic {topic}"),
    _rule(f"GET {_T}/placement", _SEE_TOPIC),
    _admin(f"PUT {_T}/placement", "ALTER topic {topic}"),
    _rule(f"GET {_T}/route", _SEE_TOPIC),
    _rule(f"GET {_T}/offsets", _SEE_TOPIC),
    _rule(f"GET {_T}/stats", _SEE_TOPIC),
    # Groups.
    _rule("GET /v1/groups"),
    _rule(f"GET {_G}", _SEE_GROUP),
    _admin(f"PUT {_G}", "CREATE group {group}", "ALTER group {group} if it names settings"),
    _admin(f"PATCH {_G}", "ALTER group {group}"),
    _admin(f"DELETE {_G}", "DELETE group {group}"),
    _rule(f"GET {_G}/lag", _SEE_GROUP, "DESCRIBE topic of the query"),
    _rule(f"GET {_G}/offsets", _SEE_GROUP, "DESCRIBE topic of the query"),
    _rule(f"PUT {_G}/offsets", _ACK, "SUB topic of the body"),
    _admin(f"POST {_G}/seek", "SEEK group {group}", "DESCRIBE topic of the body"),
    # Members. A producer is a member of its producer group, which has the path of a group.
    _rule(
        f"POST {_G}/members/heartbeat",
        *("SUB group {group} if it is a consumer", "SUB topic of the body if it is a consumer"),
        *("TXN producer-group {group} if it is a producer",),
    ),
    _rule(
        f"GET {_G}/members",
        *("DESCRIBE group {group} if they are consumers", "DESCRIBE producer-group {group} if they are producers"),
    ),
    _rule(
        f"DELETE {_G}/members/{{member}}",
        *("SUB group {group} if it is a consumer", "TXN producer-group {group} if it is a producer"),
    ),
    _rule(f"GET {_G}/assignments", _SEE_GROUP, "DESCRIBE topic of the query"),
    _rule(f"GET {_G}/locks", _SEE_GROUP, "DESCRIBE topic of the query"),
    _rule(f"POST {_G}/locks", _SUB_GROUP, "SUB topic of the body"),
    _rule(f"DELETE {_G}/locks", _SUB_GROUP, "SUB topic of the query"),
    # Dead letters. Bodies are shown to those alone who may SUB the group; a redrive goes to the group that has them, and to nobody else.
    _rule(f"GET {_G}/dlq", _SEE_GROUP),
    _admin(f"DELETE {_G}/dlq", "DELETE group {group}"),
    _admin(f"POST {_G}/dlq/redrive", "SEEK group {group}", "DESCRIBE topic of the body if it names one"),
    _rule("GET /v1/tasks/{task}", "DESCRIBE group of the task"),
    _admin("DELETE /v1/tasks/{task}", "SEEK group of the task"),
    # The cluster.
    _rule("GET /v1/cluster", _CLUSTER),
    # Topics of all namespaces are named, and what is declared is everybody's: an administrator's.
    _admin("GET /v1/broker-groups/{broker_group}", _ADMIN),
    _admin("GET /v1/broker-groups/{broker_group}/topics", _ADMIN),
    _admin("POST /v1/broker-groups/{broker_group}/join", _ADMIN),
    _rule("GET /metrics", _CLUSTER),
    _rule("GET /readyz", _CLUSTER),
    _rule("GET /healthz", is_anonymous=True),
    _rule("GET /openapi.json"),
    _rule("HEAD /openapi.json"),
    # Principals.
    _rule("GET /v1/whoami"),
    _admin("GET /v1/principals", _CLUSTER),
    _admin("GET /v1/principals/{principal}", _CLUSTER),
    _admin("PUT /v1/principals/{principal}", _ADMIN),
    _admin("DELETE /v1/principals/{principal}", _ADMIN),
    _admin("POST /v1/principals/{principal}/keys", _ADMIN),
    _admin("DELETE /v1/principals/{principal}/keys/{kid}", _ADMIN),
    _admin("GET /v1/acls", _CLUSTER),
)


class RouteTable:
    """Finds the rule of a request. Immutable."""

    __slots__ = ("_root",)

    def __init__(self, rules: tuple[Rule, ...] = RULES) -> None:
        self._root = _Node()
        for rule in rules:
            node = self._root
            for segment in rule.path.split("/")[1:]:
                node = node.child(segment)
            if rule.method in node.rules:
                raise ValueError(f"{rule.method} {rule.path} is declared twice")
            node.rules[rule.method] = rule

    def find(self, method: str, path: str) -> tuple[Rule | None, tuple[str, ...]]:
        """The rule of *path* (decoded, as the application gets it), or None and the methods that the path has: none, if there is no such path."""
        known: set[str] = set()
        for rules in self._root.walk(path.split("/"), 1):
            if method in rules:
                return rules[method], ()
            known |= rules.keys()
        return None, tuple(sorted(known))


class _Node:
    """One segment of all paths that begin alike."""

    __slots__ = ("hole", "named", "rules")

    def __init__(self) -> None:
        self.named: dict[str, _Node] = {}
        self.hole: _Node | None = None
        self.rules: dict[str, Rule] = {}

    def child(self, segment: str) -> "_Node":
        """The node behind *segment*, made if need be."""
        if segment.startswith("{"):
            self.hole = self.hole or _Node()
            return self.hole
        return self.named.setdefault(segment, _Node())

    def walk(self, segments: list[str], at: int) -> "Iterator[Mapping[str, Rule]]":
        """Rules of every template that *segments* fit, those with fixed words first. Empty segments fit nothing."""
        if at == len(segments):
            if self.rules:
                yield self.rules
            return
        named = self.named.get(segments[at])
        if named is not None:
            yield from named.walk(segments, at + 1)
        if self.hole is not None and segments[at]:
            yield from self.hole.walk(segments, at + 1)
