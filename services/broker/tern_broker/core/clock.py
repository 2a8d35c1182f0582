"""The logical clock of a broker group. It advances by the leader's monotonic clock, never goes
back, and approaches the members' wall clocks.

A leader trusts no single wall clock, its own included: it follows the median of all members'
clocks. Silent members may have any clock, so the median is known as a range (`ClockRange`), and the
time moves only as far as every value in the range demands.

Law: with a majority of clocks within some bound of the true time, the group's time is never moved
further ahead of the true time than that bound. A lease must not end early because a host's clock
was set: beyond a jump of 5 s the time gains at most 1 %. A time that is ahead runs at half speed,
so nothing ends early or waits more than twice its time; a time that is ahead by more than an hour
loses 1 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass

JUMP_MS = 5_000
GAIN = 0.01
# The slowdown of a time that is ahead: an hour's lead takes two hours. For a larger lead this would
# double every lease for days.
LOSS, LOSS_LEAD_MAX_MS = 0.5, 3_600_000
LARGE_LOSS = 0.01
# Later than every time.
NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class ClockRange:
    """The range of the median of all members' wall clocks (ms since 1970), whatever the clocks of
    silent members are.
    """

    low_ms: int
    high_ms: int

    def ahead_ms(self, now_ms: int) -> int:
        """Return how far the members' clocks are ahead of *now_ms*; negative when *now_ms* is ahead
        of them.
        """
        return max(self.low_ms - now_ms, min(self.high_ms - now_ms, 0))

    @property
    def is_narrow(self) -> bool:
        """Whether the range is narrow enough to tell the time."""
        return self.high_ms - self.low_ms <= JUMP_MS


# Fewer than a majority of the clocks are known.
UNKNOWN = ClockRange(0, NEVER_MS)


def range_of(walls_ms: Sequence[int], members: int) -> ClockRange:
    """Return the range of the median of all *members*' clocks, given the clocks that were
    received.
    """
    heard, middle = sorted(walls_ms), members // 2
    if len(heard) <= middle:
        return UNKNOWN
    return ClockRange(heard[middle - (members - len(heard))], heard[middle])


@dataclass(slots=True)
class LogicalClock:
    """Owner: the leader's proposer. Each leadership starts a new one."""

    now_ms: int
    mono_ms: int
    # The elapsed part of the next millisecond. Without it, frequent small steps would never gain or
    # lose one.
    _part_ms: float = 0.0

    def advance(self, applied_ms: int, mono_ms: int, clocks: ClockRange) -> int:
        """Return the time for the next entry, not before *applied_ms*, the time of the last applied
        entry.
        """
        passed_ms = max(0, mono_ms - self.mono_ms)
        self.mono_ms = mono_ms
        ahead_ms = clocks.ahead_ms(self.now_ms + passed_ms)
        if 0 <= ahead_ms <= JUMP_MS:
            step_ms: float = passed_ms + ahead_ms
        elif ahead_ms > 0:
            step_ms = passed_ms * (1 + GAIN)
        else:
            loss = LOSS if -ahead_ms <= LOSS_LEAD_MAX_MS else LARGE_LOSS
            step_ms = passed_ms - min(passed_ms * loss, -ahead_ms)
        step_ms += self._part_ms
        self._part_ms = step_ms - int(step_ms)
        self.now_ms = max(self.now_ms + int(step_ms), applied_ms)
        return self.now_ms


def may_start(applied_ms: int, clocks: ClockRange) -> bool:
    """Return whether a leader whose only knowledge of the group's time is *applied_ms* may start:
    another clock might set it later.
    """
    return clocks.is_narrow or clocks.high_ms - applied_ms <= JUMP_MS


def start_clock(applied_ms: int, mono_ms: int, clocks: ClockRange, expected_ms: int | None) -> LogicalClock:
    """Start the clock of a new leader at *expected_ms*, the group's time as this node has followed
    it.

    None: the node has followed no time, since the whole group was down. The time that passed
    uncounted is then taken from the members' clocks, and is never negative.
    """
    start_ms = clocks.low_ms if expected_ms is None else expected_ms
    return LogicalClock(now_ms=max(applied_ms, start_ms), mono_ms=mono_ms)
