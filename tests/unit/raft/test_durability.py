"""Nothing is acknowledged, counted or voted for before it is on disk: one group, disks that the test moves by hand."""

from pathlib import Path

from tests.support.raft_group import STEP_S, RaftGroup, SimNode


class Desk:
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
    desk = Desk(tmp_path)
    entry = desk.leader.consensus.append([b"payload"], 1, urgent=False)
    desk.turns(50, desk.leader.name)
    assert all(node.log.end_index == entry.index for node in desk.followers), "everybody has it in memory"
    assert not is_committed(desk.leader, entry.index)
    desk.turns(50, desk.leader.name, desk.followers[0].name)
    assert is_committed(desk.leader, entry.index)
    assert desk.leader.consensus.match_index(desk.followers[1].name) < entry.index


def test_the_leader_does_not_count_itself_before_its_own_disk(tmp_path: Path) -> None:
    """Stock pysyncobj counts the leader at once (syncobj.py:660)."""
    desk = Desk(tmp_path)
    entry = desk.leader.consensus.append([b"payload"], 1, urgent=False)
    desk.turns(50, desk.followers[0].name)
    assert desk.leader.consensus.match_index(desk.followers[0].name) == entry.index
    assert not is_committed(desk.leader, entry.index)
    desk.turns(5, desk.leader.name)
    assert is_committed(desk.leader, entry.index)


def test_a_disk_that_stands_still_does_not_cost_the_leadership(tmp_path: Path) -> None:
    """Heartbeats are answered without the disk: three virtual seconds, same leader, same term."""
    desk = Desk(tmp_path)
    desk.leader.consensus.append([b"payload"], 1, urgent=False)
    term = desk.leader.consensus.raftCurrentTerm
    desk.turns(600)
    assert desk.leader.consensus.is_leader
    assert desk.leader.consensus.raftCurrentTerm == term


def test_a_vote_is_on_disk_when_it_is_given(tmp_path: Path) -> None:
    """Whoever comes back from a kill has not forgotten whom it voted for."""
    desk = Desk(tmp_path)
    for node in desk.group.nodes.values():
        assert node.votes.term == node.consensus.raftCurrentTerm
    name = desk.followers[0].name
    before = (desk.followers[0].votes.term, desk.followers[0].votes.voted_for)
    desk.group.kill(name)
    again = SimNode(desk.group, name, bootstrap=False)
    assert before == (again.votes.term, again.votes.voted_for)


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
