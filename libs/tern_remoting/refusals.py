"""Counters of connections refused or closed for their peer's behaviour, by reason.

Owner: one server, in its loop's thread, and the links that it accepted. Law: the reasons are fixed,
so no peer can add counters; and a flood of one kind costs one log line a second.
"""

import time
from collections.abc import Callable
from enum import StrEnum

LOG_PERIOD_S = 1.0


class Refusal(StrEnum):
    """The reason.
    Before the handshake the peer is a stranger; the last four are of authenticated peers.
    """

    TLS = "tls"  # no TLS, or a certificate that is not accepted here
    GARBAGE = "garbage"  # bytes that are no frame
    OVERSIZED = "oversized"  # a frame over the limit: 4 KiB before the handshake is over
    GREETING = "greeting"  # a frame that is no greeting, or out of turn
    KEY = "key"  # another cluster key, or a replayed greeting
    GROUP = "group"  # another group id
    LATE = "late"  # no complete handshake in time
    UNFINISHED = "unfinished"  # the peer left before its handshake was over
    CROWDED = "crowded"  # too many connections: this one made room for another, or found no room
    DESCRIPTORS = "descriptors"  # no descriptor left in the process or the machine; accepting paused
    STRANGER = "stranger"  # authenticated, but not a peer of this port
    SECOND = "second"  # claims the name of a peer whose link is alive
    MALFORMED = "malformed"  # a message that the application cannot read
    UNREAD = "unread"  # the peer does not read what it is sent


class Refusals:
    """The counters. *monotonic*: seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._counts = dict.fromkeys(Refusal, 0)
        self._logged_at: dict[Refusal, float] = {}

    def add(self, refusal: Refusal) -> bool:
        """Count one; True if it should be logged now."""
        self._counts[refusal] += 1
        now = self._monotonic()
        if now - self._logged_at.get(refusal, -LOG_PERIOD_S) < LOG_PERIOD_S:
            return False
        self._logged_at[refusal] = now
        return True

    def counts(self) -> dict[str, int]:
        """Every reason with its number, zeros included."""
        return {refusal.value: count for refusal, count in self._counts.items()}

    def count(self, refusal: Refusal) -> int:
        """The number of *refusal*."""
        return self._counts[refusal]
