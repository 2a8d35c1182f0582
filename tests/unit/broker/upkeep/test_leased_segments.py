"""The place up to which a trim spares leases, found by looking at few saved states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_broker.upkeep.leased_segments import LeasedSegments

PLACES = [number * 100 for number in range(1, 65)]


def search(leased: LeasedSegments, free_to: int, wanted: int = 6_400) -> tuple[int, int]:
    """Where a trim may end, and how many states were read for it."""
    for looks in range(100):
        place = leased.place(PLACES, wanted, 0)
        if not place:
            return 0, looks
        is_free = place <= free_to
        leased.looked(place, is_free=is_free)
        # The trimmer drops what it has found, and comes again for the rest.
        if is_free and place in {wanted, leased.place(PLACES, wanted, 0)}:
            return place, looks + 1
    raise AssertionError("the search does not end")


@given(free_to=st.integers(0, 6_500))
def test_the_last_place_before_a_lease_is_found_by_bisection(free_to: int) -> None:
    """However many segments there are."""
    place, looks = search(LeasedSegments(), free_to)
    assert place == free_to // 100 * 100 if free_to < 6_500 else 6_400
    assert looks <= 8


def test_nothing_is_read_again_until_a_lease_ends() -> None:
    """A lease lasts an hour, and retention looks every 10 s."""
    leased = LeasedSegments()
    assert search(leased, 0) == (0, 7)
    assert search(leased, 0) == (0, 0)
    assert leased.place(PLACES, 6_400, released=1) == 6_400


@pytest.mark.parametrize("wanted", [100, 300])
def test_a_place_before_the_known_ones_is_looked_at_itself(wanted: int) -> None:
    """A trim for a full disk wants one segment."""
    leased = LeasedSegments()
    leased.looked(500, is_free=False)
    assert leased.place(PLACES, wanted, 0) == wanted


def test_a_lease_that_is_taken_later_makes_known_places_unknown() -> None:
    """What was free may be held now."""
    leased = LeasedSegments()
    leased.looked(3_000, is_free=True)
    leased.looked(3_100, is_free=False)
    assert leased.place(PLACES, 6_400, 0) == 3_000
    leased.looked(3_000, is_free=False)
    assert 0 < leased.place(PLACES, 6_400, 0) < 3_000
