"""R7: apply begins behind the saved state, goes on in slices, reads one entry at a time, and never does one twice or by half."""

import pytest

from tern_raft.consensus import APPLY_SLICE_S
from tern_raft.elections import BACKLOG_MAX_ENTRIES, BACKLOG_WAIT_S
from tern_store import StoredEntry
from tests.fuzz.victim import StillRuntime, still_clocks
from tests.support.broker.lone_node import lone_node
from tests.support.files.faulty_files import FaultyFiles
from tests.support.raft.raft_group import RaftGroup, SimNode, born_group


def written(count: int) -> tuple[RaftGroup, SimNode, SimNode]:
    """A group with *count* small entries on every node; its leader and a follower."""
    group = born_group()
    leader, (follower, _) = group.elect()
    for number in range(count):
        leader.append(b"%d" % number)
        if number % 20 == 0:
            group.step(chaos=False)
    group.run_until(group.is_converged)
    return group, leader, follower


def test_a_restart_applies_only_what_its_saved_state_lacks() -> None:
    """Stock begins at 1 (syncobj.py:177), or where its dump ends: everything saved would be applied twice."""
    group, _, follower = written(30)
    again = group.restart(follower.name, applied=20)
    assert (again.committed, again.consensus.raftLastApplied) == (20, 20), "what is saved was committed"
    group.run_until(group.is_converged)
    assert [index for index, _ in again.applied] == list(range(21, again.log.end_index + 1))


def test_apply_yields_before_heartbeats_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stock applies all that is committed in one tick (syncobj.py:711-725), a whole replay after a restart."""
    group, leader, follower = written(100)
    again = group.restart(follower.name)
    applied: list[int] = []

    def slow(entry: StoredEntry) -> None:
        group.clock.now_s += APPLY_SLICE_S / 4
        applied.append(entry.index)

    monkeypatch.setattr(again.consensus, "_apply", slow)
    again.consensus._SyncObj__raftCommitIndex = leader.committed
    for tick in range(1, 4):
        again.consensus.doTick(0)
        assert again.consensus.needs_apply, "it asks to be called again"
        assert len(applied) <= 5 * tick
    assert applied == list(range(2, 2 + len(applied)))


def test_what_pysyncobj_reads_of_the_log_is_bounded() -> None:
    """L12 (syncobj.py:1145-1162): stock loads everything from the asked entry on, for every message."""
    _, leader, follower = written(50)
    for node in (leader, follower):
        entries = node.consensus._SyncObj__getEntries(2)
        assert [(index, term) for _, index, term in entries] == [(2, 1), (3, 1)], (
            "two say whether there is more than one"
        )
        assert len(node.consensus._SyncObj__getEntries(node.log.end_index)) == 1
        assert node.consensus._SyncObj__getEntries(node.log.end_index + 1) == []
        assert node.consensus._SyncObj__getEntries(0) == []
        assert node.consensus._SyncObj__getEntries(None) == []


def test_an_exception_in_apply_is_not_swallowed_and_the_entry_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """L1 (syncobj.py:714-729): it must reach who ends the process; with the bug mended, a restart goes on at the same entry."""
    group, leader, _ = written(3)
    before, apply = leader.consensus.raftLastApplied, leader.consensus._apply

    def bug(_: StoredEntry) -> None:
        raise ValueError("a bug in apply")

    monkeypatch.setattr(leader.consensus, "_apply", bug)
    entry = leader.append(b"poison")
    with pytest.raises(ValueError, match="a bug"):
        group.run_until(group.is_converged)
    assert leader.consensus.raftLastApplied == before
    monkeypatch.setattr(leader.consensus, "_apply", apply)
    group.run_until(group.is_converged)
    assert [index for index, _ in leader.applied][-2:] == [before, entry.index]


def test_who_has_much_to_apply_lets_others_stand_first() -> None:
    """It would lead long before it serves; but not for ever, or a group that is behind as a whole has no leader."""
    group, _, follower = written(BACKLOG_MAX_ENTRIES + 10)
    again = group.restart(follower.name)
    elections = again.transport.elections
    for peer in group.names:
        elections._grants[peer] = float("inf")
    assert not elections.may_campaign()
    group.clock.now_s += BACKLOG_WAIT_S / 2
    assert not elections.may_campaign()
    group.clock.now_s += BACKLOG_WAIT_S / 2
    assert elections.may_campaign()


def test_a_node_applies_on_until_nothing_is_left_without_being_asked() -> None:
    """Between two slices other events get their turn, but no clock is waited for."""
    runtime, applied = StillRuntime(), list[int]()
    with still_clocks(runtime):
        node = lone_node(runtime, FaultyFiles(), applied)
        node.begin()
        while not node.is_serving:
            runtime.turn(0.05)
        node._clock.stop()
        runtime.turn(1.0)  # the last of the clock
        for number in range(10):
            node.propose([b"%d" % number], 1)
        runtime.turn()
    assert applied == list(range(2, 13))


def test_a_node_with_a_log_begins_as_if_its_group_had_a_leader() -> None:
    """One that was restarted has not heard the leader yet: it must not help to depose it meanwhile."""
    runtime, files = StillRuntime(), FaultyFiles()
    with still_clocks(runtime):
        first = lone_node(runtime, files, [])
        first.begin()
        assert not first.transport.elections.has_leader, "an empty log has no group to wait for"
        while not first.is_serving:
            runtime.turn(0.05)
        first.finish()
        files.end_process()
        again = lone_node(runtime, files, [])
        again.begin()
        assert not again.is_leader
        assert again.transport.elections.has_leader
        runtime.now_s += 1.0
        assert not again.transport.elections.has_leader
