"""Compares the nodes' states. At intervals each node notes its digest at one entry and reports it
to the leader, which judges by majority.

Law: all votes are equal, the leader's included. A node that differs from a majority of all members
discards its state and is copied anew; a leader that differs hands over first. With too few reports
nothing is decided, and no node is copied: a copy of one side is no witness. A judgement is an entry
of the log, so it holds through every restart. Owner: the core loop.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

from tern_broker.config import BrokerConfig
from tern_broker.core.applied import Applied
from tern_broker.core.comparing.comparison import Comparison, majority_of
from tern_broker.core.comparing.judgement import Judgement
from tern_broker.core.machine import StateMachine
from tern_store.files import is_done
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind, entry_parts
from tern_wire.link.requests import Parts

log = logging.getLogger(__name__)
# Often enough that wrong answers are few, seldom enough to cost nothing.
COMPARE_AFTER_ENTRIES = 1000
# An open comparison is repeated, and a digest reported again, after this time: nodes return,
# leaders change, messages are lost.
AGAIN_AFTER_S = 2.0
# A leader that is wrong and cannot hand over within this time ends all the same.
HAND_OVER_MAX_S = 3.0


class Group(Protocol):
    """The part of consensus that a comparer needs (`RaftNode` implements it)."""

    is_held: bool

    @property
    def is_current(self) -> bool:
        """Whether this node leads and has applied everything committed before its term."""

    @property
    def is_yielding(self) -> bool:
        """Whether leadership is being handed over."""

    @property
    def applied_index(self) -> int:
        """The last applied entry."""

    def counted(self) -> set[str]:
        """Return the other members that are connected and vote."""

    def hear_digests(self, heard: Callable[[str, int, int], None]) -> None:
        """Register *heard*, which is called with peers' reported digests."""

    def tell_digest(self, index: int, digest: int) -> None:
        """Report this node's noted digest to the leader."""

    @property
    def leader(self) -> str | None:
        """The current leader."""

    def transfer(self, to: str | None) -> str:
        """Hand leadership over."""


