"""Strangers at a port: few, the oldest goes, nobody is closed before its time, and descriptors are left for files."""

import pytest

from tern_accept import Descriptors, Strangers
from tern_accept.descriptors import SHORT_BELOW


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class Door:
    """Strangers named by numbers, and who was closed. *free*: descriptors that are left without them."""

    def __init__(self, *, most: int = 4, free: int = 10_000) -> None:
        self.clock, self.closed, self.slack = Clock(), [0][:0], free
        self.descriptors = Descriptors(
            limit=lambda: self.slack, count=lambda: len(self.strangers), monotonic=self.clock
        )
        self.strangers: Strangers[int] = Strangers(
            self.closed.append,
            most=most,
            stay_min_ms=50,
            per_s_max=1_000,
            descriptors=self.descriptors,
            monotonic=self.clock,
        )

    def pass_s(self, seconds: float) -> None:
        """Time goes by; a new count is due."""
        self.clock.now_s += seconds

    def come(self, *numbers: int) -> None:
        """As an acceptor that has waited."""
        for number in numbers:
            self.pass_s(self.strangers.wait_s())
            self.strangers.enter(number)
            self.pass_s(0.02)


def test_at_the_cap_the_oldest_makes_room_once_it_has_had_its_time() -> None:
    """And not before: accepting waits so long."""
    door = Door(most=4)
    for number in range(4):
        assert door.strangers.wait_s() == 0.0
        door.strangers.enter(number)
    assert door.strangers.is_full()
    assert door.strangers.wait_s() == pytest.approx(0.05)
    door.pass_s(0.05)
    assert door.strangers.wait_s() == 0.0
    door.strangers.enter(4)
    assert (door.closed, len(door.strangers)) == ([0], 4)


def test_a_flood_replaces_no_more_than_so_many_a_second() -> None:
    """Each costs the loop something, and members need it."""
    door = Door(most=256)
    for number in range(256):
        door.strangers.enter(number)
    assert door.strangers.wait_s() == pytest.approx(0.256)


def test_who_has_shown_who_it_is_is_never_closed_and_makes_room() -> None:
    """A flood passes by those that have left."""
    door = Door(most=4)
    door.come(1)
    door.strangers.leave(1)
    door.strangers.leave(1)
    door.come(*range(2, 102))
    assert 1 not in door.closed
    assert door.closed == list(range(2, 98))


def test_strangers_hold_a_third_of_what_is_left_at_most() -> None:
    """Twenty more than a process holds, as `prlimit` leaves it: ten and more stay free for three ports, all flooded."""
    slack, doors = 20, [Door(most=256, free=20) for _ in range(3)]
    for door in doors:
        # Each counts what all of them hold.
        door.descriptors = Descriptors(
            limit=lambda: slack, count=lambda: sum(len(one.strangers) for one in doors), monotonic=door.clock
        )
        door.strangers._descriptors = door.descriptors
    for number in range(100):
        for door in doors:
            door.come(number)
    held = sum(len(door.strangers) for door in doors)
    assert 3 <= held <= 10


def test_more_than_there_may_be_are_closed_at_once_when_the_limit_falls() -> None:
    """They had the descriptors that are short now; one may stay, so that a peer can still come."""
    door = Door(most=256)
    door.come(*range(100))
    door.slack = 60
    door.pass_s(1)
    door.strangers.wait_s()
    assert door.closed == list(range(85))
    door.slack = 0
    door.pass_s(1)
    door.strangers.wait_s()
    assert door.closed == list(range(99))


@pytest.mark.parametrize("free", range(40))
def test_nobody_is_closed_at_once_for_those_behind_it(free: int) -> None:
    """A share that shrinks with each newcomer would close the one before, in its first turn."""
    door = Door(most=256, free=free)
    for number in range(20):
        if door.strangers.wait_s():
            break
        door.strangers.enter(number)
    assert door.closed == []


def test_descriptors_are_counted_again_after_a_while_and_what_was_taken_is_taken_off() -> None:
    """A count of each accept would cost a flooded loop more than the accept."""
    clock, held, counts = Clock(), [100], []

    def count() -> int:
        counts.append(held[0])
        return held[0]

    descriptors = Descriptors(limit=lambda: 100 + SHORT_BELOW, count=count, monotonic=clock)
    assert not descriptors.are_short()
    descriptors.take()
    assert (descriptors.are_short(), counts) == (True, [100])
    clock.now_s += 1
    held[0] = 90
    assert (descriptors.free(), counts) == (SHORT_BELOW + 10, [100, 90])


def test_the_count_is_that_of_this_process() -> None:
    """A file more is a descriptor less."""
    clock = Clock()
    descriptors = Descriptors(monotonic=clock)
    before = descriptors.free()
    with open(__file__, encoding="utf-8"):
        clock.now_s += 1
        assert descriptors.free() == before - 1
