"""Unsent answers of a listener's connections: bytes in this process that the kernel has not taken.

A slow client is closed below a minimum rate (answers.py). Many of them together hold no more than
UNSENT_ANSWERS_SIZE_MAX_BYTES for long: above it the oldest answers are broken off, from the host
that holds most. A client that takes its answers within UNSENT_HELD_MIN_MS is never broken off,
whatever the total.
 note: the kernel takes no more ---> held ---> forget: it takes again, or the connection is gone
Owner: the event loop of the listener.
"""

from collections import Counter
from typing import Protocol

from tern_wire.limits_requests import UNSENT_ANSWERS_SIZE_MAX_BYTES, UNSENT_HELD_MIN_MS


class Holder(Protocol):
    """A connection."""

    def break_off(self) -> None:
        """Close it, whatever it holds; it is forgotten already."""


class Unsent:
    """The amounts held by connections, in the order of their begin."""

    __slots__ = ("_held", "_most", "broken_off", "size_bytes")

    def __init__(self, most_bytes: int = UNSENT_ANSWERS_SIZE_MAX_BYTES) -> None:
        self._most = most_bytes
        # Host, begin (loop time, s) and bytes; no more than there are connections.
        self._held: dict[Holder, tuple[str, float, int]] = {}
        self.size_bytes = self.broken_off = 0

    def note(self, one: Holder, host: str, size_bytes: int, now_s: float) -> None:
        """Record that *one*, of *host*, holds *size_bytes* now."""
        before = self._held.get(one)
        since_s, had_bytes = (now_s, 0) if before is None else before[1:]
        self._held[one] = host, since_s, size_bytes
        self.size_bytes += size_bytes - had_bytes
        if self.size_bytes > self._most:
            self._make_room(now_s)

    def forget(self, one: Holder) -> None:
        """Record that *one* holds nothing. Safe to repeat."""
        before = self._held.pop(one, None)
        if before is not None:
            self.size_bytes -= before[2]

    def _make_room(self, now_s: float) -> None:
        until_s = now_s - UNSENT_HELD_MIN_MS / 1_000
        # The oldest is the first one, so that a table of quick clients costs one look.
        while self.size_bytes > self._most and next(iter(self._held.values()))[1] <= until_s:
            sizes: Counter[str] = Counter()
            for host, _, size_bytes in self._held.values():
                sizes[host] += size_bytes
            late = {host for host, since_s, _ in self._held.values() if since_s <= until_s}
            greatest = max(late, key=lambda host: sizes[host])
            victims = [one for one, (host, since_s, _) in self._held.items() if host == greatest and since_s <= until_s]
            for one in victims:
                if self.size_bytes <= self._most:
                    return
                self.forget(one)
                self.broken_off += 1
                one.break_off()
