"""Wall clocks of the members, known to the leader, and the group's time, known to followers.

A follower sends its wall clock with every answer to an append (`next_node_idx`), so a serving
leader has received those of a majority. A serving leader sends the group's time with every append,
so a restarted node has it before the next entry.
"""

from collections.abc import Callable

# A received clock is extrapolated with the own monotonic clock for this long; that clock drifts
# too.
HEARD_FOR_MS = 10_000


class PeerClocks:
    """The clocks received from peers. Owner: the core loop."""

    def __init__(self, *, monotonic: Callable[[], float], wall_ms: Callable[[], int]) -> None:
        self._monotonic, self._wall_ms = monotonic, wall_ms
        # Peer -> its wall clock, and this node's monotonic clock at its receipt (ms).
        self._heard: dict[str, tuple[int, int]] = {}
        # Set by the owner: the group's time if this node leads and serves, else 0; and the callback
        # for the time that a leader sends.
        self.group_ms: Callable[[], int] = lambda: 0
        self.on_group_ms: Callable[[int], None] = lambda now_ms: None

    def own_ms(self) -> int:
        """This node's wall clock, at least 0."""
        return max(0, self._wall_ms())

    def heard(self, peer: str, wall_ms: int) -> None:
        """Store *peer*'s clock."""
        self._heard[peer] = (wall_ms, self._mono_ms())

    def lost(self, peer: str) -> None:
        """Drop *peer*'s clock."""
        self._heard.pop(peer, None)

    def walls_ms(self) -> list[int]:
        """The present values of all known clocks, this node's first."""
        mono_ms = self._mono_ms()
        passed = ((wall_ms, mono_ms - heard_ms) for wall_ms, heard_ms in self._heard.values())
        return [self.own_ms(), *(wall_ms + passed_ms for wall_ms, passed_ms in passed if passed_ms <= HEARD_FOR_MS)]

    def _mono_ms(self) -> int:
        return int(self._monotonic() * 1000)
