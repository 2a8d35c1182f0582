"""What one principal may do: its grants, and what the mesh's own topics ask instead. Answers are remembered. Pure.

    SUB and DESCRIBE of the audit topic     ask AUDIT of the cluster, and nobody may send to it, change it or delete it
    SUB and DESCRIBE of a dead-letter topic ask the same of its group, and nobody may send to it

What a principal may not DESCRIBE is refused as if it were not there, with the same error; what it may see, with `forbidden`. A right to make
something says nothing about whether it is there, so that one is always `forbidden`. Lists show what may be listed or described.

Reference: tern_wire.principals (`is_permitted`), whose DESCRIBE is implied as Kafka's is.
"""

from hashlib import blake2b

from tern_proxy.core.requirements import Rule
from tern_wire.dead_letters import PREFIX
from tern_wire.errors import Forbidden, GroupNotFound, ProducerGroupNotFound, TernError, TopicNotFound
from tern_wire.principals import (
    AUDIT,
    CLUSTER,
    CREATE,
    DESCRIBE,
    GROUP,
    LIST,
    SUB,
    TOPIC,
    Principal,
    is_denied,
    is_permitted,
)

# Answers and paths that are remembered for one principal, 200 bytes each; full means forgotten, and looked up again.
ANSWERS_KEPT_MAX = 8_192
AUDIT_TOPIC_END = "_AUDIT_TOPIC"
_SHOWN_LENGTH_MAX = 160
_READING = frozenset({SUB, DESCRIBE, LIST})
# Asked of the answers only: stands in lists.
_SEEN = "(seen)"


class Access:
    """One principal as of one version of its grants. Owner: the event loop. *seal*: a key for what is derived from the principal's name."""

    __slots__ = ("_answers", "_audit_topic", "_seal", "passed", "principal")

    def __init__(self, principal: Principal, *, audit_topic: str, seal: bytes) -> None:
        self.principal = principal
        self._audit_topic, self._seal = audit_topic, seal
        self._answers: dict[tuple[str, str, str], bool] = {}
        # Rules of requests that were let through on their path alone, by method and path.
        self.passed: dict[tuple[str, str], Rule] = {}

    def may(self, action: str, kind: str, name: str = "") -> bool:
        """Whether the principal may do *action* to the *kind* of that *name* (of the cluster it says nothing)."""
        asked = (action, kind, name)
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._keep(asked, self._decide(action, kind, name))
        return answer

    def sees(self, kind: str, name: str) -> bool:
        """Whether it stands in lists for the principal."""
        asked = (_SEEN, kind, name)
        answer = self._answers.get(asked)
        if answer is None:
            is_hidden = is_denied(self.principal, LIST, kind, name)
            answer = self.may(LIST, kind, name) or (self.may(DESCRIBE, kind, name) and not is_hidden)
            self._keep(asked, answer)
        return answer

    def refusal(self, action: str, kind: str, name: str) -> TernError | None:
        """Why the principal may not, as it is told; None if it may."""
        if self.may(action, kind, name):
            return None
        if kind != CLUSTER and action != CREATE and not self.may(DESCRIBE, kind, name):
            return missing(kind, name)
        shown = f"{kind} '{name[:_SHOWN_LENGTH_MAX]}'" if kind != CLUSTER else "the cluster"
        return Forbidden(required_permission=f"{action} of {shown}")

    def pass_path(self, method: str, path: str, rule: Rule) -> None:
        """Remember that such a request needs no more looks."""
        if len(self.passed) >= ANSWERS_KEPT_MAX:
            self.passed.clear()
        self.passed[method, path] = rule

    def client(self, client: str) -> str:
        """The id under which replies to *client* of this principal are kept: nobody else's client has it, and nobody can guess it."""
        named = f"{self.principal.name}\0{client}".encode("utf-8", "surrogateescape")
        return blake2b(named, key=self._seal, digest_size=16).hexdigest()

    def _keep(self, asked: tuple[str, str, str], answer: bool) -> bool:
        if len(self._answers) >= ANSWERS_KEPT_MAX:
            self._answers.clear()
        self._answers[asked] = answer
        return answer

    def _decide(self, action: str, kind: str, name: str) -> bool:
        if kind == TOPIC:
            if name == self._audit_topic:
                return action in _READING and is_permitted(self.principal, AUDIT, CLUSTER)
            if name.startswith(PREFIX):
                return action in _READING and is_permitted(self.principal, action, GROUP, name.removeprefix(PREFIX))
        return is_permitted(self.principal, action, kind, name)


def missing(kind: str, name: str) -> TernError:
    """What is answered about a *kind* that is not there."""
    if kind == TOPIC:
        return TopicNotFound(topic=name)
    if kind == GROUP:
        return GroupNotFound(group=name)
    return ProducerGroupNotFound(producer_group=name)
