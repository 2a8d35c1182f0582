"""Quotas of principals: requests a second and bytes a second (of bodies in both directions) at this proxy. Token buckets. Pure.

A request is let through while its principal has a request and any byte left. What it then carries is taken all the same, so that one large
message passes, and what is owed is paid by waiting. A bucket holds one second's worth, less what is held: bytes of requests under way are spent
when they arrive, and do not come back before they are given back, so that dribbling bodies pile up no more than a second's worth of room.
Reference: Kafka, whose quotas are per broker, too.
"""

from tern_wire.errors import QuotaExceeded

REQUESTS, BYTES = "requests/s", "bytes/s"


class Bucket:
    """What one principal has left. Owner: the event loop. Limits of 0 are none."""

    __slots__ = ("_bytes", "_bytes_per_s", "_requests", "_requests_per_s", "_seen_ms")

    def __init__(self, requests_per_s: int, bytes_per_s: int, now_ms: int) -> None:
        self._requests_per_s, self._bytes_per_s = requests_per_s, bytes_per_s
        self._requests, self._bytes = float(requests_per_s), float(bytes_per_s)
        self._seen_ms = now_ms

    @property
    def counts_bytes(self) -> bool:
        """Whether anybody needs to call `charge`."""
        return self._bytes_per_s > 0

    def limit(self, requests_per_s: int, bytes_per_s: int) -> None:
        """New limits: what is left stays, and is not more than they allow."""
        if (requests_per_s, bytes_per_s) == (self._requests_per_s, self._bytes_per_s):
            return
        # What was not limited begins full; what was keeps what is left of it, and what it owes.
        self._requests = min(self._requests, requests_per_s) if self._requests_per_s else float(requests_per_s)
        self._bytes = min(self._bytes, bytes_per_s) if self._bytes_per_s else float(bytes_per_s)
        self._requests_per_s, self._bytes_per_s = requests_per_s, bytes_per_s

    def take(self, now_ms: int, held_bytes: int = 0) -> None:
        """One request at *now_ms* (monotonic), while the principal holds *held_bytes* of others; QuotaExceeded with `retry_after_ms`."""
        past_s = max(0, now_ms - self._seen_ms) / 1_000
        self._seen_ms = now_ms
        self._requests = min(float(self._requests_per_s), self._requests + past_s * self._requests_per_s)
        self._bytes = min(float(self._bytes_per_s - held_bytes), self._bytes + past_s * self._bytes_per_s)
        if self._requests_per_s and self._requests < 1:
            raise _exceeded(self._requests_per_s, REQUESTS, 1 - self._requests)
        if self._bytes_per_s and self._bytes <= 0:
            raise _exceeded(self._bytes_per_s, BYTES, 1 - self._bytes)
        self._requests -= 1

    def charge(self, size_bytes: int) -> None:
        """A body of that size went in or out."""
        self._bytes -= size_bytes


def _exceeded(limit: int, unit: str, missing: float) -> QuotaExceeded:
    return QuotaExceeded(limit=limit, unit=unit, retry_after_ms=max(1, int(missing * 1_000 / limit) + 1))
