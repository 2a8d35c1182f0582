"""Counting what was refused, and why a flood of it is one line a second."""

from tern_remoting import Refusal, Refusals
from tern_remoting.refusals import LOG_PERIOD_S


def test_every_reason_is_there_from_the_start_and_no_other_ever() -> None:
    """Whoever draws them finds zeros, and strangers cannot make new ones."""
    refusals = Refusals()
    assert refusals.counts() == dict.fromkeys((refusal.value for refusal in Refusal), 0)
    refusals.add(Refusal.KEY)
    assert refusals.counts()["key"] == refusals.count(Refusal.KEY) == 1
    assert len(refusals.counts()) == len(Refusal)


def test_a_flood_of_one_kind_is_one_line_a_second() -> None:
    """Each kind has its own second, so a flood of garbage does not hide one wrong key."""
    now_s = 100.0
    refusals = Refusals(lambda: now_s)
    assert [refusals.add(Refusal.GARBAGE) for _ in range(3)] == [True, False, False]
    assert refusals.add(Refusal.KEY)
    now_s += LOG_PERIOD_S
    assert [refusals.add(Refusal.GARBAGE) for _ in range(2)] == [True, False]
    assert refusals.count(Refusal.GARBAGE) == 5
