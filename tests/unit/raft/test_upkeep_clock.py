"""UpkeepClock: with heartbeats where there are some, by its timer where there are none, and never long without a step."""

import heapq
import itertools
import random
from collections.abc import Callable

import pytest

from tern_raft.upkeep_clock import PERIOD_S, SILENCE_S, WITH_HEARTBEAT_S, UpkeepClock


class Time:
    """The two methods of a runtime that a clock uses. Owner: one test."""

    def __init__(self) -> None:
        self.now_s, self.wakes = 100.0, 0
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call it in `until`."""
        assert delay_s >= 0
        heapq.heappush(self._timers, (self.now_s + delay_s, self.wakes + len(self._timers), callback))

    def until(self, then_s: float) -> None:
        """Let time pass; every timer that is due is a wake-up."""
        while self._timers and self._timers[0][0] <= then_s:
            self.now_s, _, callback = heapq.heappop(self._timers)
            self.wakes += 1
            callback()
        self.now_s = then_s


def running() -> tuple[Time, UpkeepClock, list[float]]:
    """A clock that has begun, and the times of its steps."""
    time, steps = Time(), list[float]()
    clock = UpkeepClock(lambda: steps.append(time.now_s), time)  # type: ignore[arg-type]
    clock.begin()
    return time, clock, steps


def test_without_heartbeats_it_steps_every_period() -> None:
    """A leader, a candidate, and a follower whose leader is silent."""
    time, _, steps = running()
    time.until(time.now_s + 10.0)
    assert len(steps) == 1 + int(10.0 / PERIOD_S)


def test_heartbeats_step_it_and_its_timer_sleeps() -> None:
    """As many steps as heartbeats, and a third of the timer's wake-ups."""
    time, clock, steps = running()
    begin_s = time.now_s
    for number in range(1, 201):
        time.until(begin_s + number * 0.125)
        clock.heartbeat()
    assert 195 <= len(steps) <= 205
    assert time.wakes <= 200 / 2.4
    assert max(later - earlier for earlier, later in itertools.pairwise(steps)) <= PERIOD_S + 0.001


def test_many_heartbeats_are_no_faster_clock() -> None:
    """A leader that is asked to prove itself sends more of them."""
    time, clock, steps = running()
    for _ in range(10_000):
        time.until(time.now_s + 0.001)
        clock.heartbeat()
    assert len(steps) <= 1 + 10.0 / WITH_HEARTBEAT_S


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_that_falls_silent_is_noticed_in_time(seed: int) -> None:
    """At any moment: a step within 0.4 s, the next ones every period, so that the shortest election time (0.5 s) is not missed."""
    rng = random.Random(seed)
    time, clock, steps = running()
    for _ in range(rng.randint(1, 60)):
        time.until(time.now_s + rng.uniform(0.05, 0.15))
        clock.heartbeat()
    silent_s, before = time.now_s, len(steps)
    time.until(silent_s + 5.0)
    after = steps[before:]
    assert after[0] - silent_s <= SILENCE_S + 1e-6
    assert all(later - earlier <= PERIOD_S + 1e-6 for earlier, later in itertools.pairwise(after))


def test_it_stops() -> None:
    """For a node that ends."""
    time, clock, steps = running()
    clock.stop()
    clock.heartbeat()
    time.until(time.now_s + 5.0)
    clock.heartbeat()
    assert len(steps) == 1
