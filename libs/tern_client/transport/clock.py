"""The clocks of clients: one for how long calls take, one for when leases end."""

import time


def now_ms() -> float:
    """The clock of calls: monotonic, ms."""
    return time.monotonic() * 1000


def epoch_ms() -> int:
    """The clock of leases: ms since the epoch."""
    return time.time_ns() // 1_000_000
