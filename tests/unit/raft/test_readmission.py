"""Rebuilt nodes are taken back by an entry that names them, when they have nearly everything, and not asked for twice at once."""

import errno

import pytest

from tern_raft.membership import read_readmit
from tern_raft.readmission import AGAIN_AFTER_S, LAG_MAX_ENTRIES, Readmission
from tern_store import EntryKind, SyncLost
from tern_store.state.vote_file import Standing
from tests.support.files.faulty_files import FaultyFiles
from tests.support.raft.raft_group import SimNode, born_group


class Returning:
    """A leader, and a follower that says that it has forgotten its votes."""

    def __init__(self) -> None:
        self.group = born_group()
        self.leader, (self.follower, self.other) = self.group.elect()
        hello = self.follower.membership.hello((self.follower.log.end_term, self.follower.log.end_index))
        self.leader.hear(self.follower.name, **hello | {"standing": int(Standing.REBUILDING)})
        self.readmissions = {node.name: self._of(node) for node in self.group.nodes.values()}

    def _of(self, node: SimNode) -> Readmission:
        others = [name for name in self.group.names if name != node.name]
        return Readmission(node.consensus, node.membership, others, self.group.clock)

    def acknowledge(self, index: int) -> None:
        """The follower has everything up to *index*."""
        ack = {"next_node_idx": index + 1, "reset": False, "success": True, "disk": 0}
        seq = self.leader.transport.last_number
        self.leader.hear(self.follower.name, type="next_node_idx", term=self.leader.term, seq=seq, **ack)

    def step(self) -> list[tuple[str, bytes]]:
        """Everybody looks; whom the entries that the leader appended name."""
        before = self.leader.log.end_index
        for readmission in self.readmissions.values():
            readmission.step()
        entries = [self.leader.log.entry(index) for index in range(before + 1, self.leader.log.end_index + 1)]
        assert {entry.kind for entry in entries} <= {EntryKind.READMIT}
        return [read_readmit(entry.body) for entry in entries]


def test_a_node_is_taken_back_when_it_has_nearly_everything() -> None:
    """Not before: the group would count on who cannot follow it. The leader alone does it, for who needs it alone."""
    returning = Returning()
    start = returning.leader.log.end_index
    for number in range(LAG_MAX_ENTRIES + 10):
        returning.leader.append(b"%d" % number)
    returning.acknowledge(start)
    assert returning.step() == []
    returning.acknowledge(start + 10)
    assert returning.step() == [(returning.follower.name, returning.follower.votes.incarnation)]


def test_a_readmission_that_did_not_help_is_written_again_after_a_while_only() -> None:
    """The steps are ms apart: an entry for each would fill the log."""
    returning = Returning()
    returning.acknowledge(returning.leader.log.end_index)
    assert len(returning.step()) == 1
    assert returning.step() == []
    returning.group.clock.now_s += AGAIN_AFTER_S
    assert len(returning.step()) == 1


def test_a_readmission_that_the_kernel_refuses_is_written_later() -> None:
    """A leader that has no memory for it goes on; only a write that was lost ends it."""
    returning = Returning()
    returning.acknowledge(returning.leader.log.end_index)
    files = returning.group.files[returning.leader.name]
    assert isinstance(files, FaultyFiles)
    files.fail_next("pwrite", errno.ENOMEM)
    assert returning.step() == []
    returning.group.clock.now_s += AGAIN_AFTER_S
    assert len(returning.step()) == 1
    returning.group.clock.now_s += AGAIN_AFTER_S
    files.fail_next("pwrite", errno.EIO)
    with pytest.raises(SyncLost):
        returning.step()
