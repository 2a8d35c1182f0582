"""A core loop that hangs ends the process; one that turns, or ends in order, does not."""

import threading
from collections.abc import Callable

from tern_raft.watchdog import MISSED_MAX, Watchdog


class Looks:
    """Stands where the watchdog waits between two looks: no time passes, the test says what happens meanwhile."""

    def __init__(self, count: int, between: Callable[[int], None]) -> None:
        self.count, self._between, self.number = count, between, 0

    def wait(self, _period_s: float) -> bool:
        """The next look; True: the loop has ended in order."""
        self.number += 1
        self._between(self.number)
        return self.number > self.count


def looked(count: int, is_beating: Callable[[int], bool]) -> bool:
    """Whether a watchdog gives the process up within *count* looks, when the loop turns before those that *is_beating* names."""
    hung = threading.Event()
    watchdog = Watchdog(hung.set, look_period_s=1000.0)
    watchdog.stop()
    looks = Looks(count, lambda number: watchdog.beat() if is_beating(number) else None)
    watchdog._stop = looks  # type: ignore[assignment]
    watchdog._watch()
    return hung.is_set()


def test_a_loop_that_does_not_turn_is_ended() -> None:
    """No beat for so many looks: by the clock and the thread of the real one."""
    hung = threading.Event()
    Watchdog(hung.set, look_period_s=0.001)
    assert hung.wait(10)


def test_a_loop_that_turns_is_left_alone() -> None:
    """Once between any two looks, many times over; or as seldom as may be."""
    assert not looked(20 * MISSED_MAX, lambda _: True)
    assert not looked(20 * MISSED_MAX, lambda number: number % MISSED_MAX == 0)


def test_a_loop_that_has_turned_for_long_and_hangs_is_ended() -> None:
    """After so many looks in a row without a beat, not one earlier."""
    assert not looked(100 + MISSED_MAX - 1, lambda number: number <= 100)
    assert looked(100 + MISSED_MAX, lambda number: number <= 100)
