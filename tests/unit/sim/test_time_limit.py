"""Campaigns that end in time: what was begun counts, and what was not is said."""

from collections.abc import Iterator
from itertools import count

from tests.support.time_limit import TimeLimit


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_results_are_taken_until_the_time_is_over_and_one_in_any_case() -> None:
    """An endless campaign ends with the first result behind its time."""
    clock = Clock()
    limit = TimeLimit(10, clock)

    def results(step_s: float) -> Iterator[int]:
        for number in count(1):
            clock.now_s += step_s
            yield number

    assert list(limit.taken(results(4))) == [1, 2, 3]
    assert list(limit.taken(results(1))) == [1]
    assert list(TimeLimit(0, clock).taken(range(5))) == [0, 1, 2, 3, 4]


def test_cases_are_shared_out_by_the_speed_so_far() -> None:
    """A machine that is too slow for all of them tries as many at each step as fit, and never none."""
    clock = Clock()
    limit = TimeLimit(100, clock)
    assert limit.share(50, 0, 10) == 50, "nothing is known about its speed"
    clock.now_s += 20
    assert limit.share(50, 100, 8) == 50, "5 a second: 50 at each of the 8 steps"
    assert limit.share(50, 10, 8) == 5
    clock.now_s += 80
    assert limit.share(50, 100, 4) == 1
    assert TimeLimit(0, clock).share(50, 100, 1) == 50
