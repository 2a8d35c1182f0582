"""R1 to R4 in a whole group: logs that differ, messages that come late, a leader that was cut off with entries of its own.

The scripted findings S1, S5, S6 and L2 of pysyncobj 0.3.17, as they must be. One row of the log is one entry; `base` is the last one
that everybody has.
"""

import random

import pytest

import tern_raft.consensus
from tern_store import EntryKind
from tern_store.log.entry import encode_entry
from tern_store.state.vote_file import Standing
from tests.support.raft.raft_group import RaftGroup, SimNode, born_group


def cut_off(group: RaftGroup, count: int) -> tuple[SimNode, SimNode, SimNode, set[int]]:
    """The leader is alone and appends *count* entries; the others have elected. Old leader, new one, third; checksums of the entries."""
    old, rest = group.elect()
    group.isolate(old.name)
    entries = [old.append(b"alone %d" % number) for number in range(count)]
    for number, entry in enumerate(entries):
        group.proposed[old.name, entry.index, entry.term] = -number
    group.run_until(lambda: any(node.consensus.is_serving for node in rest), heals=False)
    new = next(node for node in rest if node.consensus.is_serving)
    return old, new, next(node for node in rest if node is not new), {entry.crc for entry in entries}


def write(group: RaftGroup, leader: SimNode, count: int, size_bytes: int) -> None:
    """*count* entries are committed while nobody is healed."""
    for number in range(count):
        leader.append(b"%d" % number + b"." * size_bytes)
    group.run_until(lambda: leader.committed == leader.log.end_index, heals=False)


def trim(node: SimNode) -> None:
    """The log of *node* begins with its last segment."""
    log = node.log
    first = log.end_index
    while log.mark(first - 1).position // log.segment_size_bytes == log.mark(first).position // log.segment_size_bytes:
        first -= 1
    job = log.trim(log.mark(first - 1))
    assert job is not None, "the log is too short"
    job.run()
    log.mark_trimmed(job)


class Ahead:
    """A follower that has five entries of its leader that nobody else has: what another leader says of them decides."""

    def __init__(self) -> None:
        self.group = born_group()
        self.leader, (self.node, self.other) = self.group.elect()
        self.base = self.node.log.end_index
        for number in range(5):
            self.leader.append(b"%d" % number)
        self.group.clock.now_s += 1.0
        self.group.deliver(self.node.name)
        assert (self.node.log.end_index, self.node.committed) == (self.base + 5, self.base)
        self.group.tape = []

    def other_leads(self, previous: int, previous_term: int, *, commit: int) -> None:
        """The third node says in the next term that its log has nothing behind *previous*."""
        self.node.hear(
            self.other.name,
            type="append_entries",
            term=self.leader.term + 1,
            commit_index=commit,
            prevLogIdx=previous,
            prevLogTerm=previous_term,
            seq=7,
            entries=[],
        )

    def replies(self) -> list[tuple[int, bool, bool]]:
        """What the follower answered it: next index, success, reset."""
        sent = self.group.said("next_node_idx", self.node, self.other)
        assert all(reply.message["term"] == self.node.term for reply in sent)
        return [(reply.message["next_node_idx"], reply.message["success"], reply.message["reset"]) for reply in sent]


def test_what_a_leader_wrote_alone_is_never_committed_when_it_returns() -> None:
    """S1 without a snapshot: 5 of 5 are gone, none was applied or answered, and the logs are equal within a second."""
    group = born_group()
    old, new, _, alone = cut_off(group, 5)
    write(group, new, 40, 100)
    assert group.run_until(group.is_converged) <= 1.0
    assert group.acked == set()
    assert not alone & {crc for node in group.nodes.values() for _, crc in node.applied}
    assert old.log.end_index == new.log.end_index


def test_a_leader_whose_log_begins_behind_the_own_end_commits_nothing_on_it() -> None:
    """S1 and L3 (syncobj.py:1021-1035, 1309-1331): stock applies its own five; and is sent up to 15,885 messages in one tick."""
    group = born_group()
    old, new, _, alone = cut_off(group, 5)
    write(group, new, 30, 10_000)
    trim(new)
    assert new.log.first_index > old.log.end_index
    told: list[float] = []
    old.transport._on_behind = lambda: told.append(group.clock.now_s)
    end, committed = old.log.end_index, old.committed
    group.tape = []
    group.run(1.0)
    for _ in range(1000):
        new.consensus.doTick(0)
        new.consensus._SyncObj__sendAppendEntries()
    assert told, "it knows that it must copy"
    assert len(group.said("behind", new, old)) <= 12, "one a heartbeat"
    assert not group.said("append_entries", new, old)
    assert (old.log.end_index, old.committed) == (end, committed)
    assert not alone & {crc for _, crc in old.applied}
    assert group.acked == set()


