"""R6: which node stands, and when: pre-vote with leader stickiness, and early or late campaigns.

pysyncobj checks one condition when its election time is over (any connection?, syncobj.py:635; L6).
Here it holds only if a majority would vote for this node, so a node that returns from a pause or a
partition never deposes a leader that the others receive appends from.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pysyncobj.monotonic import monotonic

from tern_raft.core import Core
from tern_raft.rules import Message, may_lead

if TYPE_CHECKING:
    from tern_raft.membership import Membership

# The period of pre-votes, and the time for which their grants are valid.
PRE_VOTE_PERIOD_S = 0.05
PRE_VOTE_WORTH_S = 0.3
# When the leader's connection breaks, its process is dead or the network is. The remaining nodes
# stand one after the other, so that the first is elected before the next one asks. The delay is
# long enough for the others to notice, too.
SOON_S = 0.02
SOON_STEP_S = 0.1
SOON_SPREAD_S = 0.03
# A backlog applied within about 0.1 s is no reason to let others stand; a longer one is.
BACKLOG_MAX_ENTRIES = 300
BACKLOG_WAIT_S = 1.0


class Elections:
    """The campaigns of one node. Owner: the node's transport."""

    def __init__(
        self,
        me: str,
        others: list[str],
        *,
        core: Callable[[], Core],
        membership: "Membership",
        post: Callable[[str, Message], bool],
        kick_later: Callable[[float], object],
        stickiness_s: float,
    ) -> None:
        self._me, self._others = me, others
        self._ask_core, self._membership, self._post, self._kick_later = core, membership, post, kick_later
        self._stickiness_s = stickiness_s
        self._grants: dict[str, float] = {}
        self._ask_at_s = 0.0
        self._leader_heard_s = -1e9
        self._is_told = False
        # Since when the election time is over while this node has a large backlog to apply.
        self._held_since_s: float | None = None
        # Whether the leader requested the campaign under way.
        self.was_told = False
        # For metrics: campaigns that this node has begun.
        self.campaigns = 0

    def begin(self) -> None:
        """Start a node with a log: for one election time it assumes that its group has a leader."""
        self._leader_heard_s = monotonic()

    def leader_heard(self) -> None:
        """Record an append of the current leader: no election is needed, and earlier grants are
        void.
        """
        self._leader_heard_s = monotonic()
        self._held_since_s = None
        self._grants.clear()

    def told_to_stand(self) -> None:
        """Stand without pre-vote: the leader hands over, and the others still receive its
        appends.
        """
        self._is_told = True

    def peer_lost(self, peer: str, *, was_leader: bool) -> None:
        """Record that the link to *peer* is gone."""
        self._grants.pop(peer, None)
        if was_leader:
            self._leader_heard_s = -1e9
            rank = [name for name in sorted((self._me, *self._others)) if name != peer].index(self._me)
            delay_s = SOON_S + rank * SOON_STEP_S + random.uniform(0, SOON_SPREAD_S)  # noqa: S311 (timing, no secret)
            self._ask_core().stand_within(delay_s)
            self._kick_later(delay_s)

    def may_campaign(self) -> bool:
        """Whether a majority would elect this node now; sends pre-votes if not.
        Called while the election time is over.
        """
        now_s, core = monotonic(), self._ask_core()
        stored = core.journal.log
        end = (stored.end_term, stored.end_index)
        if not self._membership.may_vote(core.raftCurrentTerm + 1, end) or self._waits_for_others(now_s):
            if self._is_told:
                core.follow_again()
            self._is_told = False
            return False
        fresh = sum(1 for at_s in self._grants.values() if now_s - at_s < PRE_VOTE_WORTH_S)
        if self._is_told or (fresh + 1) * 2 > len(self._others) + 1:
            self._grants.clear()
            self.was_told, self._is_told = self._is_told, False
            self.campaigns += 1
            return True
        if now_s >= self._ask_at_s:
            self._ask_at_s = now_s + PRE_VOTE_PERIOD_S
            question: dict[str, Any] = {
                "type": "pre_vote",
                "term": core.raftCurrentTerm + 1,
                "last_log_index": end[1],
                "last_log_term": end[0],
            }
            for peer in self._others:
                self._post(peer, question)
            self._kick_later(PRE_VOTE_PERIOD_S)
        return False

    @property
    def has_leader(self) -> bool:
        """Whether this node leads, or has received a leader's append within an election time."""
        return self._ask_core().is_leader or monotonic() - self._leader_heard_s < self._stickiness_s

    def _waits_for_others(self, now_s: float) -> bool:
        """Whether a node with a large backlog lets others stand first: it would lead long before it
        serves.
        """
        core = self._ask_core()
        if self._is_told or core.journal.log.end_index - core.raftLastApplied <= BACKLOG_MAX_ENTRIES:
            self._held_since_s = None
            return False
        if self._held_since_s is None:
            self._held_since_s = now_s
        return now_s - self._held_since_s < BACKLOG_WAIT_S

    def answer(self, peer: str, message: Message) -> None:
        """Grant unless a leader was heard lately or our log is newer.
        Changes nothing but a term older than the sender's.
        """
        core = self._ask_core()
        stored = core.journal.log
        # The sender's own term: it can never follow a leader in an older one.
        core.learn_term(message["term"] - 1)
        end = (message["last_log_term"], message["last_log_index"])
        is_new = may_lead(own_term=stored.end_term, own_index=stored.end_index, last_term=end[0], last_index=end[1])
        if message["term"] <= core.raftCurrentTerm:
            # The sender is in an old term: without ours it could never stand, though its log may be
            # the newest.
            self._post(peer, {"type": "pre_vote_refused", "term": core.raftCurrentTerm})
        elif is_new and not self.has_leader and self._membership.may_vote(message["term"], end):
            self._post(peer, {"type": "pre_vote_granted", "term": message["term"]})

    def granted(self, peer: str, message: Message) -> None:
        """Count a grant of *peer*."""
        if message["term"] == self._ask_core().raftCurrentTerm + 1 and self._membership.counts(peer):
            self._grants[peer] = monotonic()
