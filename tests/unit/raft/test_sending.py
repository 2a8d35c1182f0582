"""What a leader sends and when: nothing twice, no more than a window, one heartbeat a period, whatever the network and the ticks do."""

import errno
from collections import Counter

import pytest

import tern_raft.consensus
from tern_raft.consensus import HEARTBEAT_PERIOD_S, IN_FLIGHT_ENTRIES_MAX, IN_FLIGHT_SIZE_MAX_BYTES
from tern_store.state.vote_file import Standing
from tests.support.files.faulty_files import FaultyFiles
from tests.support.raft.raft_group import RaftGroup, SimNode, born_group


def sent_entries(group: RaftGroup, sender: SimNode, receiver: SimNode) -> list[int]:
    """The indexes of all entries on the tape, in the order sent."""
    appends = group.said("append_entries", sender, receiver)
    return [index for sent in appends for _, index, _ in sent.message["entries"]]


def reset(leader: SimNode, peer: SimNode, following: int, seq: int) -> None:
    """*peer* asks for a restart at *following* in answer to message *seq*."""
    answer = {"next_node_idx": following, "reset": True, "success": False, "disk": 0}
    leader.hear(peer.name, type="next_node_idx", term=leader.term, seq=seq, **answer)


def hand_over(group: RaftGroup, leader: SimNode, heir: SimNode) -> None:
    """*heir* leads."""
    group.run_until(lambda: group.is_converged() and leader.consensus.has_all(heir.name))
    leader.consensus.hand_over(heir.name)
    group.run_until(lambda: heir.consensus.is_serving)


@pytest.mark.parametrize("seed", range(5))
def test_entries_are_pipelined_and_none_is_sent_twice(seed: int) -> None:
    """Stock sets the next index back at every ack, so it sends what is in flight again (syncobj.py:1080-1083)."""
    group = born_group(seed)
    leader, followers = group.elect()
    group.tape = []
    for number in range(60):
        leader.append(b"%d" % number)
        leader.append(b"%d again" % number)
        group.step(chaos=False)
    group.run_until(group.is_converged)
    for follower in followers:
        assert set(Counter(sent_entries(group, leader, follower)).values()) == {1}


def test_after_a_break_the_first_message_begins_where_the_peer_stopped() -> None:
    """Stock counts what it sent into the broken link as sent (syncobj.py:1273, its send's result is ignored): a round trip for nothing."""
    group = born_group()
    leader, (follower, _) = group.elect()
    for number in range(2 * IN_FLIGHT_ENTRIES_MAX):
        leader.append(b"%d" % number)
        group.step(chaos=False)
    group.run_until(group.is_converged)
    known = leader.consensus.match_index(follower.name)
    for number in range(5):
        leader.append(b"in flight %d" % number)
    group.cut(leader.name, follower.name)
    group.tape = []
    group.run_until(group.is_converged)
    first = group.said("append_entries", leader, follower)[0].message
    assert first["prevLogIdx"] == known
    assert [index for _, index, _ in first["entries"]] == list(range(known + 1, known + 6)), "and with entries at once"
    assert not any(reply.message["reset"] for reply in group.said("next_node_idx", follower, leader))


def test_what_a_peer_acknowledged_on_an_older_link_does_not_count() -> None:
    """It may be another directory by now; its next ack says."""
    group = born_group()
    leader, (follower, _) = group.elect()
    assert leader.consensus._SyncObj__raftMatchIndex[group_node(leader, follower)] > 1
    group.cut(leader.name, follower.name)
    group.connect(leader.name, follower.name)
    leader.hear(follower.name, **follower.membership.hello((follower.log.end_term, follower.log.end_index)))
    assert leader.consensus._SyncObj__raftMatchIndex[group_node(leader, follower)] == 0


def test_a_peer_is_sent_what_follows_the_end_that_it_greets_with() -> None:
    """Its log may be another than on its last link: longer by a copy, or shorter by a tear."""
    group = born_group()
    leader, (follower, _) = group.elect()
    for number in range(10):
        leader.append(b"%d" % number)
    group.run_until(group.is_converged)
    end = leader.log.end_index
    for index, sent in ((end - 4, list(range(end - 3, end + 1))), (end, [])):
        leader.hear(follower.name, **follower.membership.hello((leader.log.term_at(index), index)))
        group.tape = []
        leader.consensus._SyncObj__sendAppendEntries()
        assert sent_entries(group, leader, follower) == sent


