"""The way past an entry that no member can apply: the operator asks, every voter agrees, and the log says so.

A node that cannot apply an entry blocks in front of it (its owner says which), keeps log and votes, and tells the leader so with every
acknowledgement. The words about such an entry are entries of the log, big-endian:

     0       1         9        13
     | stage | index 8 | crc 4  |     of the entry that is meant; the crc tells it from any other of that index

1. ASKED: the leader's, when an operator has told it and all voters are blocked there. Whoever has this in its log waits in front of the entry, even
   if its release could apply it.
2. DONE: the leader's, when every voter has acknowledged ASKED and is still in front of the entry. Once it is committed all pass over the entry.
3. WITHDRAWN: the operator has changed his mind, or somebody has applied the entry before ASKED reached it. Whoever waits tries to apply it again.

Law: nobody passes over an entry that a voter has applied. What a voter acknowledges is on its disk, so it cannot apply the entry between its
word and DONE, whatever restarts and upgrades come; and every later leader is a voter that has ASKED, and goes on from there. DONE is final.
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
# How often a leader that is blocked looks for an heir that is not, and one that is past the entry tells those that wait.
AGAIN_AFTER_S = 2.0


class Stage(IntEnum):
    """What an entry of kind PASS_OVER says."""

    ASKED = 0
    DONE = 1
    WITHDRAWN = 2


class Verdict(Enum):
    """What becomes of an entry whose turn has come."""

    APPLY = "apply"
    WAIT = "wait"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Word:
    """One entry of kind PASS_OVER, at index *at* of the log, about entry *index* with checksum *crc*."""

    at: int
    stage: int
    index: int
    crc: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A node that waits in front of entry *index*: because it cannot apply it, or because of ASKED at *asked_at* (0: nobody has asked)."""

    index: int
    crc: int
    asked_at: int


def read_word(entry: StoredEntry) -> Word:
    """The word in *entry*; one that no release of ours writes is about no entry."""
    if len(entry.body) != BODY.size:
        return Word(entry.index, Stage.WITHDRAWN, 0, 0)
    return Word(entry.index, *BODY.unpack(entry.body))


class PassOver:
    """Of one node. Owner: the node."""

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
        # What this node cannot apply, as its owner says: index and crc.
        self.blocked: tuple[int, int] | None = None
        # Where each peer waits, and what it has acknowledged with the same words, in the term in which this node leads.
        self._heard: dict[str, tuple[Waiting, int]] = {}
        self._heard_in_term = 0
        self._again_s = 0.0

    # Every node ------------------------------------------------------------------------------------------------
    def verdict(self, index: int) -> Verdict:
        """What becomes of committed entry *index*, which is the next to be applied."""
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
        """Where this node waits; None: it applies what is committed."""
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

    # The leader ------------------------------------------------------------------------------------------------
    @property
    def peers(self) -> dict[str, Waiting]:
        """Which peers wait, as they said with their last acknowledgement; a follower knows nothing."""
        return {peer: waiting for peer, (waiting, _) in self._known.items()}

    @property
    def _known(self) -> dict[str, tuple[Waiting, int]]:
        core = self._ask_core()
        return self._heard if core.is_leader and core.raftCurrentTerm == self._heard_in_term else {}

    def heard(self, peer: str, waiting: Waiting | None, acked: int) -> None:
        """*peer* has acknowledged the log up to *acked* (0: nothing) and said in the same message where it waits."""
        if (term := self._ask_core().raftCurrentTerm) != self._heard_in_term:
            self._heard_in_term = term
            self._heard.clear()
        if waiting is not None:
            self._heard[peer] = waiting, acked
        else:
            self._heard.pop(peer, None)

    def lost(self, peer: str) -> None:
        """The link to *peer* is gone, or new: what it says next may be said by another process."""
        self._heard.pop(peer, None)

    def ask(self, index: int) -> str:
        """An operator wants entry *index* to be passed over; why not, or empty. It is done when every voter has agreed."""
        waiting, reason = self._own(index)
        if reason or waiting is None:
            return reason
        for peer in self._voters():
            found = self._known.get(peer)
            if found is None or (found[0].index, found[0].crc) != (index, waiting.crc):
                return f"'{peer}' has not said that it cannot apply entry {index}; all members must say so"
        return "" if waiting.asked_at else self._say(Stage.ASKED, waiting)

    def withdraw(self, index: int) -> str:
        """An operator wants entry *index* to be tried again; why not, or empty."""
        waiting, reason = self._own(index)
        if reason or waiting is None:
            return reason
        return self._say(Stage.WITHDRAWN, waiting) if waiting.asked_at else "nobody has asked to pass over it"

    def step(self) -> None:
        """Called every few ms on every node."""
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
        """All other members but those that are known to have lost what they had: these learn of it from the log that they copy."""
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
        """Somebody who is not blocked can lead and serve."""
        for peer in self._others:
            if self._membership.counts(peer) and peer not in self._known and core.has_all(peer):
                core.hand_over(peer)
                return

    def _tell_those_that_wait(self, core: Core) -> None:
        """This node has applied what others wait for, so nobody will ever pass over it (if it was passed over, DONE is on its way to them)."""
        for waiting in {waiting for waiting in self.peers.values() if waiting.asked_at}:
            if waiting.index <= core.raftLastApplied and self._log.first_index <= waiting.index:
                self._say(Stage.WITHDRAWN, waiting)

    def _say(self, stage: Stage, waiting: Waiting) -> str:
        parts: list[bytes | bytearray | memoryview] = [BODY.pack(stage, waiting.index, waiting.crc)]
        append = self._ask_core().append
        is_said = is_done(lambda: append(parts, NO_VERSION, urgent=True, kind=EntryKind.PASS_OVER))
        return "" if is_said else "its disk is full"
