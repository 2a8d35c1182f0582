"""What the nodes have said of their digests, and who is right: the replicated side of their comparison (`comparer.py` is the node's own).

A DIGEST makes every node note its digest; a JUDGE says what they noted and which is right. Law: a majority of all members is right, and
whoever differs from it goes. Without one nothing is thrown away: the group takes no requests until an operator CHOOSEs a node. From then on
that node leads, and one after the other of those that differ copies its log and makes its state anew from that, until a majority agrees.
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
    """Owner: the state machine. *inspect* gives the digest of every entry applied so far, and from now on of the pieces of the state whose
    turn (a number) it is."""

    inspect: Callable[[int], int]
    # Of the last DIGEST: its index, and what this node had become just before it. A node that has begun behind it has none: it is not saved.
    noted: tuple[int, int] | None = None
    # How many DIGESTs there were.
    turn: int = 0
    # The last DIGEST that was judged.
    judged_index: int = 0
    # What the nodes said when no majority agreed, until one does; empty: nothing.
    disagreement: dict[str, int] = field(default_factory=dict)
    # Whom an operator chose, until a majority agrees.
    chosen: str = ""
    # Who has been told since the choice to make its state anew.
    remade: list[str] = field(default_factory=list)

    def commands(self) -> Mapping[int, Handler]:
        """As Part."""
        return {CommandKind.DIGEST: self._note, CommandKind.JUDGE: self._judge, CommandKind.CHOOSE: self._choose}

    def is_held(self, node: str) -> bool:
        """Whether *node* must take no requests: nobody knows what is right, or another one is to lead."""
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

    # As Part -----------------------------------------------------------------------------------------------------
    def is_due(self, _now_ms: int) -> bool:
        """Nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """As above."""

    def pack(self) -> Any:
        """As Part."""
        return [self.judged_index, dict(self.disagreement), self.chosen, list(self.remade), self.turn]

    def unpack(self, packed: Any) -> None:
        """As Part."""
        self.judged_index, self.disagreement, self.chosen, self.remade, *turn = packed
        self.turn = turn[0] if turn else 0


def majority_of(digests: Mapping[str, int], members: int) -> int | None:
    """The digest that more than half of all *members* have; None if there is none (yet)."""
    values = list(digests.values())
    return next((value for value in values if 2 * values.count(value) > members), None)
