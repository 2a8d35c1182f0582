"""The clocks of clients: one for the duration of calls, one for the end of leases."""

import time


def now_ms() -> float:
    """Return the time of calls: monotonic, in milliseconds."""
    return time.monotonic() * 1000


def epoch_ms() -> int:
    """Return the time of leases: milliseconds since 1970."""
    return time.time_ns() // 1_000_000
