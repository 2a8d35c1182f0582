"""Connections of one port that have not shown who they are: a few, in order of arrival. Owner: the port's loop.

Law: a stranger never costs a member, a file or a newcomer anything but a short wait. At the cap the oldest one goes, once it has had the
time in which an honest one shows who it is; so long accepting waits, which also bounds what a flood costs the loop. All strangers of a port
hold at most a third of the descriptors that are left: three flooded ports leave half of what there was. Its own coming and going does not
change its share, so that nobody is closed for the one that came behind.
"""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from tern_accept.descriptors import OURS, Descriptors
from tern_wire.limits import STRANGER_STAY_MIN_MS, STRANGERS_MAX, STRANGERS_PER_S_MAX

T = TypeVar("T")

# Of the descriptors that are left and those that it has, one in so many is for the strangers of one port.
SHARE = 4


class Strangers(Generic[T]):
    """*close* ends one of them, which then may call `leave` or not. Each is hashable, and itself. *monotonic*: seconds."""

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
        # When each came.
        self._since: dict[T, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, one: T) -> bool:
        return one in self._since

    def is_full(self) -> bool:
        """Whether one must go before another comes."""
        return len(self._since) >= self._room()

    def wait_s(self) -> float:
        """How long accepting has to wait: 0 when there is room, or the oldest has had its time. More than there may be are closed."""
        room = self._room()
        while len(self._since) > room:
            self.close_oldest()
        if len(self._since) < room:
            return 0.0
        since = next(iter(self._since.values()))
        stay_s = max(self._stay_min_s, room * self._stay_each_s)
        return max(0.0, since + stay_s - self._monotonic())

    def enter(self, one: T) -> None:
        """*one* was accepted; the oldest makes room if it must."""
        self._descriptors.take()
        self._since[one] = self._monotonic()
        if len(self._since) > self._room():
            self.close_oldest()

    def leave(self, one: T) -> None:
        """*one* has shown who it is, or is gone. Safe to repeat."""
        self._since.pop(one, None)

    def close_oldest(self) -> bool:
        """Close it; False when there is none."""
        oldest = next(iter(self._since), None)
        if oldest is None:
            return False
        del self._since[oldest]
        self._close(oldest)
        return True

    def _room(self) -> int:
        # One, whatever is left: else a process that is short of descriptors would never hear of its peers again.
        return max(1, min(self._most, (self._descriptors.free() + len(self._since)) // SHARE))
