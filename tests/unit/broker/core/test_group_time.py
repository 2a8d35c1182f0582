"""The group's time as a node knows it: followed by its own clock, told to followers, compared with the members' clocks."""

from types import SimpleNamespace
from typing import Any

from tern_broker.core.clock import UNKNOWN
from tern_broker.group_time import GroupTime
from tern_raft.clocks import PeerClocks


class World:
    """A node, what it hears, and its proposer."""

    def __init__(self, members: int = 3) -> None:
        self.now_s = 100.0
        self.clocks = PeerClocks(monotonic=lambda: self.now_s, wall_ms=lambda: 5_000)
        self.raft: Any = SimpleNamespace(clocks=self.clocks, is_serving=True)
        self.has_clock = True
        self.time = GroupTime(members=members, raft=lambda: self.raft, monotonic=lambda: self.now_s)
        proposer: Any = SimpleNamespace(has_clock=lambda: self.has_clock, now_ms=lambda: 7_000)
        self.time.tell_by(proposer)


def test_the_time_that_was_heard_last_goes_on_by_the_nodes_own_clock() -> None:
    """A heartbeat counts as an entry does, so a node that has started in an idle group knows the time before it leads."""
    world = World()
    assert world.time.expected_ms() is None
    world.clocks.on_group_ms(40_000)
    world.now_s += 2.5
    assert world.time.expected_ms() == 42_500
    world.time.seen(50_000)
    assert world.time.expected_ms() == 50_000


def test_what_was_long_on_its_way_takes_back_no_more_than_a_slow_group_would() -> None:
    """A stalled link brings a time of long ago; a group whose time is ahead goes at half the speed."""
    world = World()
    world.time.seen(50_000)
    world.now_s += 4.0
    world.time.seen(50_100)
    assert world.time.expected_ms() == 52_000
    world.now_s += 4.0
    world.time.seen(54_900)
    assert world.time.expected_ms() == 54_900


def test_only_a_leader_that_serves_and_knows_the_time_tells_it() -> None:
    """What another one told would be believed by whoever leads next."""
    world = World()
    assert world.clocks.group_ms() == 7_000
    assert world.time.expected_ms() == 7_000
    world.has_clock = False
    assert world.clocks.group_ms() == 0
    world.has_clock, world.raft.is_serving = True, False
    assert world.clocks.group_ms() == 0


def test_a_node_says_how_far_the_groups_time_is_ahead_of_its_members_clocks() -> None:
    """As far as they say it: less than a majority of them says nothing."""
    world = World()
    assert world.time.clocks() is UNKNOWN
    assert world.time.ahead_ms(9_000_000) == 0
    world.clocks.heard("a", 5_000)
    world.clocks.heard("b", 6_000_000)
    assert world.time.ahead_ms(65_000) == 60_000
    assert world.time.ahead_ms(4_000) == -1_000
