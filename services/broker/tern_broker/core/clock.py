"""The logical clock of a broker group: it goes on by the leader's monotonic clock, never goes back, and approaches what the members' clocks say.

A leader believes no single wall clock, its own included: it follows the median of all members' clocks. Members that are silent may say
anything, so the median is known as a range (`ClockRange`), and the time moves only to what every value in it demands.

Law: with a majority of clocks within some bound of the true time, they never move the group's time further ahead of it than that bound.
A lease must not end early because a host's clock was set: beyond a jump of 5 s the time gains at most 1 %. What is ahead comes back
at half the speed, so that nothing ends early or waits more than twice its time; time that is ahead by more than an hour loses 1 %.
"""

from collections.abc import Sequence
from dataclasses import dataclass

JUMP_MS = 5_000
GAIN = 0.01
# How much slower the time goes that is ahead: for an hour's lead two hours. A larger one would double every lease for days.
LOSS, LOSS_LEAD_MAX_MS = 0.5, 3_600_000
LARGE_LOSS = 0.01
# Later than every time.
NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class ClockRange:
    """Where the median of all members' wall clocks lies (ms since 1970), whatever those say that are silent."""

    low_ms: int
    high_ms: int

    def ahead_ms(self, now_ms: int) -> int:
        """How far the members' clocks are ahead of *now_ms*; negative when it is ahead of them."""
        return max(self.low_ms - now_ms, min(self.high_ms - now_ms, 0))

    @property
    def is_narrow(self) -> bool:
        """Whether it says what time it is."""
        return self.high_ms - self.low_ms <= JUMP_MS


# Less than a majority has spoken.
UNKNOWN = ClockRange(0, NEVER_MS)


def range_of(walls_ms: Sequence[int], members: int) -> ClockRange:
    """What the clocks that were heard say of the median of all *members*' clocks."""
    heard, middle = sorted(walls_ms), members // 2
    if len(heard) <= middle:
        return UNKNOWN
    return ClockRange(heard[middle - (members - len(heard))], heard[middle])


@dataclass(slots=True)
class LogicalClock:
    """Owner: the leader's proposer. Start anew with each leadership."""

    now_ms: int
    mono_ms: int
    # What has passed of the next millisecond: else steps that are asked for often would never gain or lose one.
    _part_ms: float = 0.0

    def advance(self, applied_ms: int, mono_ms: int, clocks: ClockRange) -> int:
        """The time for the next entry: not before *applied_ms*, the last one applied."""
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
    """Whether a leader that knows nothing of the group's time but *applied_ms* knows enough: another clock could set it later."""
    return clocks.is_narrow or clocks.high_ms - applied_ms <= JUMP_MS


def start_clock(applied_ms: int, mono_ms: int, clocks: ClockRange, expected_ms: int | None) -> LogicalClock:
    """A new leader goes on from *expected_ms*, the group's time as this node has followed it.

    None: it has followed nothing, since the whole group was down. Then time has passed that nobody has counted, and the members' clocks
    say how much; never less than none.
    """
    start_ms = clocks.low_ms if expected_ms is None else expected_ms
    return LogicalClock(now_ms=max(applied_ms, start_ms), mono_ms=mono_ms)
