"""Skipping an entry that no member can apply: by an operator's request, with every voter's
agreement.

A node that cannot apply an entry blocks in front of it (its owner names the entry), keeps log and
votes, and reports it to the leader with every acknowledgement. Decisions about such an entry are
entries of the log, big-endian:
 0       1         9        13
 | stage | index 8 | crc 4  |     of the entry concerned; the crc tells it from others of that index
1. ASKED: by the leader, when an operator requests it and all voters are blocked there. A node with
this entry in its log waits in front of the blocked entry, even if its release could apply it.
2. DONE: by the leader, when every voter has acknowledged ASKED and is still in front of the entry.
Once it is committed all nodes skip the entry.
3. WITHDRAWN: the operator has withdrawn the request, or a node had applied the entry before ASKED
reached it. Waiting nodes try to apply it again.

Law: no node skips an entry that a voter has applied. A voter's acknowledgement is on its disk, so
it cannot apply the entry between its acknowledgement and DONE, across restarts and upgrades; and
every later leader is a voter that has ASKED, and continues from there. DONE is final.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum

from tern_raft.core import Core
from tern_raft.journal import NO_VERSION
from tern_raft.membership import Membership
from tern_store import CommitLog, EntryKind, StoredEntry
from tern_store.files import is_done
from tern_store.state.vote_file import Standing

BODY = struct.Struct(">BQI")
# Period at which a blocked leader looks for an unblocked heir, and at which a leader past the entry
# notifies the waiting nodes.
AGAIN_AFTER_S = 2.0


class Stage(IntEnum):
    """The decision in an entry of kind PASS_OVER."""

    ASKED = 0
    DONE = 1
    WITHDRAWN = 2


class Verdict(Enum):
    """The treatment of the next entry to be applied."""

    APPLY = "apply"
    WAIT = "wait"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Word:
    """One entry of kind PASS_OVER, at index *at* of the log, about entry *index* with checksum
    *crc*.
    """

    at: int
    stage: int
    index: int
    crc: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A node that waits in front of entry *index*.
    It cannot apply the entry, or ASKED at *asked_at* holds it back (0: there was no request).
    """

    index: int
    crc: int
    asked_at: int


def read_word(entry: StoredEntry) -> Word:
    """Decode a decision; one that no release of ours writes concerns no entry."""
    if len(entry.body) != BODY.size:
        return Word(entry.index, Stage.WITHDRAWN, 0, 0)
    return Word(entry.index, *BODY.unpack(entry.body))