def test_a_greeting_that_comes_again_later_changes_nothing() -> None:
    """Simulator seed 710: the greeting of a node that was being copied, doubled on its way, made it no member again for ever: the leader
    sent from an entry that retention had dropped, and waited."""
    group = born_group()
    leader, (follower, _) = group.elect()
    greeting = follower.membership.hello((0, 1))
    leader.hear(follower.name, **greeting)
    leader.hear(follower.name, **follower.membership.hello((follower.log.end_term, follower.log.end_index)))
    leader.append(b"x")
    group.run_until(group.is_converged)
    node = group_node(leader, follower)
    known = leader.consensus._SyncObj__raftNextIndex[node], leader.consensus._SyncObj__raftMatchIndex[node]
    leader.hear(follower.name, **greeting)
    leader.hear(follower.name, **greeting | {"standing": int(Standing.REBUILDING)})
    assert (leader.consensus._SyncObj__raftNextIndex[node], leader.consensus._SyncObj__raftMatchIndex[node]) == known
    assert leader.membership.counts(follower.name)


def group_node(of: SimNode, peer: SimNode) -> object:
    """pysyncobj's name for *peer*."""
    return next(node for node in of.consensus.otherNodes if node.id == peer.name)


def test_a_peer_without_a_log_is_sent_nothing() -> None:
    """It copies ours and hears nobody meanwhile; what would be sent could only lie in its link."""
    group = born_group()
    leader, (copying, other) = group.elect()
    leader.hear(copying.name, **copying.membership.hello((0, 0)))
    group.tape = []
    entry = leader.append(b"x")
    group.run(1.0)
    assert leader.committed == entry.index
    assert not [sent.kind for sent in group.tape if (sent.sender, sent.receiver) == (leader.name, copying.name)]
    assert list(leader.consensus.ask_all()) == [other.name]


def test_a_silent_peer_gets_one_window_of_entries() -> None:
    """L12: what is in flight is bounded in entries, so a follower that is behind is fed at the pace of its acks."""
    group = born_group()
    leader, (silent, _) = group.elect()
    group.paused.add(silent.name)
    group.tape = []
    for number in range(4 * IN_FLIGHT_ENTRIES_MAX):
        leader.append(b"%d" % number)
        if number % 8 == 0:
            group.step(chaos=False, heals=False)
    assert len(sent_entries(group, leader, silent)) == IN_FLIGHT_ENTRIES_MAX
    assert group.run_until(group.is_converged) < 2.0


def test_a_peer_whose_link_is_full_gets_nothing_more() -> None:
    """L12: bounded in bytes, too; heartbeats go on, at their pace."""
    group = born_group()
    leader, (slow, _) = group.elect()
    leader.transport._buffered = lambda peer: IN_FLIGHT_SIZE_MAX_BYTES if peer == slow.name else 0
    group.tape = []
    for number in range(50):
        leader.append(b"%d" % number)
    assert sent_entries(group, leader, slow) == []
    group.run(1.0)
    assert sent_entries(group, leader, slow) == []
    assert 5 <= len(group.said("append_entries", leader, slow)) <= 1.0 / HEARTBEAT_PERIOD_S + 1


def test_who_leads_again_does_not_count_what_was_in_flight_in_its_last_term() -> None:
    """Its window is open: the no-op, on which all else waits, is in its first message and not behind a heartbeat's answer."""
    group = born_group()
    first, (heir, other) = group.elect()
    for number in range(2 * IN_FLIGHT_ENTRIES_MAX):
        first.append(b"%d" % number)
        group.step(chaos=False)
    hand_over(group, first, heir)
    group.tape = []
    hand_over(group, heir, first)
    for follower in (heir, other):
        # Of its first term it may still say something when the heir leads already.
        messages = [sent.message for sent in group.said("append_entries", first, follower)]
        message = next(message for message in messages if message["term"] == first.term)
        assert [(index, term) for _, index, term in message["entries"]] == [(first.log.end_index, first.term)]


