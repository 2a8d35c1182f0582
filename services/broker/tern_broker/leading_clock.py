"""The group's time for new entries, while this node leads: started once a term, from the members'
clocks or the time that this node has followed.
"""

from collections.abc import Callable

from tern_broker.core.clock import UNKNOWN, ClockRange, LogicalClock, may_start, start_clock

# A leader without the group's time waits this long for the clock of one more member.
CLOCK_WAIT_MAX_MS = 3_000


class LeadingClock:
    """Owner: the proposer."""

    def __init__(
        self,
        *,
        applied_ms: Callable[[], int],
        mono_ms: Callable[[], int],
        clocks: Callable[[], ClockRange],
        expected_ms: Callable[[], int | None],
        is_serving: Callable[[], bool],
    ) -> None:
        """*applied_ms*: the time of the applied state. *clocks*: the range of the members' wall
        clocks. *expected_ms*: see `start_clock`.
        """
        self._applied_ms, self.mono_ms, self._clocks = applied_ms, mono_ms, clocks
        self._expected_ms, self._is_serving = expected_ms, is_serving
        # None while it does not run.
        self.clock: LogicalClock | None = None
        # Since when this node has wanted to start its clock (ms, monotonic).
        self._due_ms: int | None = None

    def stop(self) -> None:
        """Start the clock anew when it is needed next: the term has changed."""
        self.clock = self._due_ms = None

    def now_ms(self) -> int:
        """Return the group's time, which advances without requests, as far as it is known here."""
        applied_ms = self._applied_ms()
        if not self.is_running() or self.clock is None:
            return max(applied_ms, self._expected_ms() or 0)
        return self.clock.advance(applied_ms, self.mono_ms(), self._clocks())

    def is_running(self) -> bool:
        """Return whether this leader has a clock; until then it proposes nothing."""
        if self.clock is not None:
            return True
        if not self._is_serving():
            return False
        applied_ms, mono_ms, clocks = self._applied_ms(), self.mono_ms(), self._clocks()
        if self._due_ms is None:
            self._due_ms = mono_ms
        if (expected_ms := self._expected_ms()) is None and not may_start(applied_ms, clocks):
            is_over = mono_ms - self._due_ms >= CLOCK_WAIT_MAX_MS
            if clocks is UNKNOWN or not is_over:
                return False
        self.clock = start_clock(applied_ms, mono_ms, clocks, expected_ms)
        return True
