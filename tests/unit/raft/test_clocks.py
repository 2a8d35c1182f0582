"""Members' wall clocks and the leader's time, as they travel with appends and their answers."""

from tern_raft.clocks import HEARD_FOR_MS, PeerClocks
from tern_raft.frames import decode_message, encode_message
from tests.support.raft.raft_group import born_group

APPEND = {"type": "append_entries", "term": 3, "commit_index": 4, "prevLogIdx": 6, "prevLogTerm": 2, "seq": 9}
ACK = {"type": "next_node_idx", "term": 3, "next_node_idx": 7, "reset": False, "success": True, "seq": 1, "disk": 0}


def test_a_leader_hears_its_followers_clocks_and_followers_hear_the_leaders_time() -> None:
    """With every heartbeat; what a peer's clock says goes with its link."""
    group = born_group()
    leader = group.leader
    assert leader is not None
    followers = [node for node in group.nodes.values() if node is not leader]
    told: list[int] = []
    for number, follower in enumerate(followers):
        follower.wall_ms = 500 + number
        follower.transport.clocks.on_group_ms = told.append
    leader.wall_ms, leader.transport.clocks.group_ms = 100, lambda: 777
    group.run(1.0)
    first, *others = leader.transport.clocks.walls_ms()
    assert (first, len(others)) == (100, 2)
    # Heard a heartbeat ago, and one or two slow messages.
    assert all(500 <= ms <= 501 + 125 + 2 * 150 + 5 for ms in others)
    assert len(told) >= 2
    assert set(told) == {777}
    group.cut(leader.name, followers[0].name)
    assert len(leader.transport.clocks.walls_ms()) == 2


def test_a_clock_that_was_heard_goes_on_and_is_forgotten() -> None:
    """By the monotonic clock of who has heard it, for ten seconds."""
    now_s = 1.0
    clocks = PeerClocks(monotonic=lambda: now_s, wall_ms=lambda: 42)
    clocks.heard("a", 1_000)
    now_s = 3.0
    assert clocks.walls_ms() == [42, 3_000]
    now_s = 1.0 + HEARD_FOR_MS / 1000 + 0.5
    assert clocks.walls_ms() == [42]
    clocks.lost("a")
    clocks.lost("never heard")


def test_a_clock_before_1970_travels_too() -> None:
    """An RTC that is wrong must not make a member whose messages are refused."""
    clocks = PeerClocks(monotonic=lambda: 0.0, wall_ms=lambda: -5)
    assert decode_message(b"".join(encode_message(ACK | {"wall_ms": clocks.own_ms()})))["wall_ms"] == 0


def test_messages_may_lack_what_their_sender_does_not_know() -> None:
    """A leader that does not serve yet tells no time."""
    for message, field in ((APPEND, "group_ms"), (ACK, "wall_ms")):
        assert field not in decode_message(b"".join(encode_message(message)))
        assert decode_message(b"".join(encode_message(message | {field: 5})))[field] == 5
