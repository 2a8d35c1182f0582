"""The circuit breaker of one host: calls to a failing host pause, then one call probes the host.

    closed --5 failures in a row--> open --1 s, doubling to 30 s--> half-open: one call
    ^                              ^                                |
    +-------- any answer ----------+-------- that call fails -------+

A failure is a call without a useful answer (no connection, timeout, 5xx, 429). Any other answer, of
any call, closes the circuit. Failures of calls that were under way when the circuit opened are
ignored: they are no new information.
"""

from tern_txn_checker.core.backoff import pause_ms

# One lost packet or one restart is no outage; with four calls at a time this is the second round.
FAILURES_MAX = 5
# A restarted service is back within seconds; each probe of a dead one costs a connection and a
# timeout.
OPEN_FIRST_MS, OPEN_LONGEST_MS = 1_000, 30_000

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"


class Circuit:
    """The state of one circuit. Owner: the Schedule that made it.

    Times are ms of a monotonic clock.
    """

    __slots__ = ("_is_probing", "failures", "open_until_ms", "openings")

    def __init__(self) -> None:
        # Failures in a row while the circuit is closed.
        self.failures = 0
        # Openings in a row; 0 while the circuit is closed.
        self.openings = 0
        self.open_until_ms = 0
        self._is_probing = False

    def state(self, now_ms: int) -> str:
        """Return closed, open or half-open."""
        if not self.openings:
            return CLOSED
        return OPEN if now_ms < self.open_until_ms else HALF_OPEN

    def may_start(self, now_ms: int) -> bool:
        """Whether a call may start now."""
        return not self.openings or (now_ms >= self.open_until_ms and not self._is_probing)

    def start(self) -> bool:
        """Record the start of a permitted call; return whether it probes a half-open circuit.

        The caller passes that value back at the end of the call.
        """
        self._is_probing = bool(self.openings)
        return self._is_probing

    def succeed(self) -> None:
        """Record a call that was answered."""
        self.failures = self.openings = self.open_until_ms = 0
        self._is_probing = False

    def fail(self, now_ms: int, *, is_probe: bool, chance: float) -> bool:
        """Record a failed call; return whether the circuit opens by it. *chance*: 0 to 1."""
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
        """Record a call that the checker itself cancelled: it shows nothing about the host."""
        if is_probe:
            self._is_probing = False
