"""The group's time on this node: the time that it has followed, the members' clocks, and the time
that it sends to its followers.
"""

from collections.abc import Callable

from tern_broker.core.clock import LOSS, ClockRange, range_of
from tern_broker.proposer import Proposer
from tern_raft import RaftNode


class GroupTime:
    """Owner: the core loop."""

    def __init__(self, *, members: int, raft: Callable[[], RaftNode], monotonic: Callable[[], float]) -> None:
        self._members, self._raft, self._monotonic = members, raft, monotonic
        # The group's time as last received from a serving leader, while this node ran, and this
        # node's clock then (ms). An entry does not carry it: it may have been proposed long before
        # it is applied, by a leader that was silent for minutes.
        self._seen: tuple[int, int] | None = None

    def seen(self, now_ms: int) -> None:
        """Record the time that a serving leader has just sent.

        The message may have been long on its way, so the time is at least the previous one advanced
        at the slowest rate of the group's time.
        """
        mono_ms = int(self._monotonic() * 1000)
        if self._seen is not None:
            last_ms, then_ms = self._seen
            now_ms = max(now_ms, last_ms + int((mono_ms - then_ms) * (1 - LOSS)))
        self._seen = (now_ms, mono_ms)

    def expected_ms(self) -> int | None:
        """Return the group's current time as this node has followed it; None: nothing since it
        started.
        """
        if self._seen is None:
            return None
        now_ms, mono_ms = self._seen
        return now_ms + int(self._monotonic() * 1000) - mono_ms

    def clocks(self) -> ClockRange:
        """Return the range of the members' wall clocks."""
        return range_of(self._raft().clocks.walls_ms(), self._members)

    def ahead_ms(self, now_ms: int) -> int:
        """Return how far *now_ms*, the group's time, is ahead of the members' clocks; negative:
        behind; 0: unknown.
        """
        return -self.clocks().ahead_ms(now_ms)

    def tell_by(self, proposer: Proposer) -> None:
        """Exchange the group's time with the other members.

        While this node leads, its followers receive *proposer*'s time; otherwise this node receives
        its leader's.
        """

        def tell_ms() -> int:
            if not self._raft().is_serving or not proposer.has_clock():
                return 0
            self.seen(now_ms := proposer.now_ms())
            return now_ms

        self._raft().clocks.group_ms, self._raft().clocks.on_group_ms = tell_ms, self.seen
