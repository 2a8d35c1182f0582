"""How many descriptors this process has left. `OURS` is asked by all its ports, from any thread.

The limit is read each time, since it may be lowered under a process that runs. Counting costs some 4 us on Linux since 6.2; on other
systems all descriptors are listed, so that a count is good for a while, and what was accepted since then is taken off.
"""

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

# A saved state, the rows of a few queues and a rebuild at a time: with fewer left nobody is kept who need not be.
SHORT_BELOW = 64
COUNT_PERIOD_S = 0.01
# A count takes no more than this share of the time.
COUNT_SHARE = 0.05
_FOLDER = Path("/proc/self/fd") if sys.platform == "linux" else Path("/dev/fd")
_MANY = 1 << 30


class Descriptors:
    """Owner of the last count. *limit*, *count*: of this process; *monotonic*: seconds."""

    def __init__(
        self,
        *,
        limit: Callable[[], int] | None = None,
        count: Callable[[], int] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._count, self._monotonic = limit or _soft_limit, count or _open_now, monotonic
        self._free, self._good_until_s = 0, -1.0

    def free(self) -> int:
        """How many may still be opened; a little more when some were closed since the last count."""
        now = self._monotonic()
        if now >= self._good_until_s:
            self._free = self._limit() - self._count()
            self._good_until_s = now + max(COUNT_PERIOD_S, (self._monotonic() - now) / COUNT_SHARE)
        return self._free

    def take(self) -> None:
        """A connection was accepted."""
        self._free -= 1

    def are_short(self) -> bool:
        """Whether those that are left should be kept for files."""
        return self.free() < SHORT_BELOW


def _soft_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY if soft == resource.RLIM_INFINITY else soft


def _open_now() -> int:
    try:
        known = os.stat(_FOLDER).st_size if sys.platform == "linux" else 0
        return known or len(os.listdir(_FOLDER))
    except OSError:  # listing takes a descriptor, and there is none
        return _MANY


OURS = Descriptors()
