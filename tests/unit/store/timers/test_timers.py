"""Timers: handed out in order, once, never early, wherever they were kept until then; listed, cancelled, and cheap in memory."""

import random
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tern_store.errors import StoreError
from tern_store.timers.timers import Timers
from tern_wire.limits import TIMER_DELAY_MAX_MS
from tern_wire.link.timer_rows import FLAG_CANCELLED, TIMER_ROW_SIZE_BYTES
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.timer_calls import DAY, HOUR, MINUTE, NOW, SECOND, drain, due, listed, pairs, timer_rows

DIRECTORY = Path("/data")


def small(files: FaultyFiles, window_rows: int = 64) -> Timers:
    return Timers.open(DIRECTORY, window_rows=window_rows, rows_per_file=64, files=files)


def save(timers: Timers) -> dict[str, object]:
    job = timers.flush()
    marks = timers.marks()
    job.run()
    timers.saved()
    return marks


def test_a_row_has_the_bytes_that_are_drawn(tmp_path: Path) -> None:
    """48 bytes, big-endian, in the file of the first slot; a cancellation is a row of its own that names the other's number."""
    timers = Timers.open(tmp_path)
    rows = timer_rows([NOW, NOW])
    rows[1] = (NOW + 5, 1 << 40, 1 << 41, 1000, 7, 3, 1, -2)
    timers.add(rows)
    assert timers.cancel(NOW + 5, 1 << 40)
    timers.flush().run()
    first, second = (tmp_path / "timers" / slot / f"{0:020d}" for slot in "01")
    assert first.read_bytes()[48:] == struct.pack(">qqqIIIIq", NOW + 5, 1 << 40, 1 << 41, 1000, 7, 3, 1, -2)
    assert second.read_bytes() == struct.pack(">qqqIIIIq", NOW + 5, 1 << 40, 1, 0, 0, 0, FLAG_CANCELLED, 0)


def test_nothing_is_early_and_order_holds_across_all_borders() -> None:
    """Timers on both sides of seconds, minutes and hours, added in any order: each comes at its millisecond, not before."""
    timers = small(FaultyFiles())
    due(timers, NOW, 1)
    borders = [NOW + at for at in (SECOND, MINUTE, HOUR, 2 * HOUR, 2 * HOUR + MINUTE, 3 * HOUR, DAY, 40 * DAY)]
    times = [border + step for border in borders for step in (-1, 0, 1, 0)]
    random.Random(1).shuffle(times)
    timers.add(timer_rows(times))
    wanted = sorted(enumerate(times), key=lambda pair: pair[1])  # stable: by time, then by adding
    found = []
    for now_ms in sorted(set(times)):
        assert drain(timers, now_ms - 1, 3) == []
        assert timers.next_due_ms() == now_ms
        found += drain(timers, now_ms, 3)
        assert found[-1][0] == now_ms
    assert found == [(time_ms, at) for at, time_ms in wanted]
    assert (timers.pending, timers.next_due_ms()) == (0, None)


@pytest.mark.parametrize("days", [0, 1, 3, 50])
def test_after_a_jump_of_time_everything_comes_in_order(days: int) -> None:
    """2,000 timers over ten days, some hours with more than a window; the node comes back days later."""
    files, rng = FaultyFiles(), np.random.default_rng(days)
    timers = small(files)
    due(timers, NOW, 1)
    times = np.concatenate((NOW + rng.integers(0, 10 * DAY, 1000), NOW + 30 * HOUR + rng.integers(0, HOUR, 1000)))
    rng.shuffle(times)
    timers.add(timer_rows(times.tolist()))
    marks = save(timers)
    timers = small(files)
    timers.restore(marks)
    now_ms = NOW + days * DAY
    order = np.argsort(times, kind="stable")
    wanted = [(int(times[at]), int(at)) for at in order]
    over = [pair for pair in wanted if pair[0] <= now_ms]
    assert drain(timers, now_ms, 7) == over
    assert timers.pending == len(wanted) - len(over)
    assert drain(timers, now_ms + 60 * DAY) == wanted[len(over) :]


