"""Read barriers: a read is current only if this node led after the read was requested.

A round sends every peer an empty append with a number. When a majority has answered in the leader's
term, all reads that waited when the round began may proceed, as soon as everything committed by
then is applied. Later reads wait for the next round. Reference: Raft dissertation, 6.4 (ReadIndex).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tern_remoting import tell
from tern_store import StoreError, SyncLost

# Called with whether the state may be read now; False: this node does not lead (any more), or the
# first call has raised.
Ready = Callable[[bool], None]


@dataclass(slots=True)
class _Round:
    asked: dict[str, int]
    index: int
    waiting: list[Ready]
    confirmed: set[str] = field(default_factory=set)


class ReadBarrier:
    """The waiting reads of a leader. Owner: the node. *members*: the size of the group."""

    def __init__(self, members: int) -> None:
        self._members = members
        self._waiting: list[Ready] = []
        self._round: _Round | None = None

    @property
    def wants_round(self) -> bool:
        """Whether reads wait and no round is under way."""
        return bool(self._waiting) and self._round is None

    @property
    def is_busy(self) -> bool:
        """Whether any reads wait."""
        return bool(self._waiting) or self._round is not None

    def ask(self, ready: Ready) -> None:
        """Call *ready* when the state may be read."""
        self._waiting.append(ready)

    def begin(self, asked: dict[str, int], commit_index: int) -> None:
        """Begin a round. *asked*: the number of the message sent to each peer."""
        self._round = _Round(asked, commit_index, self._waiting)
        self._waiting = []

    def answered(self, peer: str, number: int) -> None:
        """Count an answer of *peer*, a member, to message *number* in the leader's term."""
        if self._round is not None and number >= self._round.asked.get(peer, 0) > 0:
            self._round.confirmed.add(peer)

    def join(self, peer: str, number: int) -> None:
        """Expect the round's answer from a reconnected *peer* to its next message, *number*."""
        if self._round is not None and peer not in self._round.confirmed:
            self._round.asked[peer] = number

    def settle(self, applied: int) -> None:
        """Complete the reads of a finished round."""
        done = self._round
        if done is not None and (len(done.confirmed) + 1) * 2 > self._members and applied >= done.index:
            self._round = None
            for ready in done.waiting:
                _tell(ready, True)

    def fail(self) -> None:
        """Fail all waiting reads: this node does not lead."""
        waiting = (self._round.waiting if self._round is not None else []) + self._waiting
        self._waiting, self._round = [], None
        for ready in waiting:
            _tell(ready, False)


def _tell(ready: Ready, is_current: bool) -> None:
    """Call *ready*: its exceptions do not affect other reads, but a damaged log or file ends the
    node.
    """
    tell(partial(ready, is_current), lambda _: ready(False), ends=(StoreError, SyncLost))
