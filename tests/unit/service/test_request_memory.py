"""Shares of a room: nobody takes it from others, small requests have a part of their own, and what was taken comes back once."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_service.request_memory import Holding, Room
from tern_wire.errors import Overloaded, ShareExceeded

LIMIT, SMALL = 12_000, 100


def room() -> Room:
    """12,000, of which 3,000 are for requests of at most 100."""
    return Room("bytes", LIMIT, small_max=SMALL)


def take_all(shared: Room, owner: str, piece: int, *, is_small: bool = False) -> list[Holding]:
    """*owner* takes pieces until it is refused, each for a request of its own when *is_small*."""
    holdings = [Holding(shared, owner)]
    try:
        while True:
            if is_small:
                holdings.append(Holding(shared, owner))
            holdings[-1].take(piece)
    except (ShareExceeded, Overloaded):
        return holdings


def test_one_owner_alone_takes_two_thirds_of_what_is_not_reserved() -> None:
    """Then it is told that it is at its share."""
    shared = room()
    (holding,) = take_all(shared, "ann", 100)
    assert holding.held == shared.held("ann") == 6_000
    with pytest.raises(ShareExceeded):
        holding.take(100)
    assert shared.refused == [0, 2]


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("owners", [1, 2, 3, 5])
def test_whatever_owners_take_a_newcomer_finds_room(owners: int, is_small: bool) -> None:
    """With many small requests or with one large one; each is stopped at its own share, two thirds of what was left before it."""
    shared = room()
    for number in range(owners):
        take_all(shared, f"owner-{number}", 1, is_small=is_small)
    assert shared.limit - shared.used >= LIMIT // 3**owners
    newcomer = Holding(shared, "newcomer")
    newcomer.take(20)
    assert newcomer.held == 20


def test_who_was_there_first_gets_less_when_others_come() -> None:
    """As its requests end and new ones begin, each comes to the same share: with two of them, two fifths of the room."""
    shared = room()
    held = {owner: take_all(shared, owner, SMALL, is_small=True) for owner in ("ann", "bob")}
    assert shared.held("ann") > 2 * shared.held("bob")
    for _ in range(20):
        for owner, holdings in held.items():
            for one in holdings[: len(holdings) // 2 + 1]:
                one.give_back()
            held[owner] = holdings[len(holdings) // 2 + 1 :] + take_all(shared, owner, SMALL, is_small=True)
            held[owner] = [one for one in held[owner] if one.held]
    shares = [shared.held(owner) for owner in held]
    assert max(shares) - min(shares) <= LIMIT // 10, shares
    assert sum(shares) <= LIMIT * 4 // 5


def test_nobody_s_large_requests_take_the_reserve() -> None:
    """Not even those of who cannot be told apart, and has no share to stop at: small requests of anybody go on."""
    shared = room()
    (holding,) = take_all(shared, "", 1_000)
    assert (holding.held, shared.state) == (9_000, "short")
    for owner in ("", "ann"):
        with pytest.raises(Overloaded):
            Holding(shared, owner).take(SMALL + 1)
        Holding(shared, owner).take(SMALL)
    take_all(shared, "", SMALL, is_small=True)
    assert (shared.used, shared.state, shared.is_full) == (LIMIT, "full", True)


def test_who_is_refused_for_others_is_not_told_that_it_is_its_share() -> None:
    """503 and not 429: it can do nothing about it but come again."""
    shared = room()
    take_all(shared, "", 1_000)
    with pytest.raises(Overloaded):
        Holding(shared, "ann").take(SMALL + 1)
    assert shared.refused[1] == 0


def test_a_look_holds_nothing() -> None:
    """And says what taking would."""
    shared = room()
    shared.look("ann", 6_000)
    assert (shared.used, shared.owners) == (0, 0)
    with pytest.raises(ShareExceeded):
        shared.look("ann", 6_100)
    with pytest.raises(Overloaded):
        shared.look("", 9_001)


def test_while_little_is_held_small_whole_requests_are_nobody_s() -> None:
    """Up to a quarter of the room, and no larger than small."""
    shared = room()
    held = []
    while (one := shared.hold_calmly(SMALL)) is not None:
        held.append(one)
    assert (shared.used, shared.owners, len(held)) == (3_000, 0, 30)
    for one in held:
        one.give_back()
    assert shared.hold_calmly(SMALL + 1) is None
    assert shared.used == 0


@given(st.integers(0, 1 << 32))
def test_everything_comes_back_exactly_once(seed: int) -> None:
    """Owners take, are refused, give back, and give back again: what is held is the sum of what requests hold, and in the end nothing."""
    chance, shared = random.Random(seed), room()
    holdings = [Holding(shared, chance.choice(["", "ann", "bob", "cid"])) for _ in range(12)]
    for _ in range(200):
        one = chance.choice(holdings)
        if chance.random() < 0.3:
            one.give_back()
        else:
            before = one.held
            try:
                one.take(chance.choice([1, 50, 400, 3_000]))
            except (ShareExceeded, Overloaded):
                assert one.held == before
        assert shared.used == sum(each.held for each in holdings) <= LIMIT
    for one in holdings * 2:
        one.give_back()
    assert (shared.used, shared.owners) == (0, 0)
