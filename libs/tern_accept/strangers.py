"""Unauthenticated connections of one port: a few, in order of arrival. Owner: the port's loop.

Law: a stranger costs a member, a file or a new connection no more than a short wait. At the cap the
oldest one is closed once it has had the time that an honest client needs to authenticate. Accepting
waits for that time, which also bounds the loop's cost of a flood. All strangers of a port hold at
most a third of the remaining descriptors: three flooded ports leave half of them. A stranger's own
coming and going does not change the share, so that none is closed for the next one.
"""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from tern_accept.descriptors import OURS, Descriptors
from tern_wire.limits import STRANGER_STAY_MIN_MS, STRANGERS_MAX, STRANGERS_PER_S_MAX

T = TypeVar("T")

# One in this many of the free descriptors plus its own is for the strangers of one port.
SHARE = 4


class Strangers(Generic[T]):
    """The strangers of one port. *close* ends one of them, which may then call `leave`.
    Each is hashable by identity. *monotonic*: seconds.
    """

    def __init__(
        self,
        close: Callable[[T], None],
        *,
        most: int = STRANGERS_MAX,
        stay_min_ms: int = STRANGER_STAY_MIN_MS,
        per_s_max: int = STRANGERS_PER_S_MAX,
        descriptors: Descriptors = OURS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._close, self._most = close, most
        self._stay_min_s, self._stay_each_s = stay_min_ms / 1_000, 1 / per_s_max
        self._descriptors, self._monotonic = descriptors, monotonic
        # Arrival time of each.
        self._since: dict[T, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, one: T) -> bool:
        return one in self._since

    def is_full(self) -> bool:
        """Whether one must leave before another enters."""
        return len(self._since) >= self._room()

    def wait_s(self) -> float:
        """Time until the next accept: 0 if there is room or the oldest has had its time.
        Closes strangers above the cap.
        """
        room = self._room()
        while len(self._since) > room:
            self.close_oldest()
        if len(self._since) < room:
            return 0.0
        since = next(iter(self._since.values()))
        stay_s = max(self._stay_min_s, room * self._stay_each_s)
        return max(0.0, since + stay_s - self._monotonic())

    def enter(self, one: T) -> None:
        """Add *one*, which was accepted; the oldest makes room if necessary."""
        self._descriptors.take()
        self._since[one] = self._monotonic()
        if len(self._since) > self._room():
            self.close_oldest()

    def leave(self, one: T) -> None:
        """Remove *one*, which has authenticated or is gone. Safe to repeat."""
        self._since.pop(one, None)

    def close_oldest(self) -> bool:
        """Close the oldest; False if there is none."""
        oldest = next(iter(self._since), None)
        if oldest is None:
            return False
        del self._since[oldest]
        self._close(oldest)
        return True

    def _room(self) -> int:
        # At least one: otherwise a process without descriptors would never hear from its peers
        # again.
        return max(1, min(self._most, (self._descriptors.free() + len(self._since)) // SHARE))