def test_a_node_that_comes_back_behind_the_leaders_log_is_told_so() -> None:
    """It was away while the log was trimmed, and has heard of no leader since; it will hear nothing else from this one."""
    group = born_group()
    leader, (away, _) = group.elect()
    group.kill(away.name)
    write(group, leader, 30, 10_000)
    trim(leader)
    again = group.nodes[away.name] = SimNode(group, away.name, bootstrap=False)
    told: list[str] = []
    again.transport._on_behind = lambda: told.append(again.name)
    group.run_until(lambda: bool(told), within_s=2)
    assert leader.consensus.is_serving


def test_a_short_log_that_another_leader_has_verified_is_all_that_is_committed_and_acknowledged() -> None:
    """R2, R3: its commit index covers five entries of ours that it never saw, and our answer must not cover them either."""
    ahead = Ahead()
    ahead.other_leads(ahead.base, ahead.node.log.term_at(ahead.base), commit=ahead.base + 5)
    assert ahead.node.committed == ahead.base
    assert ahead.replies() == [(ahead.base + 1, True, False)]
    assert ahead.node.log.end_index == ahead.base + 5, "nothing conflicts yet"


def test_a_proven_conflict_is_cut_and_asked_for_from_before_it() -> None:
    """R4: the entry before the message is of another term here."""
    ahead = Ahead()
    ahead.other_leads(ahead.base + 3, ahead.leader.term + 1, commit=ahead.base + 3)
    assert ahead.node.log.end_index == ahead.base + 2
    assert ahead.node.committed == ahead.base
    assert ahead.replies() == [(ahead.base + 3, False, True)]


def test_a_gap_is_asked_for_and_commits_nothing() -> None:
    """The message follows what this log has not."""
    ahead = Ahead()
    ahead.other_leads(ahead.base + 8, ahead.leader.term + 1, commit=ahead.base + 8)
    assert (ahead.node.log.end_index, ahead.node.committed) == (ahead.base + 5, ahead.base)
    assert ahead.replies() == [(ahead.base + 6, False, True)]


def test_who_contradicts_what_is_committed_is_not_answered() -> None:
    """The log stays; a committed entry cannot conflict."""
    ahead = Ahead()
    ahead.other_leads(ahead.base, ahead.leader.term + 1, commit=ahead.base)
    assert ahead.node.log.end_index == ahead.base + 5
    assert ahead.replies() == []


def test_an_entry_in_the_place_of_a_committed_one_cuts_nothing() -> None:
    """A member is trusted to be one, not to be sane: the entry before it agrees, the entry itself is another."""
    ahead = Ahead()
    term, previous = ahead.leader.term + 1, ahead.base - 1
    mark = ahead.node.log.mark(previous)
    place = {"position": mark.position, "previous_crc": mark.crc}
    entry = encode_entry(EntryKind.COMMANDS, ahead.base, term, [b"another"], 1, **place)
    ahead.node.hear(
        ahead.other.name,
        type="append_entries",
        term=term,
        commit_index=previous,
        prevLogIdx=previous,
        prevLogTerm=mark.term,
        seq=7,
        entries=[(entry, entry.index, entry.term)],
    )
    assert ahead.node.log.end_index == ahead.base + 5
    assert ahead.node.log.term_at(ahead.base) == ahead.leader.term
    assert ahead.replies() == []


@pytest.mark.parametrize("previous_term", [0, 1], ids=["a conflict", "an agreement"])
def test_a_leader_of_an_older_term_is_only_told_the_term(previous_term: int) -> None:
    """It cuts nothing, and any other answer would be a promise of the current term."""
    ahead = Ahead()
    ahead.other_leads(ahead.base, ahead.node.log.term_at(ahead.base), commit=ahead.base)
    ahead.group.tape = []
    ahead.node.hear(
        ahead.leader.name,
        type="append_entries",
        term=ahead.leader.term,
        commit_index=ahead.base + 5,
        prevLogIdx=ahead.base + 5,
        prevLogTerm=previous_term,
        seq=99,
        entries=[],
    )
    (told,) = ahead.group.tape
    assert (told.kind, told.receiver, told.message["term"]) == ("pre_vote_refused", ahead.leader.name, ahead.node.term)
    assert (ahead.node.log.end_index, ahead.node.committed) == (ahead.base + 5, ahead.base)


def test_a_node_that_may_not_stand_is_led_again_though_its_term_has_got_ahead() -> None:
    """It voted for itself, lost its disk and copied the log: it cannot campaign, so only its answer makes its term known."""
    group = born_group()
    leader, (ahead, _) = group.elect()
    ahead.votes.forget(b"copied".ljust(16))
    ahead.transport.greet_all()
    group.run(0.1)
    ahead.consensus.learn_term(leader.term + 1)
    entry = leader.append(b"new")
    group.run_until(lambda: ahead.log.end_index >= entry.index and ahead.consensus.leader_name is not None)


