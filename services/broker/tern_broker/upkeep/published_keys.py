"""The leader passes published messages to the index of keys, some in each entry.

Every node reads their records again for it. A batch of a million rows in one entry would take
seconds, in which a follower seems to be dead; so an entry takes PUBLISHED_KEYS_STEP_SIZE_BYTES.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tern_broker.core.delivery.picking import Pick
from tern_broker.core.machine import StateMachine
from tern_broker.core.transactions.open_transactions import read_messages
from tern_broker.proposal import Proposal
from tern_broker.proposer import Proposer
from tern_wire.errors import TernError
from tern_wire.limits_publications import PUBLISHED_KEYS_STEP_SIZE_BYTES
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind

PAUSE_S = 1.0
# Of UNINDEXED_PIECE_MESSAGES: as many small messages as one step may take.
_PIECES = 4


class PublishedKeys:
    """Owner: the core loop."""

    def __init__(self, proposer: Proposer, state: Callable[[], StateMachine]) -> None:
        self._proposer, self._state = proposer, state
        self._is_waiting, self._was_refused, self._not_before_s = False, False, 0.0

    def step(self, now_s: float) -> None:
        """Propose the next step, if there is one. Called every few ms on the leader."""
        if self._was_refused:
            self._was_refused, self._not_before_s = False, now_s + PAUSE_S
        waiting = self._state().publications.unindexed
        if self._is_waiting or not waiting or now_s < self._not_before_s:
            return
        sizes = read_messages(b"".join(waiting[:_PIECES]))["size"].astype(np.int64).cumsum()
        rows = max(1, int(np.searchsorted(sizes, PUBLISHED_KEYS_STEP_SIZE_BYTES, side="right")))
        payload = encode_msgpack({"op": "index", "rows": rows})
        self._is_waiting = True

        def done(verdict: Any, _picks: list[Pick]) -> None:
            self._is_waiting = False
            self._was_refused = isinstance(verdict, TernError)

        self._proposer.submit(
            Proposal(CommandKind.PUBLICATION, len(payload), done, build=lambda _now: [payload], is_upkeep=True)
        )
