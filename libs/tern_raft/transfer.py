"""Handover of leadership: the heir stands once it has the whole log, all committed and applied
here.

An earlier campaign of the heir would be correct too, but callers of the last entries would never
learn their outcome here. Reference: Raft dissertation, 3.10.
"""

import logging
from collections.abc import Callable

from tern_raft.consensus import Consensus
from tern_raft.membership import Membership

log = logging.getLogger(__name__)
# The heir needs at most a few entries and one election; nothing new is proposed meanwhile.
DEADLINE_S = 1.0
# The message to stand can be lost with its link.
AGAIN_AFTER_S = 0.2


class Transfer:
    """One handover at a time. Owner: the node."""

    def __init__(
        self, consensus: Consensus, membership: Membership, others: list[str], monotonic: Callable[[], float]
    ) -> None:
        self._consensus, self._membership, self._others, self._monotonic = consensus, membership, others, monotonic
        self._heir: str | None = None
        self._until_s = 0.0
        self._told_s = -1e9
        self.count = 0

    @property
    def is_under_way(self) -> bool:
        """Whether an heir is chosen and leadership is still here."""
        return self._heir is not None

    def begin(self, to: str | None) -> str:
        """Choose *to*, or None: the member with most of the log; return an obstacle, or ""."""
        if not self._consensus.is_serving:
            return "this node does not lead"
        able = [peer for peer in self._others if self._membership.counts(peer)]
        if to is None and able:
            to = max(able, key=self._consensus.match_index)
        if to is None or to not in able:
            return f"'{to}' is not a member that is connected" if to is not None else "no other member is connected"
        if self._heir is None:
            self._heir, self._until_s, self._told_s = to, self._monotonic() + DEADLINE_S, -1e9
            self.count += 1
            log.info("handing leadership over", extra={"to": to})
        return "" if self._heir == to else f"leadership is being handed over to '{self._heir}' already"

    def step(self) -> None:
        """Advance the handover at every tick: nothing is proposed, so the heir soon has
        everything.
        """
        if self._heir is None:
            return
        now_s = self._monotonic()
        if not self._consensus.is_leader or now_s > self._until_s:
            if self._consensus.is_leader:
                log.warning("leadership was not handed over in time", extra={"to": self._heir})
            self._heir = None
        elif (
            now_s > self._told_s + AGAIN_AFTER_S and self._consensus.has_all(self._heir) and self._consensus.is_settled
        ):
            self._told_s = now_s
            self._consensus.hand_over(self._heir)
