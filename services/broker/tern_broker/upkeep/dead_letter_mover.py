"""Burials on the leader: move messages that have failed for the last time to their group's dead
letters.

Law: one BURY in flight. Its content is looked up when its entry is built, so it is true when it is
applied. Dying messages are in the replicated state: a leader that dies costs only the time until
the next one continues.
"""

import logging
from collections.abc import Callable
from typing import Any

from tern_broker.core.applied import Applied
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.machine import StateMachine
from tern_broker.proposal import Proposal
from tern_broker.proposer import Proposer
from tern_broker.reading.dead_letter_reader import BURIED_MAX, DeadLetterReader
from tern_wire.errors import TernError
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import BURIED

log = logging.getLogger(__name__)
# After a refusal, such as that of a full disk.
PAUSE_S = 1.0
_NOTE_SIZE_BYTES = 512


class DeadLetterMover:
    """Owner: the core loop."""

    def __init__(
        self,
        proposer: Proposer,
        reader: DeadLetterReader,
        *,
        state: Callable[[], StateMachine],
        is_serving: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        self._proposer, self._reader, self._state = proposer, reader, state
        self._is_serving, self._monotonic = is_serving, monotonic
        self._waiting = False
        self._not_before_s = 0.0

    def applied(self, _applied: Applied) -> None:
        """Bury at once if the entry, applied on any node, has left dying messages and this node
        serves.
        """
        if self._state().leasing.condemned and self._is_serving():
            self.step(self._monotonic())

    def step(self, now_s: float) -> None:
        """Propose a BURY if there are dying messages. Called every few ms on the leader."""
        if self._waiting or now_s < self._not_before_s or not self._state().leasing.condemned:
            return
        self._waiting = True

        def done(verdict: Any, _picks: list[Pick]) -> None:
            self._waiting = False
            if isinstance(verdict, TernError):
                log.warning("dead letters wait to be buried", extra={"reason": verdict.code})
            if isinstance(verdict, TernError) or BURIED not in verdict:
                self._not_before_s = self._monotonic() + PAUSE_S

        self._proposer.submit(
            Proposal(
                *(CommandKind.BURY, BURIED_MAX * _NOTE_SIZE_BYTES, done),
                build=self._reader.bury_parts,
                is_upkeep=True,
            )
        )