def test_what_is_added_late_is_never_lost() -> None:
    """Behind the cursor, by a millisecond or by weeks; while late ones are handed out; in the minute that is handed out."""
    timers = small(FaultyFiles())
    timers.add(timer_rows([NOW - 1, NOW, NOW + 1]))
    assert drain(timers, NOW) == [(NOW - 1, 0), (NOW, 1)]
    timers.add(timer_rows([NOW, NOW - 1, NOW - 20 * DAY, 0, -5], 10))
    assert timers.next_due_ms() == -5
    assert pairs(due(timers, NOW, 2)) == [(-5, 14), (0, 13)]
    timers.add(timer_rows([7, NOW + 1], 20))
    assert timers.cancel(NOW - 1, 11)
    assert pairs(listed(timers, -DAY, NOW, 9)) == [(7, 20), (NOW - 20 * DAY, 12)]
    assert drain(timers, NOW) == [(NOW - 20 * DAY, 12), (7, 20), (NOW, 10)]
    assert drain(timers, NOW + 1) == [(NOW + 1, 2), (NOW + 1, 21)]
    timers.add(timer_rows([NOW + 1, NOW], 30))
    assert drain(timers, NOW + HOUR) == [(NOW, 31), (NOW + 1, 30)]
    assert timers.pending == 0


def test_late_ones_in_an_hour_that_is_handed_out_whole_come_once_too() -> None:
    """After a jump: behind the cursor in that hour, at the cursor, ahead of it; saved and restored between two late ones."""
    files = FaultyFiles()
    timers = small(files)
    timers.add(timer_rows([NOW + 10, NOW + 20, NOW + 30]))
    assert pairs(due(timers, NOW + DAY, 2)) == [(NOW + 10, 0), (NOW + 20, 1)]
    timers.add(timer_rows([NOW + 15, NOW + 16, NOW + 20, NOW + 25], 10))
    assert pairs(due(timers, NOW + DAY, 1)) == [(NOW + 15, 10)]
    marks = save(timers)
    for again in (timers, small(files)):
        again.restore(marks)
        assert not again.cancel(NOW + 15, 10)
        assert drain(again, NOW + DAY) == [(NOW + 16, 11), (NOW + 20, 12), (NOW + 25, 13), (NOW + 30, 2)]


def test_a_bucket_that_begins_again_at_the_cursor_loses_nothing() -> None:
    """The minute was handed out, dropped, and its rows had high numbers; one more is added for the time of its last."""
    timers = small(FaultyFiles())
    due(timers, NOW, 1)
    for minute in range(5):
        time_ms = NOW + minute * MINUTE
        timers.add(timer_rows([time_ms] * 3, minute * 10))
        assert timers.cancel(time_ms, minute * 10)
        assert drain(timers, time_ms + MINUTE) == [(time_ms, minute * 10 + 1), (time_ms, minute * 10 + 2)]
        for number in (3, 4, 5):
            timers.add(timer_rows([time_ms], minute * 10 + number))
            assert drain(timers, time_ms + MINUTE) == [(time_ms, minute * 10 + number)]


def test_time_that_falls_back_hands_out_nothing_early_or_twice() -> None:
    """It does not happen in the log, but then late ones may wait, and that is all."""
    timers = small(FaultyFiles(), window_rows=16)
    times = [NOW + at * MINUTE for at in range(1, 50, 4)]
    timers.add(timer_rows(times))
    found = pairs(due(timers, NOW + DAY, 5))
    for now_ms in (NOW - DAY, NOW, NOW + 20 * MINUTE, NOW - HOUR, NOW + 20 * MINUTE):
        found += drain(timers, now_ms)
        assert found[-1][0] <= max(now_ms, NOW + 17 * MINUTE)
    assert found + drain(timers, NOW + DAY) == list(zip(times, range(13), strict=True))


def test_very_many_in_one_second_cost_a_window_of_memory(tmp_path: Path) -> None:
    """120,000 of one second, in two ways: at random, and all in the same millisecond. The peak stays far below their bytes."""
    rng = np.random.default_rng(3)
    for times in (NOW + rng.integers(0, SECOND, 120_000), np.full(120_000, NOW + 7)):
        timers = Timers.open(tmp_path, window_rows=2_048, buffer_max_bytes=1 << 19)
        for first in range(0, len(times), 30_000):
            timers.add(timer_rows(times[first : first + 30_000].tolist(), first))
        save(timers)
        tracemalloc.start()
        found = [due(timers, NOW + SECOND, 2_000)["timer_id"] for _ in range(5)]
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak_bytes < 120_000 * TIMER_ROW_SIZE_BYTES / 3
        while len(rows := due(timers, NOW + SECOND, 2_000)):
            found.append(rows["timer_id"])
        assert (np.concatenate(found) == np.argsort(times, kind="stable")).all()
        timers.wipe()


