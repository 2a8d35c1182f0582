"""The leader waits a moment for who falls behind, and not for ever."""

from tern_raft.pace import LAG_MAX_ENTRIES, WAIT_MAX_S, Pace


class Followers:
    """What they lack, and the time."""

    def __init__(self) -> None:
        self.lags: dict[str, int] = {}
        self.now_s = 0.0
        # When it wants to be asked again (s).
        self.ticks: list[float] = []
        self.pace = Pace(self.behind, lambda: self.now_s, lambda delay_s: self.ticks.append(self.now_s + delay_s))

    def behind(self, lag_entries: int) -> set[str]:
        return {name for name, lag in self.lags.items() if lag > lag_entries}


def test_nobody_is_waited_for_who_keeps_up() -> None:
    """One entry is on its way to everybody."""
    followers = Followers()
    followers.lags = {"b": LAG_MAX_ENTRIES, "c": 0}
    assert followers.pace.may_go_on()


def test_a_follower_that_falls_behind_is_waited_for_until_it_has_caught_up() -> None:
    """The stall of some ms that a busy machine or a save costs."""
    followers = Followers()
    followers.lags = {"b": LAG_MAX_ENTRIES + 1, "c": 0}
    assert not followers.pace.may_go_on()
    followers.now_s = WAIT_MAX_S / 2
    assert not followers.pace.may_go_on()
    followers.lags["b"] = 1
    assert followers.pace.may_go_on()
    followers.lags["b"] = LAG_MAX_ENTRIES + 1
    followers.now_s = WAIT_MAX_S * 1.2
    assert not followers.pace.may_go_on(), "a new stall is a new wait"


def test_a_slow_follower_costs_one_wait_until_it_has_caught_up() -> None:
    """A stopped one does not stop the group; another one is still waited for."""
    followers = Followers()
    followers.lags = {"b": 100, "c": 0}
    assert not followers.pace.may_go_on()
    followers.now_s = WAIT_MAX_S / 2
    assert not followers.pace.may_go_on()
    (tick_s,) = followers.ticks
    followers.now_s = tick_s - 0.001  # a timer of uvloop
    assert followers.pace.may_go_on(), "an idle group has no other event that would end the wait"
    for _ in range(3):
        followers.lags["b"] += 1
        assert followers.pace.may_go_on()
    followers.lags["c"] = 5
    assert not followers.pace.may_go_on()
    followers.lags = {"b": 0, "c": 0}
    assert followers.pace.may_go_on()
    followers.lags["b"] = 2
    assert not followers.pace.may_go_on(), "it is waited for again"
