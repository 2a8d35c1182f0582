"""Checkers over the nodes at the end, and observers during the run."""

import pkgutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.checkers import convergence, every, log_agreement, state_digest
from tests.sim.history.history import LogRow, Send
from tests.sim.history.transaction_values import Described, TransactionEnd
from tests.sim.laws.observers import VIOLATIONS_MAX, Observers
from tests.unit.sim.stories import TOPIC, Story, message

LOG = tuple(LogRow(index, 1 + index // 3, index * 7, index * 100) for index in range(1, 6))


def told() -> Story:
    """One message."""
    story = Story()
    story.sends(message("p0.1"), 0)
    return story


def test_logs_that_agree_where_both_have_entries_agree() -> None:
    """One node begins later, since retention ran at another time."""
    story = told()
    end = story.end(story.node("n0", log=LOG, applied=5), story.node("n1", log=LOG[2:], applied=5))
    assert log_agreement.check(story.history, end) == []


@pytest.mark.parametrize(
    "log",
    [
        (*LOG[:4], LogRow(5, 2, 99, 500)),  # another entry at 5
        (*LOG[:4], LogRow(5, 3, 35, 500)),  # of another term
        (*LOG[:4], LogRow(5, 2, 35, 501)),  # at another position
        (*LOG[:3], *LOG[4:]),  # a gap
        (*LOG[:4], LogRow(5, 1, 35, 500)),  # terms fall
        (*LOG[:4], LogRow(5, 2, 35, 400)),  # positions do not rise
    ],
)
def test_logs_that_differ_or_are_no_logs(log: tuple[LogRow, ...]) -> None:
    """Each field of an entry counts."""
    story = told()
    end = story.end(story.node("n0", log=LOG, applied=5), story.node("n1", log=log, applied=5))
    assert log_agreement.check(story.history, end)


def test_equal_nodes_have_converged() -> None:
    """All applied, all drained, something was acknowledged."""
    story = told()
    assert convergence.check(story.history, story.end()) == []


def test_nodes_that_are_not_equal_have_not_converged() -> None:
    """Behind, not applied, other messages, not drained, an operation without an end, nothing acknowledged."""
    story = told()
    whole = story.node("n0")
    behind, not_applied = story.node("n1", applied=2), replace(story.node("n1"), applied=2)
    other = replace(story.node("n1"), queues={})
    for node in (behind, not_applied, other):
        assert convergence.check(story.history, story.end(whole, node))
    forgetful = replace(whole, transactions={7: TransactionEnd(Described(7, "bank", "open", 5, 0, "", 1, (), ()), ())})
    assert convergence.check(story.history, story.end(whole, forgetful))
    story.is_drained = False
    assert convergence.check(story.history, story.end())
    story.is_drained = True
    story.begin(Send(TOPIC, (message("p0.2"),)))
    assert convergence.check(story.history, story.end())
    assert convergence.check(Story().history, Story().end())


def test_digests_differ_only_where_as_much_was_applied() -> None:
    """The same index, the same state."""
    story = told()
    ahead = story.node("n1", applied=4, digest="e")
    assert state_digest.check(story.history, story.end(story.node("n0"), ahead)) == []
    assert state_digest.check(story.history, story.end(story.node("n0"), story.node("n1", digest="e")))


# Observers --------------------------------------------------------------------------------------------------------
def test_a_run_as_it_should_be_is_left_alone() -> None:
    """Crashes, elections and replays included."""
    observers = Observers()
    for node in ("n0", "n1"):
        observers.started(node, 1)
        observers.applied(node, 2, 1, 70)
        observers.committed(node, 2)
    observers.voted("n0", 1, "n0")
    observers.voted("n1", 1, "n0")
    observers.role("n0", 1, True)
    observers.stopped("n0")
    observers.started("n0", 1)  # an older saved state
    observers.applied("n0", 2, 1, 70)
    observers.committed("n0", 1)
    observers.voted("n0", 1, "n0")
    observers.voted("n0", 2, "n1")
    observers.voted("n1", 2, "n1")
    observers.role("n1", 2, True)
    observers.served("n0", 1, True)
    observers.served("n1", 0, False)
    assert observers.violations == []


def test_every_broken_law_is_seen_at_once() -> None:
    """One line a law; each adds exactly one violation of its name."""
    observers = Observers()
    observers.started("n0", 1)
    observers.started("n1", 1)
    observers.applied("n0", 2, 1, 70)
    observers.applied("n1", 2, 1, 71)
    observers.applied("n1", 2, 1, 70)
    observers.applied("n0", 4, 1, 70)
    observers.committed("n0", 4)
    observers.committed("n0", 3)
    observers.voted("n0", 3, "n0")
    observers.voted("n1", 3, "n0")
    observers.role("n0", 3, True)
    observers.role("n1", 3, True)
    observers.stopped("n0")
    observers.started("n0", 4)
    observers.voted("n0", 3, "n1")
    observers.served("n0", 0, True)
    assert [violation.checker for violation in observers.violations] == [
        *("log_agreement", "apply_order", "apply_order", "commit_index"),
        *("one_leader", "elected", "one_vote", "quarantine"),
    ]


def test_a_node_that_stands_again_and_again_alone_is_seen() -> None:
    """Three times may be bad luck; votes of others, and their own campaigns, break the row."""
    observers = Observers()
    for term in (1, 2, 3):
        observers.voted("n0", term, "n0")
    observers.voted("n1", 3, "n0")
    for term in (4, 5, 6):
        observers.voted("n0", term, "n0")
    assert observers.violations == []
    observers.voted("n0", 9, "n0")
    assert [violation.checker for violation in observers.violations] == ["lonely_campaigns"]


def test_a_run_that_has_gone_wrong_stays_readable() -> None:
    """Violations are bounded."""
    observers = Observers()
    for index in range(2, 200):
        observers.applied("n0", index, 1, 1)
        observers.applied("n1", index, 1, 2)
    assert len(observers.violations) == VIOLATIONS_MAX


def test_every_checker_is_asked() -> None:
    """A module in tests/sim/checkers that `check_all` does not know would find nothing, and nobody would see it."""
    folder = Path(every.__file__).parent
    names = {info.name for info in pkgutil.iter_modules([str(folder)])} - {"every", "grants", "transaction_facts"}
    assert names == {checker.__name__.rsplit(".", 1)[1] for checker in every.CHECKERS}
