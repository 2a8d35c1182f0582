"""Planted bugs fit the product as it is; `python -m tests.sim.planted` shows that each is convicted."""

from contextlib import ExitStack

import pytest

from tests.sim.planted.__main__ import BUGS, convict
from tests.sim.planted.planting import PlantedBug, changed
from tests.support.campaigns import campaign, cases

# Convicted by one of the first seeds: a few of each kind, so that every commit shows that checkers still see. All: `python -m tests.sim.planted`.
QUICK = (
    *("ack_before_append", "ack_before_fsync", "forget_vote", "lose_last_entry"),
    *(
        "ignore_keys",
        "forget_keys_early",
        "drop_lease",
        "own_clock_in_apply",
        "next_while_held",
        "late_timer_lost",
    ),
    *("half_published", "commit_torn", "attempt_forgotten"),
)
QUICK_SEEDS = 40
# Convicted by the 26th and the 10th seed.
SLOWER: tuple[str, ...] = ("r6_off", "early_retry")


@campaign
@pytest.mark.parametrize("name", QUICK + cases(SLOWER, ()))
def test_a_planted_bug_is_convicted(name: str) -> None:
    """Within forty seeds; when this was written, two were enough for most."""
    trial = convict(name, seeds=QUICK_SEEDS)
    print(f"seed {trial.seed}: {trial.by} {trial.why}")
    assert trial.seed >= 0, f"{name} got away: the simulator has become blind to it"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_and_leaves_nothing_behind(bug: PlantedBug) -> None:
    """What it changes is there to be changed, and is as it was afterwards."""
    with bug.plant():
        pass
    with bug.plant():  # again: nothing of the first time is left that it would stumble over
        pass


def test_there_are_enough_of_them() -> None:
    """Names are unique, and every rule has one."""
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names) >= 16 + 7
    assert {f"r{number}_off" for number in range(1, 8)} <= set(names)


def test_a_change_is_undone_whatever_happens() -> None:
    """Own and inherited attributes, also when the body raises."""

    class Parent:
        value = 1

    class Child(Parent):
        own = 2

    with pytest.raises(ZeroDivisionError), ExitStack() as stack:
        stack.enter_context(changed((Child, "value", 7), (Child, "own", 8)))
        assert (Child.value, Child.own, Parent.value) == (7, 8, 1)
        raise ZeroDivisionError
    assert (Child.value, Child.own, "value" in vars(Child)) == (1, 2, False)
    with pytest.raises(AssertionError, match="planted elsewhere"), changed((Child, "gone", 1)):
        pass
