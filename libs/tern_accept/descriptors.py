"""Free descriptors of this process. All its ports share `OURS`, from any thread.

The limit is read each time, since it may be lowered for a running process. Counting costs about 4
us on Linux since 6.2; on other systems it lists all descriptors, so a count stays valid for a
while, and connections accepted since then are subtracted.
"""

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

# A saved state, the rows of a few queues and a rebuild at a time: below this, optional connections
# are closed.
SHORT_BELOW = 64
COUNT_PERIOD_S = 0.01
# The largest share of the time spent on counting.
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
        """Descriptors that can still be opened; slightly more if some were closed since the last
        count.
        """
        now = self._monotonic()
        if now >= self._good_until_s:
            self._free = self._limit() - self._count()
            self._good_until_s = now + max(COUNT_PERIOD_S, (self._monotonic() - now) / COUNT_SHARE)
        return self._free

    def take(self) -> None:
        """Subtract an accepted connection."""
        self._free -= 1

    def are_short(self) -> bool:
        """Whether the rest should be kept for files."""
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
