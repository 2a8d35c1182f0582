"""A core loop that hangs ends the process; one that turns, or ends in order, does not."""

import threading

from tern_raft.watchdog import MISSED_MAX, Watchdog


def test_a_loop_that_does_not_turn_is_ended() -> None:
    """No beat for so many looks."""
    hung = threading.Event()
    Watchdog(hung.set, look_period_s=0.001)
    assert hung.wait(10)


def test_a_loop_that_turns_is_left_alone() -> None:
    """It beats until the watchdog would have given up many times over."""
    hung, turned = threading.Event(), threading.Event()
    watchdog = Watchdog(hung.set, look_period_s=0.001)
    for _ in range(20 * MISSED_MAX):
        watchdog.beat()
        turned.wait(0.001)
    is_hung = hung.is_set()
    watchdog.stop()
    assert not is_hung
