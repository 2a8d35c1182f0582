"""Read barriers: an answer from the leader's state is current only if it led after the question came.

A round asks every peer at once (an empty append with a number); when a majority has answered in the leader's term, all questions that
waited when the round began may be answered from the state, as soon as everything that was committed then is applied. Questions that
come meanwhile wait for the next round. Reference: Raft dissertation, 6.4 (ReadIndex).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tern_remoting import tell
from tern_store import StoreError, SyncLost

# Told whether the state may be read now; False: this node does not lead (any more), or the first answer has failed.
Ready = Callable[[bool], None]


@dataclass(slots=True)
class _Round:
    asked: dict[str, int]
    index: int
    waiting: list[Ready]
    confirmed: set[str] = field(default_factory=set)


class ReadBarrier:
    """Owner: the node. *members*: the size of the group."""

    def __init__(self, members: int) -> None:
        self._members = members
        self._waiting: list[Ready] = []
        self._round: _Round | None = None

    @property
    def wants_round(self) -> bool:
        """Whether somebody waits and no round is under way."""
        return bool(self._waiting) and self._round is None

    @property
    def is_busy(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting) or self._round is not None

    def ask(self, ready: Ready) -> None:
        """Tell *ready* when the state may be read."""
        self._waiting.append(ready)

    def begin(self, asked: dict[str, int], commit_index: int) -> None:
        """A round has begun: the number of the message that each peer was sent."""
        self._round = _Round(asked, commit_index, self._waiting)
        self._waiting = []

    def answered(self, peer: str, number: int) -> None:
        """*peer*, a member, has answered message *number* in the leader's term."""
        if self._round is not None and number >= self._round.asked.get(peer, 0) > 0:
            self._round.confirmed.add(peer)

    def join(self, peer: str, number: int) -> None:
        """*peer* has a new link: the next message to it asks again."""
        if self._round is not None and peer not in self._round.confirmed:
            self._round.asked[peer] = number

    def settle(self, applied: int) -> None:
        """Answer those whose round is over."""
        done = self._round
        if done is not None and (len(done.confirmed) + 1) * 2 > self._members and applied >= done.index:
            self._round = None
            for ready in done.waiting:
                _tell(ready, True)

    def fail(self) -> None:
        """This node does not lead: nobody may read."""
        waiting = (self._round.waiting if self._round is not None else []) + self._waiting
        self._waiting, self._round = [], None
        for ready in waiting:
            _tell(ready, False)


def _tell(ready: Ready, is_current: bool) -> None:
    """A reader whose answer fails costs the others nothing; a damaged log or file ends the node."""
    tell(partial(ready, is_current), lambda _: ready(False), ends=(StoreError, SyncLost))
