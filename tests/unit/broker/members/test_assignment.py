"""Queue assignment: RocketMQ's results, every queue once, and few moves when members come and go."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_broker.core.members.assignment import assign, queue_order
from tern_wire.routing.membership import Strategy

ROOMS = ("", "hangzhou", "shanghai")
DIVIDING = [strategy for strategy in Strategy if strategy is not Strategy.BY_CONFIG]


def names(count: int) -> list[str]:
    """Ids of *count* members whose order is not that of their numbers."""
    return [f"client-{number * 7919 % 1_000:03d}@{number}" for number in range(count)]


def queues(count: int, broker_groups: int = 1) -> list[str]:
    """*count* queues, in turn in *broker_groups* groups of the rooms hangzhou and shanghai."""
    rooms = ("hangzhou--broker-a", "shanghai--broker-b", "shanghai--broker-c")
    return [f"{rooms[number % broker_groups]}:{number // broker_groups}" for number in range(count)]


def flat(shares: Iterable[list[str]]) -> list[str]:
    """All queues of *shares*, sorted."""
    return sorted(queue for share in shares for queue in share)


def moves(before: dict[str, list[str]], after: dict[str, list[str]]) -> int:
    """How many queues have another member."""
    reader = {queue: member for member, share in before.items() for queue in share}
    return sum(reader[queue] != member for member, share in after.items() for queue in share)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (Strategy.AVERAGELY, {"a": "0 1 2", "b": "3 4 5", "c": "6 7"}),
        (Strategy.AVERAGELY_BY_CIRCLE, {"a": "0 3 6", "b": "1 4 7", "c": "2 5"}),
        (Strategy.BY_MACHINE_ROOM, {"a": "0 1 6", "b": "2 3 7", "c": "4 5"}),
        (Strategy.MACHINE_ROOM_NEARBY, {"a": "0 1 2", "b": "3 4 5", "c": "6 7"}),
    ],
)
def test_each_strategy_gives_what_rocketmq_gives(strategy: Strategy, expected: dict[str, str]) -> None:
    """Eight queues and three members, worked out by hand from RocketMQ's description of each strategy."""
    found = assign(strategy, [f"broker-a:{number}" for number in range(8)], ["c", "a", "b"])
    assert {member: " ".join(queue[9:] for queue in share) for member, share in found.items()} == expected


def test_more_members_than_queues_leave_the_last_ones_idle() -> None:
    """As in RocketMQ: one queue for each of the first members by id, none for the others."""
    for strategy in (Strategy.AVERAGELY, Strategy.AVERAGELY_BY_CIRCLE):
        found = assign(strategy, ["broker-a:0", "broker-a:1"], ["d", "c", "b", "a"])
        assert found == {"a": ["broker-a:0"], "b": ["broker-a:1"], "c": [], "d": []}


def test_queues_count_by_number_and_not_by_text() -> None:
    """broker-a:10 comes behind broker-a:9; all of one broker group come before those of the next."""
    names_of_queues = ["broker-b:0", "broker-a:10", "broker-a:9"]
    assert sorted(names_of_queues, key=queue_order) == ["broker-a:9", "broker-a:10", "broker-b:0"]
    assert assign(Strategy.AVERAGELY, names_of_queues, ["x", "y"])["x"] == ["broker-a:9", "broker-a:10"]


@settings(max_examples=150, deadline=None)
@given(
    strategy=st.sampled_from(DIVIDING),
    members=st.integers(1, 40),
    count=st.integers(1, 200),
    broker_groups=st.integers(1, 3),
    seed=st.integers(0, 1 << 32),
)
def test_every_queue_has_one_member_whatever_the_order_of_the_input(
    strategy: Strategy, members: int, count: int, broker_groups: int, seed: int
) -> None:
    """Members are in all rooms that have queues; input is shuffled and has duplicates."""
    rng = random.Random(seed)
    all_members, all_queues = names(members), queues(count, broker_groups)
    # The first member's room is the first queue's and so on, the others' are any: each room with queues has a member that names it.
    rooms = {member: rng.choice(ROOMS) for member in all_members}
    rooms |= dict(zip(all_members, ("hangzhou", "shanghai"), strict=False))
    if members == 1:
        all_queues = queues(count, 1)
    found = assign(strategy, all_queues, all_members, rooms=rooms)
    assert flat(found.values()) == sorted(all_queues)
    assert found.keys() == set(all_members)
    again = assign(
        strategy,
        rng.sample(all_queues * 2, 2 * count),
        rng.sample(all_members * 2, 2 * members),
        rooms=rooms,
    )
    assert again == found


