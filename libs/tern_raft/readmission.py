"""Readmission of rebuilt nodes: the leader commits a READMIT for each.

The majority that commits it does not count the node (`membership.py`).
"""

from collections.abc import Callable

from tern_raft.consensus import Consensus
from tern_raft.membership import Membership, readmit_parts
from tern_store import EntryKind
from tern_store.files import is_lack
from tern_store.state.vote_file import Standing

# A node within this many entries of the end follows the group; the READMIT itself brings the rest.
LAG_MAX_ENTRIES = 64
# After a READMIT that did not readmit (the node had restarted meanwhile) or was lost with its
# leader.
AGAIN_AFTER_S = 2.0
_NO_VERSION = 0


class Readmission:
    """The leader's part of readmissions. Owner: the node."""

    def __init__(
        self, consensus: Consensus, membership: Membership, others: list[str], monotonic: Callable[[], float]
    ) -> None:
        self._consensus, self._membership, self._others, self._monotonic = consensus, membership, others, monotonic
        self._asked_s: dict[str, float] = {}

    def step(self) -> None:
        """Propose a READMIT for each rebuilt node that has caught up; called every few ms."""
        if not self._consensus.is_serving:
            return
        for peer in self._others:
            if self._membership.standing_of(peer) is not Standing.REBUILDING:
                continue
            lag = self._consensus.journal.log.end_index - self._consensus.match_index(peer)
            now_s = self._monotonic()
            if lag <= LAG_MAX_ENTRIES and now_s >= self._asked_s.get(peer, 0.0):
                self._asked_s[peer] = now_s + AGAIN_AFTER_S
                parts = readmit_parts(peer, self._membership.incarnation_of(peer))
                try:
                    self._consensus.append(parts, _NO_VERSION, urgent=True, kind=EntryKind.READMIT)
                except OSError as error:
                    if not is_lack(error):
                        raise
                    # The log has undone the partial write, and the entry is proposed again.