def test_an_ack_that_waits_for_the_disk_is_forgotten_in_another_term() -> None:
    """It was made for a leader that is none any more: what it promises may be cut before the promise arrives."""
    ahead = Ahead()
    assert ahead.node.log.synced_index == ahead.base
    ahead.other_leads(ahead.base, ahead.node.log.term_at(ahead.base), commit=0)
    ahead.group.tape = []
    job = ahead.node.log.take_sync()
    assert job is not None
    job.run()
    ahead.node.log.mark_synced(job)
    ahead.node.transport.synced()
    assert ahead.node.log.synced_index == ahead.base + 5
    assert ahead.group.tape == []


@pytest.mark.parametrize("seed", range(5))
def test_messages_that_come_late_or_again_cut_nothing_and_promise_nothing_new(seed: int) -> None:
    """S5 (syncobj.py:991-1006): every append of a run once more, in any order."""
    group = born_group(seed)
    leader, (follower, _) = group.elect()
    group.tape = []
    for number in range(20):
        leader.append(b"%d" % number)
        group.step(chaos=False)
    group.run_until(group.is_converged)
    group.run(0.3)
    appends = group.said("append_entries", leader, follower)
    end, committed = follower.log.end_index, follower.committed
    for sent in random.Random(seed).sample(appends, len(appends)):
        group.tape = []
        follower.transport.receive(leader.name, sent.body)
        (reply,) = group.said("next_node_idx", follower, leader)
        assert (follower.log.end_index, follower.committed) == (end, committed)
        assert reply.message["success"]
        assert reply.message["next_node_idx"] <= sent.message["prevLogIdx"] + len(sent.message["entries"]) + 1


def acknowledge(leader: SimNode, peer: SimNode, index: int, *, term: int) -> int:
    """*peer* says that it has everything up to *index*; what of that counts then."""
    seq = leader.transport.last_number
    ack = {"next_node_idx": index + 1, "reset": False, "success": True, "seq": seq, "disk": 0}
    leader.hear(peer.name, type="next_node_idx", term=term, **ack)
    match = leader.consensus._SyncObj__raftMatchIndex
    return int(next(match[node] for node in match if node.id == peer.name))


def test_an_ack_counts_only_in_the_term_it_was_made_in() -> None:
    """S6, R1 (syncobj.py:1098-1106 names no term): what was acknowledged may have been cut since."""
    group = born_group()
    leader, (follower, _) = group.elect()
    before, index = leader.log.end_index, leader.append(b"x").index
    assert acknowledge(leader, follower, index, term=leader.term - 1) == before
    assert acknowledge(leader, follower, index, term=leader.term + 1) == before
    assert acknowledge(leader, follower, index, term=leader.term) == index


def test_the_acks_of_who_does_not_count_commit_nothing() -> None:
    """A node that is being rebuilt has forgotten what it promised; what it has is known all the same, to take it back."""
    group = born_group()
    leader, (rebuilding, _) = group.elect()
    index = leader.append(b"x").index
    job = leader.log.take_sync()
    assert job is not None
    job.run()
    leader.log.mark_synced(job)
    hello = rebuilding.membership.hello((rebuilding.log.end_term, rebuilding.log.end_index))
    leader.hear(rebuilding.name, **hello | {"standing": int(Standing.REBUILDING)})
    assert acknowledge(leader, rebuilding, index, term=leader.term) == 0
    leader.consensus.doTick(0)
    assert leader.committed < index
    assert leader.consensus.match_index(rebuilding.name) == index


def test_a_conflict_far_behind_a_leader_that_was_elected_again_is_over_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L2 (syncobj.py:985-990 with 1272-1273): one entry of its own, 120 KiB in 8 KiB messages behind; stock never catches up."""
    monkeypatch.setattr(tern_raft.consensus, "APPEND_SIZE_MAX_BYTES", 8 << 10)
    group = born_group()
    old, new, heir, _ = cut_off(group, 1)
    write(group, new, 30, 4000)
    group.run_until(lambda: new.consensus.has_all(heir.name), heals=False)
    new.consensus.hand_over(heir.name)
    group.run_until(lambda: heir.consensus.is_serving, heals=False)
    group.tape = []
    assert group.run_until(group.is_converged) <= 1.0
    sent = [index for sent in group.said("append_entries", heir, old) for _, index, _ in sent.message["entries"]]
    assert len(sent) <= 2 * len(set(sent)), "what is sent again is little"
