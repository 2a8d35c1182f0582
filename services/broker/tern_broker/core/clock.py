"""The logical clock of a broker group: advances by the leader's monotonic clock, never goes back, approaches the wall clock slowly.

A lease must not end early because a host's wall clock was set, so a difference of more than 5 s is closed by at most 1 % of the
time that passes.
"""

from dataclasses import dataclass

JUMP_MS = 5_000
SLEW = 0.01


@dataclass(slots=True)
class LogicalClock:
    """Owner: the leader's proposer. Start anew with each leadership."""

    now_ms: int
    mono_ms: int

    def advance(self, applied_ms: int, mono_ms: int, wall_ms: int) -> int:
        """The time for the next entry: not before *applied_ms*, the last one applied."""
        passed = max(0, mono_ms - self.mono_ms)
        self.mono_ms = mono_ms
        ahead = wall_ms - (self.now_ms + passed)
        is_near = abs(ahead) <= JUMP_MS
        step = passed + (ahead if is_near else int(max(-SLEW * passed, min(SLEW * passed, ahead))))
        self.now_ms = max(self.now_ms + max(0, step), applied_ms)
        return self.now_ms


def start_clock(applied_ms: int, mono_ms: int, wall_ms: int, expected_ms: int | None) -> LogicalClock:
    """A new leader begins at the wall clock, unless the group's time is ahead of it already.

    *expected_ms*: the group's time as this node has followed it since its last entry, None if it has not. A wall clock that differs from it by more
    than a jump is approached, not believed: else every lease and idempotency key would end with the change of leader.
    """
    is_near = expected_ms is None or abs(wall_ms - expected_ms) <= JUMP_MS
    start_ms = wall_ms if is_near or expected_ms is None else expected_ms
    return LogicalClock(now_ms=max(applied_ms, start_ms), mono_ms=mono_ms)
