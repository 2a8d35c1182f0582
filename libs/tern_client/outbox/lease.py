"""The lease that makes one relay of an outbox the one that sends. Pure: time is an argument.

    free ---------------------------> taken by whoever is first
    owned, and its version moves ---> wait
    owned, version still for lease_ms -> taken, if it is still as it was seen

Every claim of rows makes the version higher, in the same transaction. Nobody compares clocks of two
machines: a relay that stands by measures with its own clock how long the version has stood still.

Law: the owner's claims fail from the moment another relay has taken the lease.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeenLease:
    """The lease as one transaction saw it."""

    owner: str
    version: int


class LeaseWatch:
    """What one relay knows of the lease. Owner: the relay *me*."""

    __slots__ = ("_lease_ms", "_me", "_seen", "_since_ms")

    def __init__(self, me: str, lease_ms: float) -> None:
        self._me, self._lease_ms = me, lease_ms
        self._seen: SeenLease | None = None
        self._since_ms = 0.0

    def may_take(self, seen: SeenLease, now_ms: float) -> bool:
        """Note the lease as it is *now_ms*; return whether it may be taken, or is
        this relay's own.
        """
        if seen != self._seen:
            self._seen, self._since_ms = seen, now_ms
        return seen.owner in {"", self._me} or now_ms - self._since_ms >= self._lease_ms