class PassOver:
    """The skipping of entries on one node. Owner: the node."""

    def __init__(
        self,
        log: CommitLog,
        *,
        consensus: Callable[[], Core],
        membership: Membership,
        others: list[str],
        monotonic: Callable[[], float],
    ) -> None:
        self._log, self._ask_core, self._membership, self._others = log, consensus, membership, others
        self._monotonic = monotonic
        # Index and crc of the entry that this node cannot apply, set by its owner.
        self.blocked: tuple[int, int] | None = None
        # Where each peer waits, and what the same message acknowledged, in this node's term as
        # leader.
        self._heard: dict[str, tuple[Waiting, int]] = {}
        self._heard_in_term = 0
        self._again_s = 0.0

    # Every node -----------------------------------------------------------------------------------
    def verdict(self, index: int) -> Verdict:
        """The treatment of committed entry *index*, the next to be applied."""
        if self.blocked is None and not self._log.pass_overs:
            return Verdict.APPLY
        words = self._words(index)
        commit = self._ask_core().raftCommitIndex
        done = next((word for word in words if word.stage == Stage.DONE), None)
        if done is not None:
            return Verdict.SKIP if done.at <= commit else Verdict.WAIT
        if words and (words[-1].stage == Stage.ASKED or words[-1].at > commit):
            return Verdict.WAIT
        is_blocked = self.blocked is not None and self.blocked == (index, self._log.mark(index).crc)
        return Verdict.WAIT if is_blocked else Verdict.APPLY

    @property
    def waiting(self) -> Waiting | None:
        """Where this node waits; None if it applies committed entries."""
        if self.blocked is None and not self._log.pass_overs:
            return None
        core = self._ask_core()
        index = core.raftLastApplied + 1
        if index > core.raftCommitIndex or self.verdict(index) is not Verdict.WAIT:
            return None
        words = self._words(index)
        asked_at = words[-1].at if words and words[-1].stage == Stage.ASKED else 0
        return Waiting(index, self._log.mark(index).crc, asked_at)

    def _words(self, index: int) -> list[Word]:
        words = [word for word in map(read_word, self._log.pass_overs) if word.index == index]
        return [word for word in words if word.crc == self._log.mark(index).crc] if words else []

    # The leader -----------------------------------------------------------------------------------
    @property
    def peers(self) -> dict[str, Waiting]:
        """The waiting peers, from their last acknowledgements; empty on a follower."""
        return {peer: waiting for peer, (waiting, _) in self._known.items()}

    @property
    def _known(self) -> dict[str, tuple[Waiting, int]]:
        core = self._ask_core()
        return self._heard if core.is_leader and core.raftCurrentTerm == self._heard_in_term else {}

    def heard(self, peer: str, waiting: Waiting | None, acked: int) -> None:
        """Record where *peer* waits, from the message that acknowledged the log up to *acked* (0:
        nothing).
        """
        if (term := self._ask_core().raftCurrentTerm) != self._heard_in_term:
            self._heard_in_term = term
            self._heard.clear()
        if waiting is not None:
            self._heard[peer] = waiting, acked
        else:
            self._heard.pop(peer, None)

    def lost(self, peer: str) -> None:
        """Forget *peer*, whose link is gone or new: its next message may come from another
        process.
        """
        self._heard.pop(peer, None)

    def ask(self, index: int) -> str:
        """Request that entry *index* is skipped; return an obstacle, or "".
        It is skipped when every voter has agreed.
        """
        waiting, reason = self._own(index)
        if reason or waiting is None:
            return reason
        for peer in self._voters():
            found = self._known.get(peer)
            if found is None or (found[0].index, found[0].crc) != (index, waiting.crc):
                return f"'{peer}' has not said that it cannot apply entry {index}; all members must say so"
        return "" if waiting.asked_at else self._say(Stage.ASKED, waiting)

    def withdraw(self, index: int) -> str:
        """Request that entry *index* is tried again; return an obstacle, or ""."""
        waiting, reason = self._own(index)
        if reason or waiting is None:
            return reason
        return self._say(Stage.WITHDRAWN, waiting) if waiting.asked_at else "nobody has asked to pass over it"

    def step(self) -> None:
        """Advance pending decisions; called every few ms on every node."""
        core = self._ask_core()
        if not core.is_leader or not (self._known or self.blocked or self._log.pass_overs):
            return
        waiting, now_s = self.waiting, self._monotonic()
        if waiting is not None and waiting.asked_at and self._all_agree(waiting):
            self._say(Stage.DONE, waiting)
        elif now_s >= self._again_s:
            self._again_s = now_s + AGAIN_AFTER_S
            if waiting is not None:
                self._hand_over(core)
            elif core.is_serving:
                self._tell_those_that_wait(core)

    def _own(self, index: int) -> tuple[Waiting | None, str]:
        if not self._ask_core().is_leader:
            return None, "this node does not lead"
        waiting = self.waiting
        if waiting is None:
            return None, "this node is not blocked: it applies what is committed"
        if waiting.index != index:
            return None, f"this node is blocked at entry {waiting.index}, not {index}"
        return waiting, ""

    def _voters(self) -> list[str]:
        """All other members except those known to have lost their logs, which copy the decision
        later.
        """
        return [peer for peer in self._others if self._membership.standing_of(peer) is not Standing.REBUILDING]

    def _all_agree(self, waiting: Waiting) -> bool:
        if self._log.synced_index < waiting.asked_at:
            return False
        for peer in self._voters():
            found = self._known.get(peer)
            if found is None or found[0] != waiting or found[1] < waiting.asked_at:
                return False
        return True

    def _hand_over(self, core: Core) -> None:
        """Hand over to a member that is not blocked and can serve."""
        for peer in self._others:
            if self._membership.counts(peer) and peer not in self._known and core.has_all(peer):
                core.hand_over(peer)
                return

    def _tell_those_that_wait(self, core: Core) -> None:
        """Withdraw requests for entries that this node has applied, for the nodes that wait.
        No node will ever skip them. If one was skipped, DONE is on its way to the waiting nodes.
        """
        for waiting in {waiting for waiting in self.peers.values() if waiting.asked_at}:
            if waiting.index <= core.raftLastApplied and self._log.first_index <= waiting.index:
                self._say(Stage.WITHDRAWN, waiting)

    def _say(self, stage: Stage, waiting: Waiting) -> str:
        parts: list[bytes | bytearray | memoryview] = [BODY.pack(stage, waiting.index, waiting.crc)]
        append = self._ask_core().append
        is_said = is_done(lambda: append(parts, NO_VERSION, urgent=True, kind=EntryKind.PASS_OVER))
        return "" if is_said else "its disk is full"