def test_a_message_has_as_many_entries_as_fit_and_one_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """L9 (syncobj.py:1275-1296): an entry that is larger than a batch goes whole; stock cuts it in pieces that it cannot join."""
    monkeypatch.setattr(tern_raft.consensus, "APPEND_SIZE_MAX_BYTES", 4096)
    group = born_group()
    leader, (away, _) = group.elect()
    group.kill(away.name)
    for number in range(20):
        leader.append(b"%d" % number + b"." * (12_000 if number == 10 else 1000))
    group.run(0.5, heals=False)
    group.nodes[away.name] = away = SimNode(group, away.name, bootstrap=False)
    group.tape = []
    group.run_until(group.is_converged)
    full = [sent.message["entries"] for sent in group.said("append_entries", leader, away) if sent.message["entries"]]
    sizes = [sum(len(raw) for raw, _, _ in entries) for entries in full]
    assert max(size for size, entries in zip(sizes, full, strict=True) if len(entries) > 1) <= 4096
    assert [len(entries) for size, entries in zip(sizes, full, strict=True) if size > 4096] == [1]
    assert len(full) < 12, "entries travel together"


def test_an_idle_leader_speaks_once_a_period_however_often_it_ticks() -> None:
    """Every event is a tick; heartbeats are a matter of time alone."""
    group = born_group()
    leader, followers = group.elect()
    group.run(0.5)
    group.tape = []
    for _ in range(200):
        for _ in range(20):
            leader.consensus.doTick(0)
            leader.consensus._SyncObj__sendAppendEntries()
        group.step(chaos=False)
    for follower in followers:
        assert abs(len(group.said("append_entries", leader, follower)) - 1.0 / HEARTBEAT_PERIOD_S) <= 1


def test_heartbeats_that_say_nothing_new_ask_for_no_tick() -> None:
    """Two thirds of what an idle node does; whatever is new asks at once: an entry, its commit, its ack, another term, a waiting read."""
    group = born_group()
    leader, followers = group.elect()
    group.run(2.0)
    before = {name: node.kicks for name, node in group.nodes.items()}
    group.tape = []
    group.run(2.0)
    assert len(group.said("append_entries", leader, followers[0])) >= 1.5 / HEARTBEAT_PERIOD_S
    assert {name: node.kicks for name, node in group.nodes.items()} == before
    leader.append(b"news")
    for node in (*followers, leader):
        group.run_until(lambda node=node: node.kicks > before[node.name])  # type: ignore[misc]
    group.run_until(group.is_converged)
    before = {name: node.kicks for name, node in group.nodes.items()}
    heartbeat = {"commit_index": leader.committed, "prevLogIdx": leader.log.end_index, "prevLogTerm": leader.term}
    followers[0].hear(leader.name, type="append_entries", term=leader.term, seq=1_000_000, **heartbeat)
    assert followers[0].kicks == before[followers[0].name]
    followers[0].hear(leader.name, type="append_entries", term=leader.term + 1, seq=1_000_001, **heartbeat)
    assert followers[0].kicks == before[followers[0].name] + 1
    answer = {"next_node_idx": leader.log.end_index + 1, "reset": False, "success": True, "disk": 0}
    leader.hear(followers[1].name, type="next_node_idx", term=leader.term, seq=leader.transport.last_number, **answer)
    assert leader.kicks == before[leader.name]
    leader.transport.barrier.ask(lambda _is_current: None)
    leader.hear(followers[1].name, type="next_node_idx", term=leader.term, seq=leader.transport.last_number, **answer)
    assert leader.kicks == before[leader.name] + 1


def test_both_peers_are_sent_one_encoding() -> None:
    """An entry is encoded once, however many followers there are; its number serves both."""
    group = born_group(size=5)
    leader, followers = group.elect()
    group.run_until(group.is_converged)
    group.tape = []
    before = leader.transport.last_number
    leader.append(b"once")
    assert leader.transport.last_number == before + 1
    assert len({sent.body for sent in group.tape if sent.kind == "append_entries"}) == 1
    assert len([sent for sent in group.tape if sent.kind == "append_entries"]) == len(followers) == 4
    group.run_until(group.is_converged)


