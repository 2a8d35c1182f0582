"""The clock of one node's heartbeats and upkeep; events drive the rest.

An idle follower wakes for its leader's heartbeats and for its clock. Half of that is spared: the
clock steps with the heartbeats, and its timer looks only now and then whether they still come. It
finds a silent leader before the shortest election time is over, and is an ordinary clock then.
"""

from collections.abc import Callable

from tern_raft.runtime import Runtime

# A little more than a heartbeat's period, so that no step comes just too early for one.
PERIOD_S = 0.13
# A heartbeat steps the clock if its last step is this long ago.
WITH_HEARTBEAT_S = 0.1
# The timer while heartbeats step the clock.
SILENCE_S = 0.4


class UpkeepClock:
    """Calls *step* every PERIOD_S, or with heartbeats of about that period. Owner: the node."""

    def __init__(self, step: Callable[[], None], runtime: Runtime) -> None:
        self._step_node, self._runtime = step, runtime
        self._is_stopped = False
        # The last step, and the last one of the timer.
        self._stepped_s = self._timed_s = runtime.monotonic()

    def begin(self) -> None:
        """Step now, and from now on."""
        self._step()
        self._timed_s = self._stepped_s
        self._runtime.call_later(PERIOD_S, self._timer)

    def heartbeat(self) -> None:
        """The leader has said nothing new: step if it is about time."""
        if not self._is_stopped and self._runtime.monotonic() - self._stepped_s >= WITH_HEARTBEAT_S:
            self._step()

    def stop(self) -> None:
        """Step no more."""
        self._is_stopped = True

    def _timer(self) -> None:
        if self._is_stopped:
            return
        if self._stepped_s == self._timed_s:
            self.begin()
        else:
            self._timed_s = self._stepped_s
            since_s = self._runtime.monotonic() - self._stepped_s
            self._runtime.call_later(max(0.0, SILENCE_S - since_s), self._timer)

    def _step(self) -> None:
        self._stepped_s = self._runtime.monotonic()
        self._step_node()