class Comparer:
    """Of one node."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        raft: Group,
        state: Callable[[], StateMachine],
        propose: Callable[[Parts, bool], object],
        leave: Callable[[str], None],
        on_held: Callable[[], None],
        monotonic: Callable[[], float],
    ) -> None:
        """*propose* makes an entry (body, urgent); *leave* ends this node, which must be copied
        anew, with the reason; *on_held* is called when this node must stop serving, or may serve
        again.
        """
        self._node, self._members, self._raft, self._state = config.node, len(config.members()), raft, state
        self._propose, self._leave, self._on_held, self._monotonic = propose, leave, on_held, monotonic
        raft.is_held = state().comparison.is_held(config.node)
        raft.hear_digests(self.heard)
        self._compared_index = 0
        self._asked_s = self._told_s = self._noted_s = -1e9
        # Proposed by this leader, and not applied yet.
        self._asked_index = self._judging_index = 0
        self._wrong_since_s: float | None = None
        # Whether a node was judged since the last comparison: a node that restarted meanwhile may
        # not have seen the judgement apply to itself.
        self._is_doubtful = False
        # The last report of each peer: index and digest.
        self._heard: dict[str, tuple[int, int]] = {}
        # For metrics: judgements that included this node's own digest.
        self.comparisons = 0

    @property
    def _comparison(self) -> Comparison:
        return self._state().comparison

    @property
    def digests(self) -> dict[str, int]:
        """The reported digests of the last comparison, by node; a follower has only its own."""
        noted = self._comparison.noted
        if noted is None:
            return {}
        heard = {peer: digest for peer, (index, digest) in self._heard.items() if index == noted[0]}
        return {self._node: noted[1], **heard}

    @property
    def is_undecided(self) -> bool:
        """Whether nodes differ and no node was chosen: too few reports, or no majority agrees."""
        if self._comparison.disagreement:
            return not self._comparison.chosen
        digests = self.digests
        differ = len(set(digests.values())) > 1 and majority_of(digests, self._members) is None
        return differ and not self._comparison.chosen

    def describe(self) -> dict[str, Any]:
        """Return for GET /v1/broker this node's digest, and the known digests of the others."""
        comparison = self._comparison
        index, _ = comparison.noted or (0, 0)
        return {
            "index": index,
            "judged_index": comparison.judged_index,
            "digests": {node: f"{digest:08x}" for node, digest in sorted(self.digests.items())},
            "disagreement": {node: f"{digest:08x}" for node, digest in sorted(comparison.disagreement.items())},
            "chosen": comparison.chosen,
            "undecided": self.is_undecided,
        }

    # Events ---------------------------------------------------------------------------------------
    def applied(self, applied: Applied) -> None:
        """Handle an applied entry, on any node."""
        if applied.was_noted:
            self._compared_index, self._noted_s = applied.index, self._monotonic()
            self._tell()
        if applied.judgement is not None or applied.has_chosen:
            self._raft.is_held = self._comparison.is_held(self._node)
            self._on_held()
        if applied.judgement is not None:
            self._judged(applied.judgement)

    def heard(self, peer: str, index: int, digest: int) -> None:
        """Handle the report of a member."""
        if self._members > 1 and peer in self._raft.counted():
            self._heard[peer] = index, digest
            self._judge()

    def choose(self, node: str) -> dict[str, Any]:
        """Choose the state of *node* as right, for an operator; return the result for the HTTP
        route. Only the leader accepts it.
        """
        reason = self._why_not(node)
        if not reason:
            log.warning("an operator has chosen the node whose state is right", extra={"chosen": node})
            reason = "" if self._try(CommandKind.CHOOSE, [encode_msgpack({"node": node})]) else "its disk is full"
        return {"asked": not reason, "chosen": node, "leader": self._raft.leader or "", "reason": reason}

    def _why_not(self, node: str) -> str:
        if not self._raft.is_current or self._raft.is_yielding:
            return "this node does not lead"
        if not (self.is_undecided or self._comparison.chosen):
            return "the nodes do not disagree, or a majority of them does not"
        if node != self._node and node not in self._raft.counted():
            return f"'{node}' is not a member that is connected"
        return ""

    def step(self) -> None:
        """Report, compare or judge if due. Called every few ms on every node."""
        if self._members == 1:
            return
        now_s = self._monotonic()
        if not self._raft.is_current:
            self._wrong_since_s = None
            if now_s - self._told_s >= AGAIN_AFTER_S:
                self._tell()
            return
        if self._raft.is_yielding:
            return
        chosen = self._comparison.chosen
        if chosen and chosen != self._node:
            self._raft.transfer(chosen)
            return
        self._judge()
        since = self._raft.applied_index - max(self._compared_index, self._asked_index)
        if since >= COMPARE_AFTER_ENTRIES or (self._is_open() and now_s - self._asked_s >= AGAIN_AFTER_S):
            self._asked_s, self._asked_index, self._is_doubtful = now_s, self._raft.applied_index, False
            self._try(CommandKind.DIGEST, [])

    # Decisions ------------------------------------------------------------------------------------
    def _is_open(self) -> bool:
        """Return whether a digest was noted and not judged, or no majority agrees."""
        comparison = self._comparison
        noted = [index for index, _ in (comparison.noted or (0, 0), *self._heard.values())]
        is_settled = not (self._is_doubtful or comparison.chosen or comparison.disagreement)
        return not is_settled or max(noted) > comparison.judged_index

    def _judge(self) -> None:
        """Judge, as leader, as soon as there are enough reports."""
        comparison, raft = self._comparison, self._raft
        noted = comparison.noted
        if not raft.is_current or raft.is_yielding or noted is None:
            return
        index, own = noted
        if index <= max(comparison.judged_index, self._judging_index):
            return
        digests = self.digests
        # Wait for all connected members: a judgement covers those that have reported.
        if raft.counted() - digests.keys() and self._monotonic() - self._noted_s < AGAIN_AFTER_S:
            return
        right = majority_of(digests, self._members)
        if right is None:
            self._without_majority(index, own, digests)
        elif right == own or comparison.chosen == self._node:
            # A chosen node that is wrong judges itself: leadership would be handed back to it.
            leaving = tuple(sorted(node for node, digest in digests.items() if digest != right))
            self._say(Judgement(index=index, digests=digests, right=right, leaving=leaving))
        else:
            self._hand_over(index, right, digests)

    def _without_majority(self, index: int, own: int, digests: dict[str, int]) -> None:
        comparison = self._comparison
        if len(digests) < self._members:
            return
        if comparison.chosen == self._node:
            # One at a time, so that a majority is left to readmit it; each once, since it would
            # rebuild the same state from the log.
            others = sorted(node for node in digests if digests[node] != own and node not in comparison.remade)
            if others and 2 * (len(self._raft.counted() - {others[0]}) + 1) > self._members:
                self._say(Judgement(index=index, digests=digests, right=own, leaving=(others[0],), is_final=False))
        elif not comparison.disagreement:
            self._say(Judgement(index=index, digests=digests))

    def _say(self, judgement: Judgement) -> None:
        if self._try(CommandKind.JUDGE, judgement.parts()):
            self._judging_index = judgement.index

    def _try(self, kind: CommandKind, payload: Parts) -> bool:
        """Try to log a command; return whether it is in the log.

        Its entry is made beside those of the proposer; it changes nothing on which another entry
        was built.
        """
        # A full disk has room again some time.
        return is_done(lambda: self._propose(entry_parts(self._state().now_ms, [(kind, payload)]), True))

    def _hand_over(self, index: int, right: int, digests: dict[str, int]) -> None:
        """Hand over, since this leader is the one that differs: one of the others judges it."""
        now_s = self._monotonic()
        if self._wrong_since_s is None:
            self._wrong_since_s = now_s
            facts = {"index": index, "digests": digests}
            log.critical("the state of this leader differs from the majority's; it hands over", extra=facts)
        heirs = sorted(node for node, digest in digests.items() if digest == right)
        heirs = [node for node in heirs if node in self._raft.counted()]
        if now_s - self._wrong_since_s > HAND_OVER_MAX_S:
            self._leave("the state of this leader differs from the majority's")
        elif heirs:
            self._raft.transfer(heirs[0])

    def _judged(self, judgement: Judgement) -> None:
        """Carry out a judgement, on every node, when it is applied, now or in a replay."""
        comparison = self._comparison
        noted = comparison.noted
        own = noted[1] if noted is not None and noted[0] == judgement.index else None
        self.comparisons += own is not None
        if judgement.right is None:
            facts = {"index": judgement.index, "digests": judgement.digests}
            log.critical("no majority of the nodes agrees; see `ternmq raft digests`", extra=facts)
            return
        self._is_doubtful = bool(judgement.leaving)
        # The judgement applies to a node that is still in the reported state. A node that was
        # rebuilt since, or started after the DIGEST, takes part in the next comparison.
        is_meant = own is not None and own == judgement.digests.get(self._node)
        is_meant &= judgement.is_final or self._node in judgement.leaving
        if is_meant and own != judgement.right:
            self._leave("the state of this node differs from the majority's, or from the chosen node's")

    def _tell(self) -> None:
        noted, comparison = self._comparison.noted, self._comparison
        if noted is not None and noted[0] > comparison.judged_index and not self._raft.is_current:
            self._told_s = self._monotonic()
            self._raft.tell_digest(*noted)
