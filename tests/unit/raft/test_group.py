"""Three nodes in one thread with virtual time: elections, handovers, and what a peer may not say."""

import random
from pathlib import Path
from typing import Any

import pytest

from tern_raft.frames import encode_message
from tern_raft.transfer import Transfer
from tern_raft.transport import TERM_STEP_MAX
from tern_store import LogMark
from tern_wire.errors import LinkBodyMalformed
from tests.support.raft.raft_group import RaftGroup, SimNode


def started(directory: Path, seed: int = 1, *, size: int = 3) -> tuple[RaftGroup, SimNode, list[SimNode]]:
    """A group that has elected; its leader and its followers."""
    group = RaftGroup(directory, seed, size=size)
    group.tape = []
    run_until(group, lambda: any(node.consensus.is_serving for node in group.nodes.values()) and group.is_converged())
    leader = next(node for node in group.nodes.values() if node.consensus.is_serving)
    return group, leader, [node for node in group.nodes.values() if node is not leader]


def run_until(group: RaftGroup, holds: Any, *, within_s: float = 10) -> float:
    """Calm steps until *holds*; the virtual seconds that it took."""
    began_s = group.clock.now_s
    while not holds():
        assert group.clock.now_s < began_s + within_s, "not within the time"
        group.step(chaos=False)
    return group.clock.now_s - began_s


def say(receiver: SimNode, sender: str, **message: Any) -> None:
    """A hostile or broken peer says *message*."""
    body = b"".join(bytes(part) for part in encode_message(message))
    receiver.transport.receive(sender, body)


def test_a_node_that_was_cut_off_never_deposes_a_leader_that_the_others_hear(tmp_path: Path) -> None:
    """R6: its election time is over again and again, but nobody would vote for it."""
    group, leader, (away, _) = started(tmp_path)
    term = leader.consensus.raftCurrentTerm
    group.halves = {name: int(name == away.name) for name in group.names}
    for _ in range(1000):
        group.heal = lambda: None  # type: ignore[method-assign]
        group.step(chaos=False)
    assert away.consensus.leader_name != leader.name or not away.consensus.is_leader
    del group.heal
    run_until(group, group.is_converged)
    for _ in range(400):
        group.step(chaos=False)
    assert leader.consensus.is_serving
    assert leader.consensus.raftCurrentTerm == term


def test_a_dead_leader_is_replaced_without_waiting_for_its_silence(tmp_path: Path) -> None:
    """Its connections break at once; the election time is 1 s here."""
    slow = 0
    for seed in range(10):
        (tmp_path / f"{seed}").mkdir()
        group, leader, rest = started(tmp_path / f"{seed}", seed)
        group.kill(leader.name)
        group.heal = lambda: None  # type: ignore[method-assign]
        took_s = run_until(group, lambda rest=rest: any(node.consensus.is_serving for node in rest))
        print(f"seed {seed}: {took_s:.3f} s")
        slow += took_s >= 0.6
    assert slow <= 1, "a split vote is rare"


def test_leadership_is_handed_to_who_has_everything(tmp_path: Path) -> None:
    """The heir is elected although the others hear the old leader; what was committed stays."""
    group, leader, (heir, other) = started(tmp_path)
    transfer = Transfer(leader.consensus, leader.membership, [heir.name, other.name], group.clock)
    assert transfer.begin(heir.name) == ""
    assert transfer.is_under_way
    assert "already" in transfer.begin(other.name)

    def has_moved() -> bool:
        transfer.step()
        return heir.consensus.is_serving

    assert run_until(group, has_moved) < 0.3
    assert not transfer.is_under_way
    assert "does not lead" in transfer.begin(None)


def test_leadership_goes_when_nobody_waits_for_an_outcome_any_more(tmp_path: Path) -> None:
    """The heir has the whole log before the leader's own slow disk: of three that is no majority, and who sent it would never hear what became of it."""
    group, leader, (heir, other) = started(tmp_path)
    group.halves = {name: int(name == other.name) for name in group.names}
    group.heal = lambda: None  # type: ignore[method-assign]

    def step_without_disk(rng: random.Random) -> None:
        leader.consensus.doTick(0)

    leader.step = step_without_disk  # type: ignore[method-assign]
    transfer = Transfer(leader.consensus, leader.membership, [heir.name, other.name], group.clock)
    entry = leader.append(b"sent just before")
    assert transfer.begin(heir.name) == ""

    def stepped(has_come: bool) -> bool:
        transfer.step()
        return has_come

    run_until(group, lambda: stepped(leader.consensus.has_all(heir.name)), within_s=0.5)
    for _ in range(30):
        group.step(chaos=False)
        transfer.step()
    assert (leader.consensus.is_serving, heir.consensus.is_leader, transfer.is_under_way) == (True, False, True)
    del leader.step
    run_until(group, lambda: stepped(not leader.consensus.is_leader), within_s=0.5)
    assert entry.index in {index for index, _ in leader.applied}


def test_leadership_is_not_handed_to_who_is_not_there(tmp_path: Path) -> None:
    """Unknown names, and members without a link."""
    group, leader, (heir, other) = started(tmp_path)
    transfer = Transfer(leader.consensus, leader.membership, [heir.name, other.name], group.clock)
    assert "not a member that is connected" in transfer.begin("n9")
    group.cut(leader.name, heir.name)
    group.cut(leader.name, other.name)
    assert "no other member is connected" in transfer.begin(None)
    assert not transfer.is_under_way


