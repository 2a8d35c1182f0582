"""The words about an entry that no member can apply: who may say them, and what a node makes of those in its log."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tern_raft.pass_over import AGAIN_AFTER_S, BODY, PassOver, Stage, Verdict, Waiting, read_word
from tern_store import CommitLog, EntryKind, Genesis, encode_entry
from tern_store.state.vote_file import Standing
from tests.support.files.faulty_files import FaultyFiles
from tests.support.raft.raft_group import SimNode, born_group


class Blocked:
    """A group of three whose members all wait in front of entry *index*."""

    def __init__(self) -> None:
        self.group = born_group()
        self.leader, self.followers = self.group.elect()
        self.index = self.leader.log.end_index + 1
        self.passing = {node.name: self._of(node) for node in self.group.nodes.values()}
        for node in self.group.nodes.values():
            node.consensus.may_apply = lambda index: index < self.index
        entry = self.leader.append(b"poison")
        self.crc = entry.crc
        assert entry.index == self.index
        for node in self.group.nodes.values():
            passing = self.passing[node.name]
            passing.blocked = self.index, self.crc
            node.consensus.may_apply = self._gate(passing)
        self.group.run_until(lambda: len(self.lead.peers) == 2)

    def _of(self, node: SimNode) -> PassOver:
        others = [name for name in self.group.names if name != node.name]
        passing = node.transport.pass_over = PassOver(
            node.log,
            consensus=lambda: node.consensus,
            membership=node.membership,
            others=others,
            monotonic=self.group.clock,
        )
        return passing

    def _gate(self, passing: PassOver) -> Callable[[int], bool]:
        return lambda index: passing.verdict(index) is not Verdict.WAIT

    @property
    def lead(self) -> PassOver:
        """The leader's."""
        return self.passing[self.leader.name]

    def run(self, seconds: float, *, heals: bool = True) -> None:
        """For so long; everybody looks every few ms."""
        until_s = self.group.clock.now_s + seconds
        while self.group.clock.now_s < until_s:
            self.group.step(chaos=False, heals=heals)
            for passing in self.passing.values():
                passing.step()

    def stages(self) -> list[Stage]:
        """What the leader's log says."""
        return [Stage(read_word(entry).stage) for entry in self.leader.log.pass_overs]

    def applied(self) -> list[int]:
        """How far each node is."""
        return [int(node.consensus.raftLastApplied) for node in self.group.nodes.values()]


def test_all_pass_over_it_when_every_voter_has_agreed() -> None:
    """The leader is told; the rest goes by itself."""
    blocked = Blocked()
    assert blocked.lead.ask(blocked.index) == ""
    blocked.run(1.0)
    assert blocked.stages() == [Stage.ASKED, Stage.DONE]
    assert set(blocked.applied()) == {blocked.leader.log.end_index}
    assert {passing.verdict(blocked.index) for passing in blocked.passing.values()} == {Verdict.SKIP}


def test_one_that_does_not_answer_keeps_all_in_front_of_it() -> None:
    """A majority has ASKED, and that is not enough: the third may apply it at its next start."""
    blocked = Blocked()
    silent = blocked.followers[0].name
    assert blocked.lead.ask(blocked.index) == ""
    blocked.group.isolate(silent)
    blocked.run(0.9, heals=False)
    assert blocked.stages() == [Stage.ASKED]
    assert blocked.leader.committed == blocked.leader.log.end_index
    assert set(blocked.applied()) == {blocked.index - 1}
    blocked.group.heal()
    blocked.run(1.0)
    assert blocked.stages() == [Stage.ASKED, Stage.DONE]


def test_a_peer_that_has_lost_what_it_had_is_not_asked() -> None:
    """It is no voter, and learns of the words from the log that it copies."""
    blocked = Blocked()
    lost = blocked.followers[0]
    hello = lost.membership.hello((lost.log.end_term, lost.log.end_index))
    blocked.leader.hear(lost.name, **hello | {"standing": int(Standing.REBUILDING)})
    blocked.lead.lost(lost.name)
    assert blocked.lead.ask(blocked.index) == ""


