"""The circuit of one host: a host that does not answer is left alone for a while, and then asked once.

    closed --5 failures in a row--> open --1 s, doubling to 30 s--> half-open: one call
       ^                              ^                                |
       +-------- any answer ----------+-------- that call fails -------+

A failure is a call without a useful answer (no connection, no time, 5xx, 429); any other answer, of any call, closes the circuit. Calls that
were under way when it opened say nothing new by failing.
"""

from tern_txn_checker.core.backoff import pause_ms

# One lost packet or restart is no outage; with four calls at a time this is the second round.
FAILURES_MAX = 5
# A restarted service is back within seconds; each probe of a dead one costs a connection and a timeout.
OPEN_FIRST_MS, OPEN_LONGEST_MS = 1_000, 30_000

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"


class Circuit:
    """Owner: the Schedule that made it. Times are ms of a clock that never goes back."""

    __slots__ = ("_is_probing", "failures", "open_until_ms", "openings")

    def __init__(self) -> None:
        # In a row, while it is closed.
        self.failures = 0
        # How often in a row it has opened; 0: it is closed.
        self.openings = 0
        self.open_until_ms = 0
        self._is_probing = False

    def state(self, now_ms: int) -> str:
        """closed, open or half-open."""
        if not self.openings:
            return CLOSED
        return OPEN if now_ms < self.open_until_ms else HALF_OPEN

    def may_start(self, now_ms: int) -> bool:
        """Whether a call may be made."""
        return not self.openings or (now_ms >= self.open_until_ms and not self._is_probing)

    def start(self) -> bool:
        """A call is made, which it may be; True when it is the one that tries a half-open circuit. To be told at its end."""
        self._is_probing = bool(self.openings)
        return self._is_probing

    def succeed(self) -> None:
        """A call was answered."""
        self.failures = self.openings = self.open_until_ms = 0
        self._is_probing = False

    def fail(self, now_ms: int, *, is_probe: bool, chance: float) -> bool:
        """A call failed; True when the circuit opens by that. *chance*: 0 to 1."""
        if is_probe:
            self._is_probing = False
        elif self.openings:
            return False
        else:
            self.failures += 1
            if self.failures < FAILURES_MAX:
                return False
        self.openings += 1
        self.open_until_ms = now_ms + pause_ms(
            self.openings, first_ms=OPEN_FIRST_MS, longest_ms=OPEN_LONGEST_MS, chance=chance
        )
        return True

    def abandon(self, *, is_probe: bool) -> None:
        """A call was given up by ourselves: it says nothing of the host."""
        if is_probe:
            self._is_probing = False
