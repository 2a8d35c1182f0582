"""R6: who stands, and when: pre-vote with leader stickiness, and the three ways to stand sooner or later than the clock says.

pysyncobj asks one question when its election time is over (is anybody connected?, syncobj.py:635; L6). The answer here is yes only when a
majority would vote for this node, so a node that comes back from a pause or a cut never deposes a leader that the others hear.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pysyncobj.monotonic import monotonic

from tern_raft.core import Core
from tern_raft.rules import Message, may_lead

if TYPE_CHECKING:
    from tern_raft.membership import Membership

# A pre-vote is asked again after this long, and its grants are worth that much.
PRE_VOTE_PERIOD_S = 0.05
PRE_VOTE_WORTH_S = 0.3
# When the leader's connection has broken its process is dead or the network is: who is left stands one after the other, so that the first
# is elected before the next one asks. Long enough for the others to notice, too.
SOON_S = 0.02
SOON_STEP_S = 0.1
SOON_SPREAD_S = 0.03
# What is applied within some 0.1 s is no reason to let others stand; what takes longer is, if there are others.
BACKLOG_MAX_ENTRIES = 300
BACKLOG_WAIT_S = 1.0


class Elections:
    """Owner: the node's transport."""

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
        # Since when the election time is over while this node has much to apply.
        self._held_since_s: float | None = None
        # Whether the campaign under way was asked for by the leader.
        self.was_told = False
        # For metrics: campaigns that this node has begun.
        self.campaigns = 0

    def begin(self) -> None:
        """A node that has a log begins: for one election time it takes it that its group has a leader, whom it has not heard yet."""
        self._leader_heard_s = monotonic()

    def leader_heard(self) -> None:
        """An append of the current leader has come: nobody needs an election, and what was granted before is void."""
        self._leader_heard_s = monotonic()
        self._held_since_s = None
        self._grants.clear()

    def told_to_stand(self) -> None:
        """The leader hands over: the others hear it still, so they are not asked whether they would vote."""
        self._is_told = True

    def peer_lost(self, peer: str, *, was_leader: bool) -> None:
        """The link to *peer* is gone."""
        self._grants.pop(peer, None)
        if was_leader:
            self._leader_heard_s = -1e9
            rank = [name for name in sorted((self._me, *self._others)) if name != peer].index(self._me)
            delay_s = SOON_S + rank * SOON_STEP_S + random.uniform(0, SOON_SPREAD_S)  # noqa: S311 (timing, no secret)
            self._ask_core().stand_within(delay_s)
            self._kick_later(delay_s)

    def may_campaign(self) -> bool:
        """Whether a majority would elect this node now; asks for it when not. Called while the election time is over."""
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
        """Whether this node leads, or has heard who does within an election time."""
        return self._ask_core().is_leader or monotonic() - self._leader_heard_s < self._stickiness_s

    def _waits_for_others(self, now_s: float) -> bool:
        """A node that has much to apply would lead long before it serves: it lets the others stand first."""
        core = self._ask_core()
        if self._is_told or core.journal.log.end_index - core.raftLastApplied <= BACKLOG_MAX_ENTRIES:
            self._held_since_s = None
            return False
        if self._held_since_s is None:
            self._held_since_s = now_s
        return now_s - self._held_since_s < BACKLOG_WAIT_S

    def answer(self, peer: str, message: Message) -> None:
        """Grant unless a leader was heard lately or our log is newer. Changes nothing but a term that is older than the asker's."""
        core = self._ask_core()
        stored = core.journal.log
        # The asker's own term: a leader in an older one can never be followed by it.
        core.learn_term(message["term"] - 1)
        end = (message["last_log_term"], message["last_log_index"])
        is_new = may_lead(own_term=stored.end_term, own_index=stored.end_index, last_term=end[0], last_index=end[1])
        if message["term"] <= core.raftCurrentTerm:
            # The asker is in an old term: without learning ours it could never stand, though its log may be the newest.
            self._post(peer, {"type": "pre_vote_refused", "term": core.raftCurrentTerm})
        elif is_new and not self.has_leader and self._membership.may_vote(message["term"], end):
            self._post(peer, {"type": "pre_vote_granted", "term": message["term"]})

    def granted(self, peer: str, message: Message) -> None:
        """*peer* would vote for this node."""
        if message["term"] == self._ask_core().raftCurrentTerm + 1 and self._membership.counts(peer):
            self._grants[peer] = monotonic()
