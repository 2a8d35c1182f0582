"""The logical clock: never back, close to the wall clock, slow to believe a jump."""

from tern_broker.core.clock import LogicalClock, start_clock


def test_time_follows_the_wall_clock_and_never_goes_back() -> None:
    """Small differences are taken at once; a wall clock that steps back stops time, it does not turn it."""
    clock = LogicalClock(now_ms=1000, mono_ms=0)
    assert clock.advance(0, 100, 1100) == 1100
    assert clock.advance(0, 100, 1103) == 1103
    assert clock.advance(0, 110, 1050) == 1103
    assert clock.advance(2000, 120, 1200) == 2000


def test_a_jump_of_the_wall_clock_is_approached_by_one_percent() -> None:
    """A lease of a minute must not end because somebody set the clock an hour ahead."""
    clock = LogicalClock(now_ms=0, mono_ms=0)
    assert clock.advance(0, 10_000, 3_600_000) == 10_100
    clock = LogicalClock(now_ms=3_600_000, mono_ms=0)
    assert clock.advance(0, 10_000, 0) == 3_609_900


def test_a_new_leader_begins_where_the_group_is() -> None:
    """Its own wall clock may be behind."""
    assert start_clock(5000, 0, 100, None).now_ms == 5000
    assert start_clock(5000, 0, 9000, None).now_ms == 9000


def test_a_new_leader_does_not_believe_a_wall_clock_that_differs_from_the_groups_time_by_a_jump() -> None:
    """It has followed the group: an hour ahead or behind, all leases would end or none; it goes on from what it knows."""
    hour = 3_600_000
    assert start_clock(5000, 0, 7000 + hour, 7000).now_ms == 7000
    assert start_clock(5000, 0, 7000 - hour, 7000).now_ms == 7000
    assert start_clock(5000, 0, 7100, 7000).now_ms == 7100
    clock = start_clock(5000, 0, 7000 + hour, 7000)
    assert clock.advance(5000, 100_000, 107_000 + hour) == 108_000, "1 % faster until it is there"
