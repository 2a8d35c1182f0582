"""Nodes compare what they have become: every so often the leader logs its digest, and who differs is damaged. Owner: the core loop."""

from collections.abc import Callable
from typing import Any

from tern_broker.core.applied import Applied
from tern_broker.core.digest import digest_payload
from tern_broker.core.machine import StateMachine
from tern_broker.core.picking import Pick
from tern_broker.proposer import Proposal, Proposer
from tern_store import StoredEntry
from tern_wire.commands import CommandKind
from tern_wire.requests import Parts

# Often enough that wrong answers are few, seldom enough to cost nothing.
COMPARE_AFTER_ENTRIES = 1000


class Comparer:
    """Of one node."""

    def __init__(self, proposer: Proposer, *, state: Callable[[], StateMachine], applied: Callable[[], int]) -> None:
        self._proposer, self._state, self._applied = proposer, state, applied
        self._compared_index = 0
        self._is_asked = False

    def applied(self, entry: StoredEntry, applied: Applied) -> None:
        """An entry was applied, on any node."""
        if applied.was_compared:
            self._compared_index = entry.index

    def step(self) -> None:
        """Called every few ms on the leader."""
        if self._is_asked or self._applied() - self._compared_index < COMPARE_AFTER_ENTRIES:
            return
        self._is_asked = True

        def done(_verdict: Any, _picks: list[Pick]) -> None:
            self._is_asked = False

        def build(_now_ms: int) -> Parts:
            # Nothing is in flight while an entry is built: this is what every node has become just before it.
            return [digest_payload(self._state().digest)]

        self._proposer.submit(Proposal(CommandKind.DIGEST, 8, done, build=build))
