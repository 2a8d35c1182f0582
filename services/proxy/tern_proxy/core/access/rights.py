"""What one principal may do: its grants, and what the mesh's own topics ask instead. Answers are remembered. Pure.

    the audit topic      SUB, DESCRIBE and LIST ask AUDIT of the cluster
    topics of replies    DESCRIBE and LIST ask ADMIN of the cluster; a reply is had by whoever has asked for it, and by nobody else
    both                 ALTER asks ADMIN of the cluster, since they are moved as all topics are (their settings nobody changes)
    dead-letter topics   SUB, DESCRIBE and LIST ask the same of the group
    all of them          whatever else it is, nobody may, whatever its grants of topics say (tern_wire/kept_topics.py)

What a principal may not DESCRIBE is refused as if it were not there, with the same error; what it may see, with `forbidden`. A right to make
something says nothing about whether it is there, so that one is always `forbidden`. Lists show what may be listed or described.

Reference: tern_wire.principals.principals (`is_permitted`), whose DESCRIBE is implied as Kafka's is.
"""

from collections.abc import Mapping
from hashlib import blake2b

from tern_proxy.core.access.requirements import Rule
from tern_wire import kept_topics
from tern_wire.dead_letters import PREFIX
from tern_wire.errors import Forbidden, GroupNotFound, ProducerGroupNotFound, TernError, TopicNotFound
from tern_wire.kept_topics import DEAD_LETTERS, KeptTopics
from tern_wire.principals.principals import (
    ADMIN,
    ALTER,
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
_SHOWN_LENGTH_MAX = 160
_READING = frozenset({SUB, DESCRIBE, LIST})
# What the mesh's own topics ask of the cluster, by action; nothing else can be done with them.
_OF_CLUSTER: Mapping[str, Mapping[str, str]] = {
    kept_topics.AUDIT: {**dict.fromkeys(_READING, AUDIT), ALTER: ADMIN},
    kept_topics.REPLIES: dict.fromkeys((DESCRIBE, LIST, ALTER), ADMIN),
}
# Asked of the answers only: stands in lists.
_SEEN = "(seen)"


class Access:
    """One principal as of one version of its grants. Owner: the event loop. *seal*: a key for what is derived from the principal's name."""

    __slots__ = ("_answers", "_kept", "_seal", "passed", "principal")

    def __init__(self, principal: Principal, *, kept: KeptTopics, seal: bytes) -> None:
        self.principal = principal
        self._kept, self._seal = kept, seal
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
        return self.forbidden(action, kind, name)

    def forbidden(self, action: str, kind: str, name: str) -> TernError:
        """The refusal that says what is missing, for whoever knows already that the *kind* is there."""
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
            what = self._kept.what(name)
            if what == DEAD_LETTERS:
                return action in _READING and is_permitted(self.principal, action, GROUP, name.removeprefix(PREFIX))
            if what:
                asked = _OF_CLUSTER[what].get(action)
                return asked is not None and is_permitted(self.principal, asked, CLUSTER)
        return is_permitted(self.principal, action, kind, name)


def missing(kind: str, name: str) -> TernError:
    """What is answered about a *kind* that is not there."""
    if kind == TOPIC:
        return TopicNotFound(topic=name)
    if kind == GROUP:
        return GroupNotFound(group=name)
    return ProducerGroupNotFound(producer_group=name)
