"""The logical clock: never back, close to the median of the members' clocks, slow to believe a jump."""

import random

import pytest

from tern_broker.core.clock import (
    JUMP_MS,
    LOSS_LEAD_MAX_MS,
    UNKNOWN,
    ClockRange,
    LogicalClock,
    may_start,
    range_of,
    start_clock,
)

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
TRUE_MS = 1_700_000_000_000


def exactly(wall_ms: int) -> ClockRange:
    """All members' clocks agree."""
    return ClockRange(wall_ms, wall_ms)


def test_time_follows_the_clocks_and_never_goes_back() -> None:
    """Small differences are made up for at once; clocks that step back slow time down, they do not turn it."""
    clock = LogicalClock(now_ms=1000, mono_ms=0)
    assert clock.advance(0, 100, exactly(1100)) == 1100
    assert clock.advance(0, 100, exactly(1103)) == 1103
    assert clock.advance(0, 110, exactly(1050)) == 1108
    assert clock.advance(2000, 120, exactly(1200)) == 2000


def test_clocks_that_jump_ahead_are_approached_by_one_percent() -> None:
    """A lease of a minute must not end because somebody set the clocks an hour ahead."""
    clock = LogicalClock(now_ms=0, mono_ms=0)
    assert clock.advance(0, 10_000, exactly(HOUR_MS)) == 10_100


def test_time_that_is_ahead_comes_back_at_half_the_speed_and_a_large_lead_slower() -> None:
    """An hour's lead is gone after two; a year's is not worth leases of twice their time for a year."""
    clock = LogicalClock(now_ms=HOUR_MS, mono_ms=0)
    assert clock.advance(0, 10_000, exactly(10_000)) == HOUR_MS + 5_000
    assert clock.advance(0, 2 * HOUR_MS, exactly(2 * HOUR_MS)) == 2 * HOUR_MS
    clock = LogicalClock(now_ms=YEAR_MS, mono_ms=0)
    assert clock.advance(0, 10_000, exactly(10_000)) == YEAR_MS + 9_900


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS, -YEAR_MS])
def test_time_that_is_asked_for_every_millisecond_gains_and_loses_as_much(ahead_ms: int) -> None:
    """A busy leader asks for each entry; parts of a millisecond add up."""
    often, once = LogicalClock(now_ms=YEAR_MS, mono_ms=0), LogicalClock(now_ms=YEAR_MS, mono_ms=0)
    for mono_ms in range(1, 2001):
        often.advance(0, mono_ms, exactly(YEAR_MS + ahead_ms + mono_ms))
    once.advance(0, 2000, exactly(YEAR_MS + ahead_ms + 2000))
    assert abs(often.now_ms - once.now_ms) <= 1
    assert abs(often.now_ms - YEAR_MS - 2000) >= 20


def test_the_range_holds_the_median_whatever_silent_members_say() -> None:
    """Of three, one may be silent; of five, two. Less than a majority says nothing."""
    assert range_of([7], 1) == ClockRange(7, 7)
    assert range_of([9], 3) is UNKNOWN
    assert range_of([9, 4], 3) == ClockRange(4, 9)
    assert range_of([9, 4, 6], 3) == ClockRange(6, 6)
    assert range_of([1, 2, 3], 5) == ClockRange(1, 3)
    assert range_of([1, 2, 3, 4], 5) == ClockRange(2, 3)
    assert range_of([1, 2, 3, 4, 5], 5) == ClockRange(3, 3)


def test_a_new_leader_goes_on_from_the_time_that_it_has_followed() -> None:
    """Whatever the clocks say: an hour ahead or behind, all leases would end or none."""
    for off_ms in (0, 100, HOUR_MS, -HOUR_MS, YEAR_MS):
        assert start_clock(5000, 0, exactly(7000 + off_ms), 7000).now_ms == 7000
    assert start_clock(8000, 0, exactly(7000), 7000).now_ms == 8000


def test_after_a_full_restart_the_clocks_say_what_has_passed_and_one_wrong_clock_says_nothing() -> None:
    """Never before what was applied; a leader whose own clock is a year off starts at the others' time, or waits for them."""
    assert start_clock(5000, 0, exactly(100), None).now_ms == 5000
    assert start_clock(5000, 0, exactly(9000), None).now_ms == 9000
    wrong = TRUE_MS + YEAR_MS
    assert start_clock(TRUE_MS - HOUR_MS, 0, range_of([wrong, TRUE_MS, TRUE_MS], 3), None).now_ms == TRUE_MS
    assert start_clock(TRUE_MS - HOUR_MS, 0, range_of([wrong, TRUE_MS], 3), None).now_ms == TRUE_MS
    assert not may_start(TRUE_MS - HOUR_MS, range_of([TRUE_MS - YEAR_MS, TRUE_MS], 3)), (
        "an hour may have passed, or none"
    )
    assert may_start(TRUE_MS - HOUR_MS, range_of([TRUE_MS - YEAR_MS, TRUE_MS, TRUE_MS], 3))
    assert may_start(TRUE_MS + YEAR_MS, range_of([TRUE_MS - YEAR_MS, TRUE_MS], 3)), "the group is ahead of all of them"
    assert not may_start(5000, UNKNOWN)


def test_no_minority_of_wrong_clocks_moves_the_time() -> None:
    """Random groups, clocks, leaders and restarts: time never goes back, and stays as near to the truth as right clocks are."""
    bound_ms, waited = 2_000, 0
    for seed in range(300):
        rng = random.Random(seed)
        members = rng.choice((3, 5))
        minority = rng.sample(range(members), rng.randint(0, members // 2))
        offsets = [rng.randint(-bound_ms, bound_ms) for _ in range(members)]
        true_ms, applied_ms = TRUE_MS, TRUE_MS - HOUR_MS
        clock: LogicalClock | None = None
        for _ in range(60):
            passed_ms = rng.choice((1, 50, 3_000, 600_000))
            true_ms += passed_ms
            for member in minority:
                offsets[member] = rng.choice((-YEAR_MS, -HOUR_MS, 0, HOUR_MS, YEAR_MS))
            heard = rng.sample(range(members), rng.randint(1, members))
            clocks = range_of([true_ms + offsets[member] for member in heard], members)
            if clock is None or rng.random() < 0.2:
                followed_ms = applied_ms + passed_ms if clock is not None and rng.random() < 0.5 else None
                if followed_ms is None and not may_start(applied_ms, clocks):
                    clock, waited = None, waited + 1
                    continue
                clock = start_clock(applied_ms, true_ms, clocks, followed_ms)
            now_ms = clock.advance(applied_ms, true_ms, clocks)
            assert now_ms >= applied_ms, seed
            assert -bound_ms - JUMP_MS <= now_ms - true_ms <= bound_ms, seed
            applied_ms = now_ms
    assert waited > 100


def test_a_lead_is_lost_and_never_becomes_a_lag() -> None:
    """Whatever the lead: time is monotone on the way, slower than the clocks, and meets them."""
    for lead_ms in (1, 4_000, 60_000, LOSS_LEAD_MAX_MS):
        clock = LogicalClock(now_ms=TRUE_MS + lead_ms, mono_ms=0)
        before_ms, mono_ms = clock.now_ms, 0
        while mono_ms < 2 * lead_ms + 1000:
            mono_ms += 777
            now_ms = clock.advance(0, mono_ms, exactly(TRUE_MS + mono_ms))
            assert before_ms + 387 <= now_ms <= before_ms + 778
            before_ms = now_ms
        assert before_ms == TRUE_MS + mono_ms
