"""Nothing is acknowledged, counted or voted for before it is on disk: one group, disks that the test moves by hand."""

import errno
from pathlib import Path
from typing import Any

import pysyncobj.syncobj as stock
import pytest

from tern_raft.frames import encode_message
from tern_store import VoteFile
from tests.support.raft.raft_group import STEP_S, RaftGroup, SimNode


class Trio:
    """Three calm nodes; `turn` delivers and ticks, the disks stand still unless told otherwise."""

    def __init__(self, directory: Path) -> None:
        self.group = RaftGroup(directory, seed=1)
        for _ in range(2000):
            self.turn(*self.group.names)
            if any(node.consensus.is_serving for node in self.group.nodes.values()):
                break
        self.leader = next(node for node in self.group.nodes.values() if node.consensus.is_serving)
        self.followers = [node for node in self.group.nodes.values() if node is not self.leader]

    def turn(self, *synced: str) -> None:
        """Five milliseconds in which only the disks of *synced* work."""
        self.group.clock.now_s += STEP_S
        names = self.group.names
        for number, one in enumerate(names):
            for two in names[number + 1 :]:
                self.group.connect(one, two)
        for name in names:
            node = self.group.nodes[name]
            self.group.deliver(name)
            node.consensus.doTick(0)
            if name in synced and (job := node.log.take_sync()) is not None:
                job.run()
                node.log.mark_synced(job)
                node.transport.synced()

    def turns(self, count: int, *synced: str) -> None:
        """Several."""
        for _ in range(count):
            self.turn(*synced)


def is_committed(node: SimNode, index: int) -> bool:
    """Whether *node* knows that *index* is committed."""
    return bool(node.consensus.raftCommitIndex >= index)


def test_followers_do_not_acknowledge_what_their_disks_do_not_have(tmp_path: Path) -> None:
    """The leader's disk alone is no majority; one follower's disk more is."""
    trio = Trio(tmp_path)
    entry = trio.leader.consensus.append([b"payload"], 1, urgent=False)
    trio.turns(50, trio.leader.name)
    assert all(node.log.end_index == entry.index for node in trio.followers), "everybody has it in memory"
    assert not is_committed(trio.leader, entry.index)
    trio.turns(50, trio.leader.name, trio.followers[0].name)
    assert is_committed(trio.leader, entry.index)
    assert trio.leader.consensus.match_index(trio.followers[1].name) < entry.index


def test_the_leader_does_not_count_itself_before_its_own_disk(tmp_path: Path) -> None:
    """Stock pysyncobj counts the leader at once (syncobj.py:660)."""
    trio = Trio(tmp_path)
    entry = trio.leader.consensus.append([b"payload"], 1, urgent=False)
    trio.turns(50, trio.followers[0].name)
    assert trio.leader.consensus.match_index(trio.followers[0].name) == entry.index
    assert not is_committed(trio.leader, entry.index)
    trio.turns(5, trio.leader.name)
    assert is_committed(trio.leader, entry.index)


def test_a_disk_that_stands_still_does_not_cost_the_leadership(tmp_path: Path) -> None:
    """Heartbeats are answered without the disk: three virtual seconds, same leader, same term."""
    trio = Trio(tmp_path)
    trio.leader.consensus.append([b"payload"], 1, urgent=False)
    term = trio.leader.consensus.raftCurrentTerm
    trio.turns(600)
    assert trio.leader.consensus.is_leader
    assert trio.leader.consensus.raftCurrentTerm == term


def test_a_vote_is_on_disk_when_it_is_given(tmp_path: Path) -> None:
    """Whoever comes back from a kill has not forgotten whom it voted for."""
    trio = Trio(tmp_path)
    for node in trio.group.nodes.values():
        assert node.votes.term == node.consensus.raftCurrentTerm
    name = trio.followers[0].name
    before = (trio.followers[0].votes.term, trio.followers[0].votes.voted_for)
    trio.group.kill(name)
    again = SimNode(trio.group, name, bootstrap=False)
    assert before == (again.votes.term, again.votes.voted_for)


class Refusing:
    """A vote file whose disk takes nothing."""

    def __init__(self, votes: VoteFile) -> None:
        self._votes = votes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._votes, name)

    def save(self, term: int, voted_for: str | None) -> None:
        """There is no room for it."""
        raise OSError(errno.ENOSPC, "no room")


def test_a_leader_whose_disk_takes_no_term_does_not_lead_in_it(tmp_path: Path) -> None:
    """The newer term is another's: it goes on in its own until it can write, and then it follows."""
    trio = Trio(tmp_path)
    old, other = trio.leader, trio.followers[0]
    term, file = old.consensus.raftCurrentTerm, old.votes
    old.journal._votes = Refusing(file)  # type: ignore[assignment]
    message = {
        "type": "append_entries",
        "term": term + 1,
        "commit_index": 1,
        "entries": [],
        "seq": 1,
        "prevLogIdx": old.log.end_index,
        "prevLogTerm": old.log.end_term,
    }
    old.transport.receive(other.name, b"".join(encode_message(message)))
    assert (old.consensus.raftCurrentTerm, old.consensus.is_leader) == (term, True)
    assert (file.term, old.consensus.leader_name) == (term, old.name)
    old.journal._votes = file
    old.transport.receive(other.name, b"".join(encode_message(message)))
    assert (old.consensus.raftCurrentTerm, old.consensus.is_leader, file.term) == (term + 1, False, term + 1)
    assert old.consensus.leader_name == other.name


def test_a_vote_that_the_disk_refuses_was_not_given_and_a_campaign_does_not_begin(tmp_path: Path) -> None:
    """In memory neither: late answers to an earlier campaign must not be counted for one that was never begun."""
    trio = Trio(tmp_path)
    node = trio.followers[0]
    consensus, term = node.consensus, node.consensus.raftCurrentTerm
    node.journal._votes = Refusing(node.votes)  # type: ignore[assignment]
    for state in (stock._RAFT_STATE.FOLLOWER, stock._RAFT_STATE.CANDIDATE):
        consensus._SyncObj__raftState = state
        with pytest.raises(OSError, match="no room"):
            consensus._SyncObj__setCurrentTerm(term + 1, node.name)
        assert (consensus.raftCurrentTerm, consensus._SyncObj__votedForNodeId) == (term, node.votes.voted_for)
        assert consensus._SyncObj__raftState == stock._RAFT_STATE.FOLLOWER


def test_one_node_alone_commits_what_its_disk_has(tmp_path: Path) -> None:
    """A group of one has no peers to wait for, but its disk."""
    group = RaftGroup(tmp_path, seed=1, size=1)
    node = group.nodes["n0"]
    for _ in range(400):
        group.step(chaos=False)
    assert node.consensus.is_serving
    entry = node.consensus.append([b"payload"], 1, urgent=False)
    for _ in range(5):
        group.clock.now_s += STEP_S
        node.consensus.doTick(0)
    assert not is_committed(node, entry.index)
    for _ in range(50):
        group.step(chaos=False)
    assert is_committed(node, entry.index)
