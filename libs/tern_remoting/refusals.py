"""Connections that were refused or closed because of what their peer did: how many, and why.

Owner: one server, in its loop's thread, and the links that it accepted. Law: the reasons are these and no others, so that whatever
strangers send, the number of counters stays; and a flood of one kind costs one line of the log a second.
"""

import time
from collections.abc import Callable
from enum import StrEnum

LOG_PERIOD_S = 1.0


class Refusal(StrEnum):
    """Why. Before the handshake is over the peer is a stranger; the last four are of peers that know the key."""

    TLS = "tls"  # no TLS, or a certificate that is not wanted here
    GARBAGE = "garbage"  # bytes that are no frame
    OVERSIZED = "oversized"  # a frame over the limit: 4 KiB before the handshake is over
    GREETING = "greeting"  # a frame that is no greeting, or out of turn
    KEY = "key"  # another cluster key, or a recorded greeting played again
    GROUP = "group"  # another group id
    LATE = "late"  # no whole handshake in time
    UNFINISHED = "unfinished"  # the peer went away before its handshake was over
    CROWDED = "crowded"  # too many connections: this one made room for another, or found none
    DESCRIPTORS = "descriptors"  # the process or the machine had no descriptor left; accepting paused
    STRANGER = "stranger"  # knows the key, and has no business here
    SECOND = "second"  # claims the name of a peer whose link is alive
    MALFORMED = "malformed"  # a message that the application could not read
    UNREAD = "unread"  # does not read what it is sent


class Refusals:
    """The counters. *monotonic*: seconds."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._counts = dict.fromkeys(Refusal, 0)
        self._logged_at: dict[Refusal, float] = {}

    def add(self, refusal: Refusal) -> bool:
        """Count one; whether it is worth a line of the log now."""
        self._counts[refusal] += 1
        now = self._monotonic()
        if now - self._logged_at.get(refusal, -LOG_PERIOD_S) < LOG_PERIOD_S:
            return False
        self._logged_at[refusal] = now
        return True

    def counts(self) -> dict[str, int]:
        """Every reason with its number, those that never happened too."""
        return {refusal.value: count for refusal, count in self._counts.items()}

    def count(self, refusal: Refusal) -> int:
        """How often *refusal* has happened."""
        return self._counts[refusal]
