"""Quotas of principals at this proxy: requests a second, and bytes of bodies a second in both
directions. Pure.

Token buckets. A request is admitted while its principal has a request and any byte left. Its bytes
are then charged in full, so that one large message passes, and the debt is paid by waiting. A
bucket holds one second's worth, less the held bytes: bytes of requests in flight are charged on
arrival and refill only after their release, so slow bodies never hold more than a second's worth.
Reference: Kafka, whose quotas are also per broker.
"""

from tern_wire.errors import QuotaExceeded

REQUESTS, BYTES = "requests/s", "bytes/s"


class Bucket:
    """Remaining tokens of one principal. Owner: the event loop. A limit of 0 is no limit."""

    __slots__ = ("_bytes", "_bytes_per_s", "_requests", "_requests_per_s", "_seen_ms")

    def __init__(self, requests_per_s: int, bytes_per_s: int, now_ms: int) -> None:
        self._requests_per_s, self._bytes_per_s = requests_per_s, bytes_per_s
        self._requests, self._bytes = float(requests_per_s), float(bytes_per_s)
        self._seen_ms = now_ms

    @property
    def counts_bytes(self) -> bool:
        """Whether `charge` must be called."""
        return self._bytes_per_s > 0

    def limit(self, requests_per_s: int, bytes_per_s: int) -> None:
        """Set new limits; the remaining tokens stay, capped by the new limits."""
        if (requests_per_s, bytes_per_s) == (self._requests_per_s, self._bytes_per_s):
            return
        # A new limit begins with a full bucket; a changed one keeps its tokens, or its debt.
        self._requests = min(self._requests, requests_per_s) if self._requests_per_s else float(requests_per_s)
        self._bytes = min(self._bytes, bytes_per_s) if self._bytes_per_s else float(bytes_per_s)
        self._requests_per_s, self._bytes_per_s = requests_per_s, bytes_per_s

    def take(self, now_ms: int, held_bytes: int = 0) -> None:
        """Take one request at *now_ms* (monotonic), while the principal holds *held_bytes* of
        others.

        Raise QuotaExceeded with `retry_after_ms`.
        """
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
        """Charge a body of *size_bytes*, received or sent."""
        self._bytes -= size_bytes


def _exceeded(limit: int, unit: str, missing: float) -> QuotaExceeded:
    return QuotaExceeded(limit=limit, unit=unit, retry_after_ms=max(1, int(missing * 1_000 / limit) + 1))
