"""The group's time as this node knows it: what it has followed, what the members' clocks say, and what it tells its followers."""

from collections.abc import Callable

from tern_broker.core.clock import LOSS, ClockRange, range_of
from tern_broker.proposer import Proposer
from tern_raft import RaftNode


class GroupTime:
    """Owner: the core loop."""

    def __init__(self, *, members: int, raft: Callable[[], RaftNode], monotonic: Callable[[], float]) -> None:
        self._members, self._raft, self._monotonic = members, raft, monotonic
        # The group's time as a leader that serves told it last, while this node ran, and this node's clock then (ms). An entry does not tell it:
        # it may have been proposed long before it is applied, by a leader that nobody heard for minutes.
        self._seen: tuple[int, int] | None = None

    def seen(self, now_ms: int) -> None:
        """A leader that serves says so just now. Its word may have been long on its way, so it does not count for less than what was
        known before and the slowest that the group's time goes."""
        mono_ms = int(self._monotonic() * 1000)
        if self._seen is not None:
            last_ms, then_ms = self._seen
            now_ms = max(now_ms, last_ms + int((mono_ms - then_ms) * (1 - LOSS)))
        self._seen = (now_ms, mono_ms)

    def expected_ms(self) -> int | None:
        """The group's time now by what this node has followed; None: nothing since it started."""
        if self._seen is None:
            return None
        now_ms, mono_ms = self._seen
        return now_ms + int(self._monotonic() * 1000) - mono_ms

    def clocks(self) -> ClockRange:
        """What the members' wall clocks say."""
        return range_of(self._raft().clocks.walls_ms(), self._members)

    def ahead_ms(self, now_ms: int) -> int:
        """How far *now_ms*, the group's time, is ahead of the members' clocks; negative: behind; 0 where they do not say."""
        return -self.clocks().ahead_ms(now_ms)

    def tell_by(self, proposer: Proposer) -> None:
        """From now on followers hear *proposer*'s time while this node leads, and this node hears that of the one that it follows."""

        def tell_ms() -> int:
            if not self._raft().is_serving or not proposer.has_clock():
                return 0
            self.seen(now_ms := proposer.now_ms())
            return now_ms

        self._raft().clocks.group_ms, self._raft().clocks.on_group_ms = tell_ms, self.seen
