"""A follower applies committed entries in runs; a leader, and a follower in a new term, at once."""

from collections.abc import Callable

from tern_raft.consensus import APPLY_RUN_ENTRIES, APPLY_RUN_S, APPLY_RUN_SIZE_BYTES
from tests.support.raft.raft_group import ENTRY_SIZE_MAX_BYTES, RaftGroup, SimNode, born_group


class Timers:
    """The follower's timers, which end when the test says so."""

    def __init__(self, node: SimNode) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        node.consensus._call_later = lambda delay_s, callback: self.waiting.append((delay_s, callback))

    def end(self) -> None:
        """Let all that wait end."""
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback()


def group_of_three() -> tuple[RaftGroup, SimNode, SimNode, Timers]:
    """A group in agreement, its leader, a follower and that one's timers."""
    group = born_group()
    leader, (follower, _) = group.elect()
    group.run_until(group.is_converged)
    return group, leader, follower, Timers(follower)


def commit(group: RaftGroup, leader: SimNode, follower: SimNode, *bodies: bytes) -> None:
    """Commit one entry a body, and let the follower know."""
    for body in bodies:
        index = leader.append(body).index
        group.run_until(lambda index=index: follower.committed >= index)  # type: ignore[misc]


def lag(leader: SimNode, follower: SimNode) -> int:
    """Entries that the leader has applied and the follower has not."""
    return len(leader.applied) - len(follower.applied)


def test_a_follower_lets_entries_gather_and_a_leader_does_not() -> None:
    """Five entries wait for the end of one timer; then all are applied, and the next ones gather anew."""
    group, leader, follower, timers = group_of_three()
    for _ in range(2):
        before = len(follower.applied)
        commit(group, leader, follower, *[b"x"] * 5)
        group.run(1.0)
        assert (lag(leader, follower), len(follower.applied)) == (5, before)
        assert [delay_s for delay_s, _ in timers.waiting] == [APPLY_RUN_S]
        timers.end()
        follower.consensus.doTick(0)
        assert lag(leader, follower) == 0
    assert follower.applied == leader.applied


def test_many_entries_do_not_wait_for_the_timer() -> None:
    """The next one after APPLY_RUN_ENTRIES - 1 begins a run."""
    group, leader, follower, _ = group_of_three()
    commit(group, leader, follower, *[b"x"] * (APPLY_RUN_ENTRIES - 1))
    group.run(0.1)
    assert lag(leader, follower) == APPLY_RUN_ENTRIES - 1
    commit(group, leader, follower, b"x")
    group.run(0.1)
    assert lag(leader, follower) == 0


def test_large_entries_do_not_wait_for_the_timer() -> None:
    """A run ends with APPLY_RUN_SIZE_BYTES, however few entries have them."""
    group, leader, follower, _ = group_of_three()
    body = bytes(ENTRY_SIZE_MAX_BYTES - 1_024)
    fitting = APPLY_RUN_SIZE_BYTES // ENTRY_SIZE_MAX_BYTES
    commit(group, leader, follower, *[body] * fitting)
    group.run(0.1)
    assert lag(leader, follower) == fitting
    commit(group, leader, follower, body, body)
    group.run(0.1)
    assert lag(leader, follower) < fitting


def test_a_follower_that_is_elected_applies_what_waits() -> None:
    """Its first entry lies behind them, and it serves only when that is applied."""
    group, leader, follower, timers = group_of_three()
    for node in group.nodes.values():
        Timers(node)
    commit(group, leader, follower, *[b"x"] * 3)
    group.kill(leader.name)
    new, _ = group.elect(heals=False)
    group.run_until(lambda: new.consensus.is_serving, heals=False)
    assert len(new.applied) >= 3
    assert not timers.waiting or new is not follower


def test_the_first_entry_of_a_term_is_applied_at_once() -> None:
    """Votes and greetings depend on it, and no timer ends here."""
    group, leader, follower, _ = group_of_three()
    for node in group.nodes.values():
        Timers(node)
    group.kill(leader.name)
    new, _ = group.elect(heals=False)
    group.run_until(lambda: new.consensus.is_serving, heals=False)
    others = [node for node in group.nodes.values() if node is not new]
    group.run_until(lambda: all(len(node.applied) == len(new.applied) for node in others), heals=False)
    assert follower in group.nodes.values()
