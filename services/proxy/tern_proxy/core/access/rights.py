"""Rights of one principal: its grants, and the special rules of the mesh's own topics.

Decisions are cached. Pure.

    the audit topic      SUB, DESCRIBE and LIST require AUDIT of the cluster
    topics of replies    DESCRIBE and LIST require ADMIN of the cluster; a reply is delivered only
                         to its requester
    both                 ALTER requires ADMIN of the cluster, because they can be moved like all
                         topics (their settings are never changed)
    dead-letter topics   SUB, DESCRIBE and LIST require the same of the group
    all of them          nothing else is permitted, whatever a principal's grants of topics are
                         (tern_wire/kept_topics.py)

Without DESCRIBE an object is answered as missing, with the same error; with it, a refusal is
`forbidden`. The right to create does not reveal existence, so its refusal is always `forbidden`.
Lists show objects with LIST or DESCRIBE. Reference: tern_wire.principals.principals
(`is_permitted`), whose DESCRIBE is implied as Kafka's is.
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
    allows_some,
    is_denied,
    is_permitted,
)

# Cached decisions and paths of one principal, 200 bytes each; a full cache is cleared.
ANSWERS_KEPT_MAX = 8_192
_SHOWN_LENGTH_MAX = 160
_READING = frozenset({SUB, DESCRIBE, LIST})
# Permissions of the cluster that the mesh's own topics require, by action; all other actions are
# refused.
_OF_CLUSTER: Mapping[str, Mapping[str, str]] = {
    kept_topics.AUDIT: {**dict.fromkeys(_READING, AUDIT), ALTER: ADMIN},
    kept_topics.REPLIES: dict.fromkeys((DESCRIBE, LIST, ALTER), ADMIN),
}
# Pseudo-action of cached decisions: visible in lists.
_SEEN = "(seen)"


class Access:
    """Rights of one principal at one version of its grants. Owner: the event loop.

    *seal*: a key for values derived from the principal's name.
    """

    __slots__ = ("_answers", "_kept", "_seal", "passed", "principal")

    def __init__(self, principal: Principal, *, kept: KeptTopics, seal: bytes) -> None:
        self.principal = principal
        self._kept, self._seal = kept, seal
        self._answers: dict[tuple[str, str, str], bool] = {}
        # Rules of requests that were admitted by their path alone, by method and path.
        self.passed: dict[tuple[str, str], Rule] = {}

    def may(self, action: str, kind: str, name: str = "") -> bool:
        """Return whether the principal may do *action* on the *kind* with *name* ("" for the
        cluster).
        """
        asked = (action, kind, name)
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._keep(asked, self._decide(action, kind, name))
        return answer

    def may_some(self, action: str, kind: str) -> bool:
        """Return whether the principal may do *action* on any *kind* at all."""
        return allows_some(self.principal, action, kind)

    def sees(self, kind: str, name: str) -> bool:
        """Return whether lists show the object to the principal."""
        asked = (_SEEN, kind, name)
        answer = self._answers.get(asked)
        if answer is None:
            is_hidden = is_denied(self.principal, LIST, kind, name)
            answer = self.may(LIST, kind, name) or (self.may(DESCRIBE, kind, name) and not is_hidden)
            self._keep(asked, answer)
        return answer

    def refusal(self, action: str, kind: str, name: str) -> TernError | None:
        """Return the error of a refusal; None if the principal has the right."""
        if self.may(action, kind, name):
            return None
        if kind != CLUSTER and action != CREATE and not self.may(DESCRIBE, kind, name):
            return missing(kind, name)
        return self.forbidden(action, kind, name)

    def forbidden(self, action: str, kind: str, name: str) -> TernError:
        """Return the error that names the missing permission.

        For a caller that may see the object.
        """
        shown = f"{kind} '{name[:_SHOWN_LENGTH_MAX]}'" if kind != CLUSTER else "the cluster"
        return Forbidden(required_permission=f"{action} of {shown}")

    def pass_path(self, method: str, path: str, rule: Rule) -> None:
        """Remember that such a request needs no further checks."""
        if len(self.passed) >= ANSWERS_KEPT_MAX:
            self.passed.clear()
        self.passed[method, path] = rule

    def client(self, client: str) -> str:
        """Return the id under which replies to *client* of this principal are stored.

        It differs from that of every other principal's client, and cannot be guessed.
        """
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
    """Return the error of a missing object of *kind*."""
    if kind == TOPIC:
        return TopicNotFound(topic=name)
    if kind == GROUP:
        return GroupNotFound(group=name)
    return ProducerGroupNotFound(producer_group=name)