def test_a_cancelled_timer_is_gone_wherever_it_was() -> None:
    """In the minute that is handed out, in a later one, in an hour to come, in an hour half spread: True once, then False."""
    timers = small(FaultyFiles(), window_rows=16)
    due(timers, NOW, 1)
    times = (
        [NOW + 10 + at // 10 for at in range(100)] + [NOW + 5 * MINUTE] * 3 + [NOW + 2 * HOUR + at for at in range(60)]
    )
    timers.add(timer_rows([*times, NOW + 20 * DAY]))
    wanted = dict(enumerate([*times, NOW + 20 * DAY]))
    for time_ms, timer_id in pairs(due(timers, NOW + 11, 15)):
        assert wanted.pop(timer_id) == time_ms
        assert not timers.cancel(time_ms, timer_id)
    assert len(due(timers, NOW + HOUR - 1, 0)) == 0
    victims = [15, 19, 50, 99, 100, 102, 103, 130, 162, 163]
    for timer_id in victims[:5]:
        assert not timers.cancel(wanted[timer_id] + 1, timer_id)
        assert timers.cancel(wanted[timer_id], timer_id)
        assert not timers.cancel(wanted.pop(timer_id), timer_id)
    for time_ms, timer_id in drain(timers, NOW + HOUR):  # and looks ahead: one piece of the hour after next is spread
        assert wanted.pop(timer_id) == time_ms
    for timer_id in victims[6:]:
        assert timers.cancel(wanted[timer_id], timer_id)
        assert not timers.cancel(wanted.pop(timer_id), timer_id)
    assert timers.pending == len(wanted)
    assert pairs(listed(timers, NOW, NOW + 40 * DAY, 999)) == sorted((ms, timer_id) for timer_id, ms in wanted.items())
    assert drain(timers, NOW + 40 * DAY) == sorted((ms, timer_id) for timer_id, ms in wanted.items())
    assert not timers.cancel(NOW + 20 * DAY, 163)


def test_a_cancelled_timer_may_come_back_under_its_id() -> None:
    """Cancelling names the row, not the id: the same time and id may be added again, as when a record was moved."""
    timers = small(FaultyFiles())
    for position in (100, 200, 300):
        timers.add(timer_rows([NOW + 5], 7, position))
        if position < 300:
            assert timers.cancel(NOW + 5, 7)
    assert [rows["position"].tolist() for rows in timers.needed_below(1000)] == [[300]]
    assert due(timers, NOW + 5, 9)["position"].tolist() == [300]


def test_lists_come_in_pages_that_meet() -> None:
    """By time, then id, from begin up to but without end; each page begins behind the last one of the page before."""
    rng, timers = np.random.default_rng(4), small(FaultyFiles())
    times = (NOW + rng.integers(0, 4 * HOUR, 3000) // (10 * MINUTE) * 10 * MINUTE).tolist()
    ids = rng.permutation(3000)
    rows = timer_rows(times)
    rows["timer_id"] = ids
    timers.add(rows)
    gone = set(drain(timers, NOW + HOUR + 1, 17))
    wanted = sorted(set(zip(times, ids.tolist(), strict=True)) - gone)
    for begin_ms, end_ms in (
        (0, NOW + DAY),
        (NOW + 2 * HOUR, NOW + 3 * HOUR),
        (NOW + 2 * HOUR + 1, NOW + 2 * HOUR + 1),
    ):
        found, after = [], None
        while page := pairs(listed(timers, begin_ms, end_ms, 100, after)):
            found += page
            after = page[-1]
        assert found == [pair for pair in wanted if begin_ms <= pair[0] < end_ms]
    assert len(listed(timers, 0, NOW + DAY, 0)) == 0


def test_records_that_timers_need_are_known() -> None:
    """Pending timers of records before a position: none that was handed out or cancelled."""
    timers = small(FaultyFiles())
    for at in range(300):
        timers.add(timer_rows([NOW + at * HOUR // 10], at, at * 100))
    drain(timers, NOW + HOUR)
    timers.cancel(NOW + 2 * HOUR, 20)
    needed = [pair for rows in timers.needed_below(5000) for pair in pairs(rows)]
    assert sorted(timer_id for _, timer_id in needed) == [at for at in range(11, 50) if at != 20]


def test_an_alarm_always_leads_on() -> None:
    """Waiting for `next_due_ms` and asking then hands out all, although the first of each bucket was cancelled; no time twice."""
    rng, timers = np.random.default_rng(5), small(FaultyFiles(), window_rows=16)
    times = (NOW + rng.integers(0, DAY, 500)).tolist()
    timers.add(timer_rows(times))
    alive = sorted(zip(times, range(500), strict=True))
    for pair in alive[::3]:
        assert timers.cancel(*pair)
    del alive[::3]
    found: list[tuple[int, int]] = []
    now_ms = NOW
    while (next_ms := timers.next_due_ms()) is not None:
        assert now_ms < next_ms <= alive[len(found)][0]
        now_ms = next_ms
        found += drain(timers, now_ms)
    assert found == alive


def test_spent_buckets_give_back_disk_and_folders() -> None:
    """Three days of timers, saved every hour: what is on disk follows what is pending, and folders are used again."""
    files = FaultyFiles()
    timers = small(files)
    for hour in range(72):
        now_ms = NOW + hour * HOUR
        timers.add(timer_rows([now_ms + at * MINUTE + at for at in range(1, 200)], hour * 1000))
        timers.cancel(now_ms + 150 * MINUTE + 150, hour * 1000 + 150)
        drain(timers, now_ms)
        save(timers)
    folders = {path.parent for path in files.paths(DIRECTORY)}
    assert len(folders) < 400
    drain(timers, NOW + 80 * HOUR)
    for _ in range(3):
        save(timers)
    assert timers.pending == 0
    assert files.paths(DIRECTORY / "timers") == []
    assert files.open_count() == 0


def test_a_state_keeps_its_rows_when_their_slots_are_used_again() -> None:
    """Two states are saved; then their buckets are spent and others written in their place: both states still restore."""
    files = FaultyFiles()
    timers = small(files)
    due(timers, NOW, 1)
    timers.add(timer_rows([NOW + at * 100 for at in range(2000)]))
    states = [(save(timers), 0)]
    found = drain(timers, NOW + MINUTE)
    states.append((save(timers), len(found)))
    found += drain(timers, NOW + 5 * MINUTE)
    timers.add(timer_rows([NOW + 10 * MINUTE + at * 100 for at in range(2000)], 5000))
    timers.flush().run()
    for marks, count in states:
        fork = small(files.fork())
        fork.restore(marks)
        assert drain(fork, NOW + 5 * MINUTE) == found[count:]


def test_the_longest_delay_and_longer_ones_are_kept() -> None:
    """40 days is what a broker accepts; the timers themselves keep any time."""
    timers = small(FaultyFiles())
    due(timers, NOW, 1)
    times = [NOW + TIMER_DELAY_MAX_MS, NOW + 3650 * DAY, 1 << 62]
    timers.add(timer_rows(times))
    assert drain(timers, NOW + TIMER_DELAY_MAX_MS - 1) == []
    assert drain(timers, NOW + TIMER_DELAY_MAX_MS) == [(times[0], 0)]
    assert drain(timers, 1 << 62) == [(times[1], 1), (times[2], 2)]


def test_rows_that_are_not_timers_are_refused() -> None:
    """Another dtype, and the flag that is the store's own: nothing is added. No rows at all are fine."""
    timers = small(FaultyFiles())
    flagged = timer_rows([NOW])
    flagged["flags"] = FLAG_CANCELLED
    for rows in (flagged, np.zeros(1, np.int64)):
        with pytest.raises(StoreError):
            timers.add(rows)
    timers.add(timer_rows([]))
    assert (timers.pending, timers.next_due_ms(), drain(timers, NOW)) == (0, None, [])
