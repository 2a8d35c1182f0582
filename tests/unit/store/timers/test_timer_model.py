"""Timers against a dictionary: any calls, at any times, restarted from either of two saved states anywhere in between."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.timer_calls import DAY, HOUR, NOW, TimerModel, drain, make, small_timers

DIRECTORY = Path("/data")


@pytest.mark.parametrize("seed", range(18))
def test_every_answer_is_that_of_a_dictionary(seed: int) -> None:
    """Each call is right; after a power cut the older or newer saved state and the same later calls give the same answers."""
    rng, files, model, now_ms = random.Random(seed), FaultyFiles(), TimerModel(), NOW
    timers = small_timers(DIRECTORY, random.Random(seed), files)
    steps_ms = ([0, 1, 300], [0, 5_000, 20_000], [0, 1, 20_000, 60_000, HOUR, 3 * DAY])[seed % 3]
    calls: list[tuple[Any, Any]] = []
    saved: list[tuple[Any, int]] = []
    for _ in range(200):
        now_ms += rng.choice(steps_ms)
        what = rng.random()
        if what < 0.04:
            job = timers.flush()
            marks = timers.marks()
            job.run()
            timers.saved()
            saved = [*saved[-1:], (marks, len(calls))]
        elif what < 0.06 and saved:
            files.crash(rng)
            saved = saved[: rng.choice([1, len(saved)])]
            timers = small_timers(DIRECTORY, random.Random(seed), files)
            timers.restore(saved[-1][0])
            for call, result in calls[saved[-1][1] :]:
                assert make(timers, call) == result
        else:
            call = model.draw(rng, now_ms)
            result = make(timers, call)
            model.check(call, result)
            calls.append((call, result))
        next_ms = timers.next_due_ms()
        assert timers.pending == len(model.pending)
        assert (next_ms is None) == (not model.pending)
        assert next_ms is None or next_ms <= min(time_ms for time_ms, _ in model.pending.values())
    assert sorted(timer_id for _, timer_id in drain(timers, now_ms + 41 * DAY)) == sorted(model.pending)
    assert timers.pending == 0
