"""Timers on several nodes, which look at different times and were made at different times; and found one by one, or as a page."""

import random
from pathlib import Path

import numpy as np
import pytest

from tern_store.timers.timers import Timers
from tern_store.timers.walk import TimerPage
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.timer_calls import DAY, HOUR, MINUTE, NOW, SECOND, drain, due, listed, pairs, timer_rows


def small() -> Timers:
    """Timers whose windows and files are small."""
    return Timers.open(Path("/data"), window_rows=64, rows_per_file=64, files=FaultyFiles())


@pytest.mark.parametrize("seed", range(10))
def test_looking_changes_neither_what_is_pending_nor_its_order(seed: int) -> None:
    """A leader looks often, a follower only when the log says so: both hand out the same rows, in the same order."""
    rng = random.Random(seed)
    leader, follower = small(), small()
    now_ms, ids = NOW, 0
    for _ in range(120):
        now_ms += rng.choice([1, 400, MINUTE, HOUR])
        times = [now_ms + rng.randrange(1, rng.choice([SECOND, MINUTE, HOUR, DAY])) for _ in range(rng.choice([1, 30]))]
        for timers in (leader, follower):
            timers.add(timer_rows(times, ids))
        ids += len(times)
        for _ in range(rng.randrange(4)):
            leader.peek(now_ms - rng.randrange(3), rng.choice([1, 50]))
            leader.look_ahead(now_ms + rng.randrange(HOUR))
            leader.next_due_ms()
        if rng.random() < 0.3 and (waiting := pairs(listed(leader, 0, now_ms + DAY, 100))):
            pair = rng.choice(waiting)
            assert leader.cancel(*pair)
            assert follower.cancel(*pair)
        rows = leader.peek(now_ms, rng.choice([1, 7, 100]))
        assert leader.take(rows, now_ms) == follower.take(rows, now_ms) == 0
        assert leader.pending == follower.pending
    assert drain(leader, now_ms + 2 * DAY, 9) == drain(follower, now_ms + 2 * DAY, 1_000)


def test_rows_are_taken_that_lie_in_another_order_and_those_that_are_missing_are_counted() -> None:
    """A node that made its timers again from a shorter log has fewer of them: what the log says is gone, is gone."""
    timers = small()
    due(timers, NOW, 1)
    times = [NOW + at % 5 * SECOND for at in range(300)] + [NOW + 3 * HOUR]
    timers.add(timer_rows(times))
    rows = timer_rows(times)[:300][::-1]
    assert timers.take(rows[:100], NOW + MINUTE) == 0
    assert timers.take(np.concatenate((rows[50:150], timer_rows([NOW + 7, NOW + HOUR], 1_000))), NOW + MINUTE) == 52
    assert timers.pending == 151
    left = sorted(zip(times[:150], range(150), strict=True), key=lambda pair: pair[0])
    assert drain(timers, NOW + MINUTE) == left
    assert drain(timers, NOW + DAY) == [(NOW + 3 * HOUR, 300)]


def test_a_timer_is_found_while_it_is_pending() -> None:
    """Before and behind rows that retention has moved, whose ids do not rise; not when it was taken, cancelled, or never was."""
    timers = small()
    due(timers, NOW, 1)
    times = [NOW + MINUTE + at % 7 for at in range(500)]
    timers.add(timer_rows(times))
    moved = timer_rows(times)[100:200]
    moved["position"] = 5_000
    assert timers.cancel_all(moved).all()
    timers.add(moved)
    timers.add(timer_rows([NOW + MINUTE] * 3, 500))
    for timer_id in (0, 99, 100, 150, 199, 200, 499, 500, 502):
        time_ms = (times + [NOW + MINUTE] * 3)[timer_id]
        (found,) = timers.find(time_ms, timer_id)
        assert (found["timer_id"], found["deliver_ms"]) == (timer_id, time_ms)
        assert (found["position"] == 5_000) == (100 <= timer_id < 200)
        assert not len(timers.find(time_ms + 1, timer_id))
    assert not len(timers.find(NOW + MINUTE, 503))
    assert timers.cancel(times[150], 150)
    assert not timers.cancel(times[150], 150)
    assert not len(timers.find(times[150], 150))
    taken = due(timers, NOW + MINUTE, 1)
    assert not len(timers.find(*pairs(taken)[0]))


def test_a_page_is_whole_though_timers_change_while_it_is_gathered() -> None:
    """Between two pieces timers come due, are cancelled, added, and spread: what was pending all the while is listed, once."""
    timers = small()
    due(timers, NOW, 1)
    times = [NOW + 2 * HOUR + at * 7 % HOUR for at in range(900)]
    timers.add(timer_rows(times))
    page = TimerPage(NOW, NOW + DAY, 10_000)
    gone: set[int] = set()
    for number, piece in enumerate(timers.walk(page.begin_ms, page.end_ms)):
        assert page.add(*piece)
        timers.look_ahead(NOW + HOUR)  # rows go from the hour that is walked over to its minutes
        if number < 20:
            timers.add(timer_rows([NOW + 2 * HOUR + number], 10_000 + number))
            gone.add(number * 40)
            assert timers.cancel(times[number * 40], number * 40)
    found = [timer_id for timer_id in page.rows["timer_id"].tolist() if timer_id < 10_000]
    assert len(found) == len(set(found))
    assert set(range(900)) - gone <= set(found)