@pytest.mark.parametrize("other", ["index", "crc", "nobody"])
def test_peers_that_wait_elsewhere_do_not_count(other: str) -> None:
    """What they wait for must be this entry, and no other one of its index."""
    blocked = Blocked()
    found = {
        "index": Waiting(blocked.index + 1, blocked.crc, 0),
        "crc": Waiting(blocked.index, blocked.crc ^ 1, 0),
        "nobody": None,
    }
    blocked.lead.heard(blocked.followers[0].name, found[other], 0)
    assert "has not said that it cannot apply" in blocked.lead.ask(blocked.index)
    assert blocked.stages() == []


def test_who_is_past_the_entry_tells_those_that_wait() -> None:
    """A leader that has applied it knows that nobody will ever pass over it; it says so, again if nobody hears, and not all the time."""
    blocked = Blocked()
    assert blocked.lead.ask(blocked.index) == ""
    asked_at = blocked.leader.log.end_index
    blocked.lead.blocked = None
    blocked.leader.consensus.may_apply = lambda _index: True
    blocked.group.isolate(blocked.followers[0].name)
    blocked.group.run_until(lambda: bool(blocked.leader.consensus.raftLastApplied >= asked_at), heals=False)
    blocked.group.clock.now_s += AGAIN_AFTER_S
    waiting = Waiting(blocked.index, blocked.crc, asked_at)
    for _ in range(3):
        blocked.lead.heard(blocked.followers[1].name, waiting, asked_at)
        blocked.lead.step()
    assert blocked.stages() == [Stage.ASKED, Stage.WITHDRAWN]
    blocked.group.clock.now_s += AGAIN_AFTER_S
    blocked.lead.heard(blocked.followers[1].name, Waiting(blocked.index, blocked.crc, 0), asked_at)
    blocked.lead.step()
    assert blocked.stages() == [Stage.ASKED, Stage.WITHDRAWN], "one that only cannot apply it is told nothing"


def test_words_of_another_term_are_forgotten() -> None:
    """Whoever leads again must hear again."""
    blocked = Blocked()
    blocked.leader.consensus.learn_term(blocked.leader.term + 1)
    assert blocked.lead.peers == {}
    assert blocked.lead.ask(blocked.index) == "this node does not lead"


def test_an_entry_that_is_no_word_of_ours_is_about_nothing() -> None:
    """Whatever it holds."""
    for body in (b"", b"\0" * 12, b"\0" * 14):
        entry = encode_entry(EntryKind.PASS_OVER, 9, 3, (body,), 0, position=900, previous_crc=5)
        assert read_word(entry).index == 0
    entry = encode_entry(EntryKind.PASS_OVER, 9, 3, (BODY.pack(7, 5, 6),), 0, position=900, previous_crc=5)
    assert (read_word(entry).stage, read_word(entry).index) == (7, 5)


def test_the_log_knows_its_words_when_it_is_opened_again_and_forgets_those_that_are_cut() -> None:
    """They say of an entry before them what becomes of it, so they must be known before it is applied."""
    files, directory, genesis = FaultyFiles(), Path("/data"), Genesis(b"g" * 16, ("a",), 64 << 10)
    log = CommitLog.open(directory, group=genesis, files=files)
    for number in range(2, 40):
        kind = EntryKind.PASS_OVER if number in {10, 30} else EntryKind.COMMANDS
        log.append(kind, number, 1, (BODY.pack(0, 5, number),), 1)
    mark = log.mark(20)
    assert [entry.index for entry in log.pass_overs] == [10, 30]
    log.truncate_from(30)
    assert [entry.index for entry in log.pass_overs] == [10]
    log.append(EntryKind.PASS_OVER, 30, 2, (BODY.pack(1, 5, 30),), 1)
    log.close()
    log = CommitLog.open(directory, group=genesis, files=files)
    assert [(entry.index, read_word(entry).stage) for entry in log.pass_overs] == [(10, 0), (30, 1)]
    log.close()
    log = CommitLog.open(directory, group=genesis, files=files, start=mark)
    assert [entry.index for entry in log.pass_overs] == [30], "behind a saved state only those that follow it matter"
    log.close()