def test_answers_to_what_was_in_flight_before_a_restart_ask_for_nothing() -> None:
    """L2 again: five messages behind a gap are five requests to restart, of which the first is granted."""
    group = born_group()
    leader, (follower, _) = group.elect()
    base, node = leader.log.end_index, group_node(leader, follower)
    following = leader.consensus._SyncObj__raftNextIndex
    first = leader.transport.last_number + 1
    for number in range(3):
        leader.append(b"%d" % number)
    reset(leader, follower, base + 1, first)
    assert following[node] == base + 1
    leader.append(b"the fourth")
    assert following[node] == base + 5, "all four are on their way again"
    reset(leader, follower, base + 1, first + 2)
    assert following[node] == base + 5
    reset(leader, follower, base + 2, leader.transport.last_number)
    assert following[node] == base + 2


def test_a_peer_that_begins_again_is_fed_by_windows_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """L12: what it had on its last link does not make room for all of that at once."""
    monkeypatch.setattr(tern_raft.consensus, "APPEND_SIZE_MAX_BYTES", 1)
    group = born_group()
    leader, (anew, _) = group.elect()
    for number in range(2 * IN_FLIGHT_ENTRIES_MAX):
        leader.append(b"%d" % number)
        group.step(chaos=False)
    group.run_until(group.is_converged)
    group.paused.add(anew.name)
    group.cut(leader.name, anew.name)
    group.connect(leader.name, anew.name)
    leader.hear(anew.name, **anew.membership.hello((0, 1)))
    group.tape = []
    reset(leader, anew, 2, leader.transport.last_number + 1)
    leader.consensus._SyncObj__sendAppendEntries()
    assert sent_entries(group, leader, anew) == list(range(2, 2 + IN_FLIGHT_ENTRIES_MAX))


def test_an_entry_that_was_damaged_on_its_way_is_refused_and_sent_again() -> None:
    """S8 (journal.py:197-203: no checksum): one flipped bit, found before it is stored."""
    group = born_group()
    leader, (follower, _) = group.elect()
    group.tape = []
    end = follower.log.end_index
    leader.append(b"some bytes of a body")
    (sent,) = group.said("append_entries", leader, follower)
    body = bytearray(sent.body)
    body[-3] ^= 4
    follower.transport.receive(leader.name, bytes(body))
    assert follower.log.end_index == end
    (reply,) = group.said("next_node_idx", follower, leader)
    assert (reply.message["next_node_idx"], reply.message["reset"], reply.message["success"]) == (end + 1, True, False)
    group.run_until(group.is_converged)


def full_disk(node: SimNode) -> FaultyFiles:
    """Not a byte more for *node*: its log cannot begin another segment."""
    files = node.group.files[node.name]
    assert isinstance(files, FaultyFiles)
    files.capacity_bytes = files.used_bytes
    return files


def test_a_follower_whose_disk_is_full_acknowledges_nothing_and_catches_up_when_there_is_space() -> None:
    """L10: stock dies of SIGBUS. The group goes on without it."""
    group = born_group()
    leader, (full, other) = group.elect()
    files = full_disk(full)
    for number in range(30):
        leader.append(b"%d" % number + b"." * 8000)
        group.step(chaos=False)
    group.run_until(lambda: leader.committed == leader.log.end_index == other.log.end_index)
    assert full.log.end_index < leader.log.end_index
    assert leader.consensus.match_index(full.name) <= full.log.end_index
    assert leader.consensus.is_serving
    files.capacity_bytes = None
    group.run_until(group.is_converged)


def test_a_leader_whose_disk_is_full_refuses_and_leads_on() -> None:
    """L10: nothing is appended by half; what is there is served, and later entries follow it."""
    group = born_group()
    leader, _ = group.elect()
    files = full_disk(leader)
    with pytest.raises(OSError, match="space") as refused:
        for number in range(30):
            leader.append(b"%d" % number + b"." * 8000)
    assert refused.value.errno == errno.ENOSPC
    group.run_until(group.is_converged)
    assert leader.consensus.is_serving
    files.capacity_bytes = None
    entry = leader.append(b"there is space again")
    group.run_until(group.is_converged)
    assert leader.committed == entry.index
