"""Read barriers: nobody reads from a leader that may have been deposed before the question came."""

from pathlib import Path

import pytest

from tern_raft.barrier import ReadBarrier
from tern_store import LogRot


class Reads:
    """What was answered so far."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, bool]] = []

    def ask(self, barrier: ReadBarrier, name: str) -> None:
        """A read called *name*."""
        barrier.ask(lambda may_read: self.answers.append((name, may_read)))


@pytest.mark.parametrize(("members", "needed"), [(1, 0), (3, 1), (5, 2)])
def test_a_read_waits_for_a_majority_that_answers_a_later_message(members: int, needed: int) -> None:
    """The leader counts itself."""
    barrier, reads = ReadBarrier(members), Reads()
    reads.ask(barrier, "x")
    assert barrier.wants_round
    peers = [f"p{number}" for number in range(members - 1)]
    barrier.begin(dict.fromkeys(peers, 7), 10)
    for number, peer in enumerate(peers):
        barrier.settle(10)
        assert bool(reads.answers) == (number >= needed)
        barrier.answered(peer, 6)  # of before the question
        barrier.answered(peer, 6)
        barrier.settle(10)
        assert bool(reads.answers) == (number >= needed)
        barrier.answered(peer, 7)
    barrier.settle(10)
    assert reads.answers == [("x", True)]
    assert not barrier.is_busy


def test_one_peer_that_answers_twice_is_no_majority() -> None:
    """In a group of five two others are needed."""
    barrier, reads = ReadBarrier(5), Reads()
    reads.ask(barrier, "x")
    barrier.begin({"p0": 1, "p1": 2}, 0)
    barrier.answered("p0", 1)
    barrier.answered("p0", 5)
    barrier.settle(0)
    assert reads.answers == []
    barrier.answered("p1", 2)
    barrier.settle(0)
    assert reads.answers == [("x", True)]


def test_what_was_committed_when_the_read_came_is_applied_before_it_is_answered() -> None:
    """Committed and not applied yet: an acknowledged message would be missing."""
    barrier, reads = ReadBarrier(1), Reads()
    reads.ask(barrier, "x")
    barrier.begin({}, 10)
    barrier.settle(9)
    assert reads.answers == []
    barrier.settle(10)
    assert reads.answers == [("x", True)]


def test_a_read_that_comes_during_a_round_waits_for_the_next() -> None:
    """That round's messages left before the question came."""
    barrier, reads = ReadBarrier(3), Reads()
    reads.ask(barrier, "x")
    barrier.begin({"p0": 1, "p1": 2}, 0)
    reads.ask(barrier, "y")
    assert not barrier.wants_round
    barrier.answered("p0", 1)
    barrier.settle(0)
    assert reads.answers == [("x", True)]
    assert barrier.wants_round
    barrier.begin({"p0": 3, "p1": 4}, 0)
    barrier.answered("p1", 2)
    barrier.settle(0)
    assert len(reads.answers) == 1
    barrier.answered("p1", 4)
    barrier.settle(0)
    assert reads.answers[1:] == [("y", True)]


def test_a_peer_with_a_new_link_is_asked_again_by_the_next_message() -> None:
    """What was sent on the old link is lost with it."""
    barrier, reads = ReadBarrier(3), Reads()
    reads.ask(barrier, "x")
    barrier.begin({"p0": 1}, 0)
    barrier.join("p1", 5)
    barrier.answered("p1", 4)
    barrier.settle(0)
    assert reads.answers == []
    barrier.answered("p1", 5)
    barrier.settle(0)
    assert reads.answers == [("x", True)]


def test_a_deposed_leader_refuses_whoever_waits() -> None:
    """In the round and behind it."""
    barrier, reads = ReadBarrier(3), Reads()
    reads.ask(barrier, "x")
    barrier.begin({"p0": 1}, 0)
    reads.ask(barrier, "y")
    barrier.fail()
    assert reads.answers == [("x", False), ("y", False)]
    assert not barrier.is_busy


@pytest.mark.parametrize("is_current", [True, False])
def test_a_reader_whose_answer_fails_costs_the_others_nothing(is_current: bool) -> None:
    """They are answered in the same round, and it is told False, as by a node that does not lead."""
    barrier, reads = ReadBarrier(1), Reads()
    told: list[bool] = []

    def buggy(may_read: bool) -> None:
        told.append(may_read)
        raise IndexError("no such row")

    reads.ask(barrier, "a")
    barrier.ask(buggy)
    reads.ask(barrier, "b")
    barrier.begin({}, 0)
    if is_current:
        barrier.settle(0)
    else:
        barrier.fail()
    assert reads.answers == [("a", is_current), ("b", is_current)]
    assert told == [is_current, False]
    assert not barrier.is_busy


def test_damage_that_a_reader_meets_is_not_its_own() -> None:
    """The node must end."""
    barrier = ReadBarrier(1)

    def reader(_may_read: bool) -> None:
        raise LogRot(Path("/data/commitlog/0"), 0, "bad bytes")

    barrier.ask(reader)
    barrier.begin({}, 0)
    with pytest.raises(LogRot):
        barrier.settle(0)
