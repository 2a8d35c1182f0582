"""What the members' wall clocks say, as the leader hears it, and what the leader's own time is, as followers hear it.

A follower tells its wall clock with every answer to an append (`next_node_idx`), so a leader that serves has heard a majority. A leader
that serves tells the group's time with every append: who has just started knows it before the next entry.
"""

from collections.abc import Callable

# A clock that was heard once is believed with the leader's monotonic one; not for ever, since that runs wrong, too.
HEARD_FOR_MS = 10_000


class PeerClocks:
    """Owner: the core loop."""

    def __init__(self, *, monotonic: Callable[[], float], wall_ms: Callable[[], int]) -> None:
        self._monotonic, self._wall_ms = monotonic, wall_ms
        # Peer -> its wall clock, and this node's monotonic one when it came (ms).
        self._heard: dict[str, tuple[int, int]] = {}
        # Set by the owner: the group's time if this node leads and serves, else 0; and told what a leader says of it.
        self.group_ms: Callable[[], int] = lambda: 0
        self.on_group_ms: Callable[[int], None] = lambda now_ms: None

    def own_ms(self) -> int:
        """This node's wall clock, as it may travel."""
        return max(0, self._wall_ms())

    def heard(self, peer: str, wall_ms: int) -> None:
        """*peer*'s clock says so."""
        self._heard[peer] = (wall_ms, self._mono_ms())

    def lost(self, peer: str) -> None:
        """Nobody knows what *peer*'s clock says now."""
        self._heard.pop(peer, None)

    def walls_ms(self) -> list[int]:
        """What all clocks say now that are known, this node's first."""
        mono_ms = self._mono_ms()
        passed = ((wall_ms, mono_ms - heard_ms) for wall_ms, heard_ms in self._heard.values())
        return [self.own_ms(), *(wall_ms + passed_ms for wall_ms, passed_ms in passed if passed_ms <= HEARD_FOR_MS)]

    def _mono_ms(self) -> int:
        return int(self._monotonic() * 1000)
