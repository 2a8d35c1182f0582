"""Short waits of the leader for slow followers, so that a stall of some ms stays a small lag.

A majority is enough to commit, so without this the third node could fall as far behind as its disk
and cores allow, and after a second failure the group would wait for all of that at once. Waiting
costs little: requests that arrive meanwhile become one larger entry. A follower that does not catch
up in time is not waited for again until it has: a slow or stopped one costs one such wait.
"""

from collections.abc import Callable

# Entries that a follower may lack when the next one is made.
LAG_MAX_ENTRIES = 1
# Longer than a busy scheduler or a save delays a healthy node, shorter than any time-out.
WAIT_MAX_S = 0.05
# A timer of uvloop may end this much early: it counts whole ms.
TIMER_ERROR_S = 0.001


class Pace:
    """The wait of one leader. Owner: the node.
    *behind* names the connected members that lack more than the given number of entries;
    *tick_later* makes a tick after so many seconds.
    """

    def __init__(
        self,
        behind: Callable[[int], set[str]],
        monotonic: Callable[[], float],
        tick_later: Callable[[float], object],
    ) -> None:
        self._behind, self._monotonic, self._tick_later = behind, monotonic, tick_later
        self._given_up: set[str] = set()
        self._waiting_since_s: float | None = None

    def may_go_on(self) -> bool:
        """Whether the next entry may be made now. If not, call again at every tick."""
        behind = self._behind(LAG_MAX_ENTRIES)
        self._given_up &= behind
        if not behind - self._given_up:
            self._waiting_since_s = None
            return True
        now_s = self._monotonic()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
            # Otherwise an idle leader would look at its next heartbeat.
            self._tick_later(WAIT_MAX_S + TIMER_ERROR_S)
        if now_s - self._waiting_since_s < WAIT_MAX_S:
            return False
        self._given_up |= behind
        self._waiting_since_s = None
        return True
