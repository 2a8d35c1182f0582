"""The leader waits a moment for a follower that has fallen behind: what is a stall of some ms would become a lag of many entries.

A majority is enough to commit, so without this the third node may fall as far behind as its disk and its cores happen to allow, and
with a second failure the group would wait for all of that at once. Waiting costs little: what arrives meanwhile goes as one larger
entry. But a follower that does not come back in time is not waited for again until it has caught up: a slow or stopped one costs one
such moment.
"""

from collections.abc import Callable

# Entries that a follower may lack when the next one is made.
LAG_MAX_ENTRIES = 1
# Longer than a busy scheduler or a save keeps a healthy node from answering, shorter than anybody's time-out.
WAIT_MAX_S = 0.05


class Pace:
    """Owner: the node. *behind* names the members that are connected and lack more than so many entries."""

    def __init__(self, behind: Callable[[int], set[str]], monotonic: Callable[[], float]) -> None:
        self._behind, self._monotonic = behind, monotonic
        self._given_up: set[str] = set()
        self._waiting_since_s: float | None = None

    def may_go_on(self) -> bool:
        """Whether the next entry may be made now. Ask again with every tick while not."""
        behind = self._behind(LAG_MAX_ENTRIES)
        self._given_up &= behind
        if not behind - self._given_up:
            self._waiting_since_s = None
            return True
        now_s = self._monotonic()
        if self._waiting_since_s is None:
            self._waiting_since_s = now_s
        if now_s - self._waiting_since_s < WAIT_MAX_S:
            return False
        self._given_up |= behind
        self._waiting_since_s = None
        return True
