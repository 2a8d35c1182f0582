"""The nodes' reported digests and the digest that is right: the replicated side of the comparison
of replicas. The local side of each node is `comparer.py`.

A DIGEST makes every node note its digest. A JUDGE carries the noted digests and the right one. Law:
the digest of a majority of all members is right, and every node that differs from it discards its
state. Without a majority nothing is discarded: the group takes no requests until an operator
CHOOSEs a node. From then on that node leads, and the differing nodes, one after the other, copy its
log and rebuild their state from it, until a majority agrees.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.comparing.digest import Verdict
from tern_broker.core.comparing.judgement import Judgement
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.commands import CommandKind


@dataclass(slots=True)
class Comparison:
    """Owner: the state machine. *inspect* takes a turn (a number) and returns the digest of every
    entry applied so far, extended by the pieces of the state that are inspected in that turn.
    """

    inspect: Callable[[int], int]
    # Of the last DIGEST: its index, and this node's digest just before it. A node that started
    # after it has none: it is not saved.
    noted: tuple[int, int] | None = None
    # Number of DIGESTs so far.
    turn: int = 0
    # The last DIGEST that was judged.
    judged_index: int = 0
    # The nodes' digests when no majority agreed, until one does; empty: no disagreement.
    disagreement: dict[str, int] = field(default_factory=dict)
    # The node that an operator chose, until a majority agrees.
    chosen: str = ""
    # Nodes that were made to rebuild their state since the choice.
    remade: list[str] = field(default_factory=list)

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.DIGEST: self._note, CommandKind.JUDGE: self._judge, CommandKind.CHOOSE: self._choose}

    def is_held(self, node: str) -> bool:
        """Return whether *node* must take no requests: the right state is unknown, or another node
        is to lead.
        """
        return self.chosen != node if self.chosen else bool(self.disagreement)

    def _note(self, _payload: memoryview, _position: int, applied: Applied) -> Verdict:
        self.noted = applied.index, self.inspect(self.turn)
        self.turn += 1
        applied.was_noted = True
        return {}

    def _judge(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        facts = read_map(payload)
        found = applied.judgement = Judgement(
            index=int(facts["index"]),
            digests={str(node): int(digest) for node, digest in facts["digests"].items()},
            right=None if facts["right"] is None else int(facts["right"]),
            leaving=tuple(map(str, facts["leaving"])),
            is_final=bool(facts["is_final"]),
        )
        self.judged_index = max(self.judged_index, found.index)
        if found.right is None:
            self.disagreement, self.chosen, self.remade = found.digests, "", []
        elif found.is_final:
            self.disagreement, self.chosen, self.remade = {}, "", []
        else:
            self.remade += [node for node in found.leaving if node not in self.remade]
        return {}

    def _choose(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        node = read_map(payload)["node"]
        if not isinstance(node, str) or not node:
            raise LinkBodyMalformed(reason="a choice of nobody")
        self.chosen, self.remade = node, []
        applied.has_chosen = True
        return {}

    # Part -----------------------------------------------------------------------------------------
    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return [self.judged_index, dict(self.disagreement), self.chosen, list(self.remade), self.turn]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.judged_index, self.disagreement, self.chosen, self.remade, *turn = packed
        self.turn = turn[0] if turn else 0


def majority_of(digests: Mapping[str, int], members: int) -> int | None:
    """Return the digest of more than half of all *members*; None if there is none (yet)."""
    values = list(digests.values())
    return next((value for value in values if 2 * values.count(value) > members), None)
