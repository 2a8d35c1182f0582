"""Requirements: the permissions that a route of the proxy requires of its caller. Pure.

Each row of the API (`routes/route.py`) has its requirements, and the guard checks them before the
handler runs. Tests verify that they match the behaviour.

A requirement is written `ACTION kind place`, optionally with a condition:

    PUB topic {topic}                   the name is in the path: checked before the handler
    DESCRIBE cluster                    there is one cluster
    TXN producer-group of the header    the name is in a header, the query, the body, or an id:
                                        checked where it is parsed
    ACK group {group} if it settles     as above: the handler evaluates the condition

Lists require nothing in advance: they show what the principal may LIST or DESCRIBE. Implied actions
are in `rights.py`. Reference: Kafka's table of operations and resources per request (DESCRIBE is
implied by READ, WRITE, ALTER and DELETE; a consumer needs READ of the topic and of the group);
RocketMQ's ACL 2.0 (Pub, Sub, Create, Update, Delete, Get, List of Cluster, Topic and Group).
"""

import re
from dataclasses import dataclass, field

from tern_wire.principals.principals import ACTIONS_OF, CLUSTER

_TEXT = re.compile(r"([A-Z]+) (cluster|topic|group|producer-group)(?: (\{\w+\}|of the [\w -]+?))?(?: if ([\w ,]+))?")


@dataclass(frozen=True, slots=True)
class Requirement:
    """Permission *action* on the *kind* with the name at *place*, optionally only under a
    *condition*.

    *place* is a hole of the path (`{topic}`) or a description; "" for the cluster.
    """

    action: str
    kind: str
    place: str = ""
    condition: str = ""

    @classmethod
    def parse(cls, text: str) -> "Requirement":
        """Parse the written form. Raise ValueError."""
        match = _TEXT.fullmatch(text)
        if match is None or (match[2] == CLUSTER) == bool(match[3]) or match[1] not in ACTIONS_OF[match[2]]:
            raise ValueError(f"'{text}' is not written as a requirement")
        return cls(match[1], match[2], match[3] or "", match[4] or "")

    def __str__(self) -> str:
        condition = f"if {self.condition}" if self.condition else ""
        return " ".join(part for part in (self.action, self.kind, self.place, condition) if part)

    @property
    def is_in_front(self) -> bool:
        """Whether the path alone determines the requirement."""
        return not self.condition and (self.kind == CLUSTER or self.place.startswith("{"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Requirements of one route.

    *is_admin*: every decision is audited. *is_anonymous*: no credentials are required. *is_stream*:
    its requests outlive a key.
    """

    method: str
    path: str
    requirements: tuple[Requirement, ...] = ()
    is_admin: bool = False
    is_anonymous: bool = False
    is_stream: bool = False
    # Requirements that the path determines, and the path segment of each name; -1 for the cluster.
    in_front: tuple[tuple[Requirement, int], ...] = field(init=False)
    # Paths contain only names of topics, groups and queues, so the same paths recur.
    is_cacheable: bool = field(init=False)

    def __post_init__(self) -> None:
        segments = self.path.split("/")
        front = tuple(
            (each, segments.index(each.place) if each.place else -1) for each in self.requirements if each.is_in_front
        )
        object.__setattr__(self, "in_front", front)
        holes = {segment for segment in segments if segment.startswith("{")}
        object.__setattr__(self, "is_cacheable", bool(front) and holes <= {"{topic}", "{group}", "{queue}"})