@pytest.mark.parametrize("strategy", [Strategy.AVERAGELY, Strategy.AVERAGELY_BY_CIRCLE, Strategy.CONSISTENT_HASH])
def test_shares_differ_by_at_most_one_queue(strategy: Strategy) -> None:
    """For 1 to 40 members, and queue counts from 1 to 200."""
    for members in range(1, 41):
        for count in {1, 2, members - 1, members, members + 1, 3 * members // 2, 97, 128, 200} - {0}:
            sizes = [len(share) for share in assign(strategy, queues(count), names(members)).values()]
            assert sum(sizes) == count
            assert max(sizes) - min(sizes) <= 1, (members, count)


@pytest.mark.parametrize("members", range(2, 41))
def test_consistent_hash_moves_no_more_than_two_shares_when_a_member_leaves(members: int) -> None:
    """Whoever leaves: at most 2/n of the queues, rounded up, get another member. The one on the last seat takes the free seat."""
    seats = names(members)
    for count in {1, 2, 3, 7, members, 2 * members + 1, 61, 128, 199, 200}:
        before = assign(Strategy.CONSISTENT_HASH, queues(count, 3), seats, seats=seats)
        for leaver in range(members):
            left = [*seats[:leaver], seats[-1], *seats[leaver + 1 : -1]] if leaver < members - 1 else seats[:-1]
            after = assign(Strategy.CONSISTENT_HASH, queues(count, 3), left, seats=left)
            assert flat(after.values()) == flat(before.values())
            assert moves(before, after) <= -(-2 * count // members), (members, count, leaver)


@settings(max_examples=100, deadline=None)
@given(members=st.integers(1, 39), count=st.integers(1, 200))
def test_consistent_hash_moves_only_the_share_of_a_member_that_joins(members: int, count: int) -> None:
    """A newcomer takes its share from the others; nothing else changes hands."""
    seats = names(members + 1)
    before = assign(Strategy.CONSISTENT_HASH, queues(count, 2), seats[:-1], seats=seats[:-1])
    after = assign(Strategy.CONSISTENT_HASH, queues(count, 2), seats, seats=seats)
    assert moves(before, after) == len(after[seats[-1]]) <= count // (members + 1)


def test_seats_of_members_that_are_not_there_are_skipped() -> None:
    """A topic that only some members of a group subscribe to: they count in the order of their seats, newcomers behind them."""
    found = assign(Strategy.CONSISTENT_HASH, queues(9), ["a", "b", "c"], seats=["x", "c", "c", "y", "a"])
    assert found == assign(Strategy.CONSISTENT_HASH, queues(9), ["a", "b", "c"], seats=["c", "a", "b"])


def test_by_config_gives_each_what_it_asks_for_once() -> None:
    """Queues that do not exist are nobody's; one that two ask for is the first one's; one that nobody asks for is left."""
    configured = {"a": ["q:1", "q:9"], "b": ["q:2", "q:1", "q:2"], "gone": ["q:3"]}
    found = assign(Strategy.BY_CONFIG, ["q:1", "q:2", "q:3"], ["b", "a", "c"], configured=configured)
    assert found == {"a": ["q:1"], "b": ["q:2"], "c": []}


def test_by_machine_room_reads_only_rooms_with_members_and_nearby_reads_all() -> None:
    """Two rooms with queues, members in one of them: RocketMQ's two strategies differ in what becomes of the other."""
    two_rooms = ["hz--a:0", "hz--a:1", "sh--b:0", "sh--b:1"]
    rooms = {"m1": "hz", "m2": "hz"}
    assert assign(Strategy.BY_MACHINE_ROOM, two_rooms, ["m1", "m2"], rooms=rooms) == {
        "m1": ["hz--a:0"],
        "m2": ["hz--a:1"],
    }
    nearby = assign(Strategy.MACHINE_ROOM_NEARBY, two_rooms, ["m1", "m2"], rooms=rooms)
    assert nearby == {"m1": ["hz--a:0", "sh--b:0"], "m2": ["hz--a:1", "sh--b:1"]}
    with_third = assign(Strategy.MACHINE_ROOM_NEARBY, two_rooms, ["m1", "m2", "m3"], rooms={**rooms, "m3": "sh"})
    assert with_third["m3"] == ["sh--b:0", "sh--b:1"]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_nobody_and_nothing_are_fine(strategy: Strategy) -> None:
    """No member: no assignment. No queue: empty shares."""
    assert assign(strategy, queues(3), []) == {}
    assert assign(strategy, [], ["a", "b"]) == {"a": [], "b": []}