def test_a_handover_that_does_not_come_about_ends(tmp_path: Path) -> None:
    """The heir hangs: the leader goes on after a second."""
    group, leader, (heir, other) = started(tmp_path)
    transfer = Transfer(leader.consensus, leader.membership, [heir.name, other.name], group.clock)
    transfer.begin(heir.name)
    group.clock.now_s += 1.1
    transfer.step()
    assert not transfer.is_under_way


@pytest.mark.parametrize("kind", ["append_entries", "request_vote", "pre_vote_refused"])
def test_a_term_out_of_all_proportion_is_not_kept(kind: str, tmp_path: Path) -> None:
    """It would be on the disk for ever, and the next election would overflow it."""
    _, leader, (follower, _) = started(tmp_path)
    fields: dict[str, dict[str, Any]] = {
        "append_entries": {"commit_index": 0, "prevLogIdx": 1, "prevLogTerm": 0, "seq": 1, "entries": []},
        "request_vote": {"last_log_index": 9, "last_log_term": 9, "told": False},
        "pre_vote_refused": {},
    }
    term = follower.consensus.raftCurrentTerm
    with pytest.raises(LinkBodyMalformed, match="is in term"):
        say(follower, leader.name, type=kind, term=term + TERM_STEP_MAX + 1, **fields[kind])
    assert follower.votes.term == term


def test_there_is_one_leader_in_a_term(tmp_path: Path) -> None:
    """Who says otherwise is cut off: neither the leader nor its followers obey."""
    _, leader, (follower, other) = started(tmp_path)
    term = leader.consensus.raftCurrentTerm
    append = {"commit_index": 0, "prevLogIdx": 1, "prevLogTerm": 0, "seq": 1, "entries": []}
    for receiver in (leader, follower):
        with pytest.raises(LinkBodyMalformed, match="has another leader"):
            say(receiver, other.name, type="append_entries", term=term, **append)
    assert leader.consensus.is_leader


def test_nobody_is_heard_before_it_has_greeted(tmp_path: Path) -> None:
    """What it is decides what its words are worth."""
    _, leader, (follower, _) = started(tmp_path)
    follower.transport.membership.lost(leader.name)
    with pytest.raises(LinkBodyMalformed, match="before it has greeted"):
        say(follower, leader.name, type="pre_vote", term=9, last_log_index=9, last_log_term=9)


def test_a_vote_counts_in_its_own_term_only_and_once(tmp_path: Path) -> None:
    """R5: the same voter in terms 5, 6, 5 is one vote."""
    group, _, _ = started(tmp_path, size=5)
    candidate = next(node for node in group.nodes.values() if not node.consensus.is_leader)
    voter = next(name for name in group.names if name != candidate.name)
    core = candidate.consensus
    core._SyncObj__setCurrentTerm(50, candidate.name)
    core._SyncObj__setState(1)  # candidate
    core._SyncObj__votesCount = 1
    for term in (50, 51, 50, 49, 50):
        say(candidate, voter, type="response_vote", term=term)
    assert core._SyncObj__votesCount == 2
    assert not core.is_leader


def test_a_peer_that_lacks_what_the_log_no_longer_has_is_told_so(tmp_path: Path) -> None:
    """It asks for the log's beginning, which retention has dropped: it must copy, and the leader lives on."""
    group, leader, (follower, _) = started(tmp_path)
    log = leader.log
    log._start = type(log._start)(LogMark(2, 0, log.mark(2).crc, log.mark(2).term), log._start.genesis)
    term = leader.consensus.raftCurrentTerm
    for asked in (0, 1, 2):
        before = len(group.said("behind", leader, follower))
        reply = {"term": term, "next_node_idx": asked, "reset": True, "success": False, "disk": 0}
        say(leader, follower.name, type="next_node_idx", seq=leader.transport.last_number, **reply)
        run_until(group, lambda before=before: len(group.said("behind", leader, follower)) > before, within_s=2)
    assert leader.consensus.is_serving


@pytest.mark.parametrize("is_known", [True, False])
def test_a_node_copies_only_if_the_leader_s_log_begins_behind_its_own(is_known: bool, tmp_path: Path) -> None:
    """It may never have heard that leader, which can say nothing else to it; an old term and a log that suffices are no reason."""
    _, leader, (follower, _) = started(tmp_path)
    told: list[str] = []
    follower.transport._on_behind = lambda: told.append("copy")
    term, end = follower.consensus.raftCurrentTerm, follower.log.end_index
    if not is_known:
        follower.consensus._SyncObj__raftLeader = None
    say(follower, leader.name, type="behind", term=term, first=end + 1)
    say(follower, leader.name, type="behind", term=term - 1, first=end + 2)
    assert not told
    say(follower, leader.name, type="behind", term=term, first=end + 2)
    assert told == ["copy"]


def test_a_peer_whose_log_was_replaced_is_sent_what_follows_its_new_end(tmp_path: Path) -> None:
    """Where the old one ended, or asked to begin again, says nothing: its greeting does."""
    group, leader, (follower, _) = started(tmp_path)
    leader.consensus._SyncObj__raftNextIndex[leader.transport._nodes[follower.name]] = 0
    group.cut(leader.name, follower.name)
    leader.consensus.append([b"more"], 1, urgent=False)
    run_until(group, group.is_converged)
    assert not group.said("behind", leader, follower)


def test_an_ack_of_what_nobody_sent_is_refused(tmp_path: Path) -> None:
    """It would count towards entries that do not exist yet."""
    _, leader, (follower, _) = started(tmp_path)
    reply = {"term": leader.consensus.raftCurrentTerm, "reset": False, "success": True, "disk": 0}
    with pytest.raises(LinkBodyMalformed, match="that nobody sent"):
        say(leader, follower.name, type="next_node_idx", seq=1, next_node_idx=leader.log.end_index + 2, **reply)
