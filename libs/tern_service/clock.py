"""Time as an argument: cores and shells read a Clock, and only SystemClock reads the machine's."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC; may jump."""
        ...

    def mono_ms(self) -> int:
        """Milliseconds since a fixed moment; never goes back. For deadlines and ages."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def mono_ms(self) -> int:
        """Milliseconds since the machine's start."""
        return time.monotonic_ns() // 1_000_000
