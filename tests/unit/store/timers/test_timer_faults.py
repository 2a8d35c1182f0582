"""Timers on disks that rot, lose power and run full: never a wrong row, never one that is lost."""

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage
from tern_store.timers.timers import Timers
from tests.support.files.faulty_files import FaultyFiles, PowerCut
from tests.support.files.timer_calls import (
    DAY,
    HOUR,
    MINUTE,
    NOW,
    Pair,
    TimerModel,
    drain,
    due,
    make,
    pairs,
    timer_rows,
)

DIRECTORY = Path("/data")
Saved = tuple[FaultyFiles, dict[str, Any], list[Pair]]


def opened(files: FaultyFiles) -> Timers:
    return Timers.open(
        DIRECTORY, window_rows=128, rows_per_file=64, buffer_max_bytes=20_000, open_files_max=4, files=files
    )


def some() -> list[int]:
    """Times of 700 timers: 400 in a minute, the others over six hours, so that there are buckets of several blocks."""
    rng = random.Random(9)
    near = [NOW + 2 * MINUTE + rng.randrange(MINUTE) for _ in range(400)]
    return near + [NOW + rng.randrange(6 * HOUR) for _ in range(300)]


@pytest.fixture(scope="module")
def saved() -> Saved:
    """A disk with some timers, half of them cancelled; its marks; what it must hand out."""
    files = FaultyFiles()
    timers = opened(files)
    due(timers, NOW, 1)
    times = some()
    timers.add(timer_rows(times))
    for timer_id in range(0, 700, 2):
        assert timers.cancel(times[timer_id], timer_id)
    job = timers.flush()
    marks = timers.marks()
    job.run()
    alive = [(time_ms, timer_id) for timer_id, time_ms in enumerate(times) if timer_id % 2]
    return files, marks, sorted(alive, key=lambda pair: pair[0])


def restored(saved: Saved) -> tuple[FaultyFiles, Timers]:
    """Another machine with that disk."""
    files = saved[0].fork()
    timers = opened(files)
    timers.restore(saved[1])
    return files, timers


def found_by(timers: Timers) -> list[DerivedDamage]:
    return [found for found in timers.verify() if isinstance(found, DerivedDamage)]


def test_a_sound_disk_verifies(saved: Saved) -> None:
    """Everything that is on disk is read, nothing is found."""
    files, timers = restored(saved)
    reports = list(timers.verify())
    assert all(isinstance(report, Checked) for report in reports)
    size = sum(len(files.content(path)) for path in files.paths(DIRECTORY) if path.suffix != ".crc")
    assert sum(report.size_bytes for report in reports if isinstance(report, Checked)) == size > 0


@pytest.mark.parametrize("seed", range(40))
def test_damage_is_found_and_never_handed_out(saved: Saved, seed: int) -> None:
    """A flipped bit, a cut file, zeros: whatever is handed out is right, and once it is healed nothing was lost."""
    (files, timers), rng, alive = restored(saved), random.Random(seed), saved[2]
    path = rng.choice(files.paths(DIRECTORY))
    content = files.content(path)
    good, at = bytes(content), rng.randrange(len(content) // 2)
    content[at:] = rng.choice([b"", bytes(len(content) - at), bytes([content[at] ^ 8]) + content[at + 1 :]])
    assert content != good
    named = {path, path.with_suffix("")}  # a block and its check disagree: nobody knows which of them is right
    assert {damage.file for damage in found_by(timers)} <= named
    assert found_by(timers)
    found: list[Pair] = []
    while True:
        try:
            while len(rows := due(timers, NOW + DAY, 50)):
                found += pairs(rows)
            break
        except DerivedDamage as damage:
            assert damage.file in named
            assert found == alive[: len(found)]
            content[:] = good
    assert found == alive


def test_a_missing_file_is_noticed_by_restore(saved: Saved) -> None:
    """Each file of rows, and each of checks, that the marks need; then `wipe` leaves nothing and timers can be added anew."""
    for path in saved[0].paths(DIRECTORY):
        files = saved[0].fork()
        files.unlink(path)
        timers = opened(files)
        with pytest.raises(DerivedDamage) as caught:
            timers.restore(saved[1])
        assert caught.value.file == path
        timers.wipe()
        assert files.paths(DIRECTORY) == []
        timers.add(timer_rows([NOW]))
        assert drain(timers, NOW) == [(NOW, 0)]


@pytest.mark.parametrize("seed", range(30))
def test_power_may_go_at_any_operation(seed: int) -> None:
    """Cut the power during some operation; the newest saved state and the calls behind it are everything, in order."""
    rng, files, model, now_ms = random.Random(seed), FaultyFiles(), TimerModel(), NOW
    files.makedirs(DIRECTORY)
    timers = opened(files)
    calls: list[Any] = []
    states: list[tuple[Any, int]] = []
    files.cut_at = files.operations + rng.randrange(1, 150)
    try:
        while True:
            for _ in range(10):
                now_ms += rng.choice([1, 30_000, HOUR])
                calls.append(model.draw(rng, now_ms))
                model.check(calls[-1], make(timers, calls[-1]))
            job = timers.flush()
            marks = timers.marks()
            job.run()
            states.append((marks, len(calls)))
            timers.saved()
    except PowerCut:
        files.crash(rng)
    for marks, count in states[-2:]:  # the state before the newest, too: the newest may be the one that rotted
        timers, model = opened(files), TimerModel()
        timers.restore(marks)
        replayed = opened(FaultyFiles())
        for number, call in enumerate(calls):
            result = make(replayed, call)
            if number >= count:
                assert make(timers, call) == result
        assert timers.pending == replayed.pending
        assert drain(timers, now_ms + 41 * DAY) == drain(replayed, now_ms + 41 * DAY)


def test_a_full_disk_loses_nothing() -> None:
    """Adds, cancels and hand-outs go on; `flush` says that the disk is full until there is room again."""
    files = FaultyFiles()
    timers = opened(files)
    due(timers, NOW, 1)
    files.capacity_bytes = 10_000
    # Few buckets: rows of very many would go with the marks instead of into files.
    times = sorted(some(), key=lambda ms: ms >= NOW + 2 * HOUR)
    times = [ms if ms < NOW + 10 * MINUTE else max(ms, NOW + 3 * HOUR) for ms in times]
    for first in range(0, 700, 100):
        timers.add(timer_rows(times[first : first + 100], first))
    assert timers.cancel(times[7], 7)
    alive = sorted(((ms, timer_id) for timer_id, ms in enumerate(times) if timer_id != 7), key=lambda pair: pair[0])
    found = drain(timers, NOW + HOUR)
    for _ in range(2):
        with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
            timers.flush()
    found += drain(timers, NOW + 5 * HOUR)
    files.capacity_bytes = None
    timers.flush().run()
    marks = timers.marks()
    timers = opened(files)
    timers.restore(marks)
    assert found + drain(timers, NOW + 3 * DAY) == alive
