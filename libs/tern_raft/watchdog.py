"""Watchdog: a thread that ends the process when the core loop hangs and so leads without serving.

It counts the loop's turns instead of comparing clocks, so a stopped process (SIGSTOP, a suspended
machine) is not taken for a hanging one: nothing is counted meanwhile. Stock ticks on a thread of
its own that may end silently (L8, syncobj.py:587).
"""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)
LOOK_PERIOD_S = 0.5
# 5 s: ten times the longest step of the core loop (a snapshot of a large state, a replay's slice).
MISSED_MAX = 10


class Watchdog:
    """Watches one loop. Owner: the core loop, which calls `beat` every few ms."""

    def __init__(self, on_hang: Callable[[], None], *, look_period_s: float = LOOK_PERIOD_S) -> None:
        """*on_hang* is called on the watchdog's thread and ends the process."""
        self._on_hang, self._look_period_s = on_hang, look_period_s
        self._beats = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Count a turn of the loop."""
        self._beats += 1

    def stop(self) -> None:
        """End the watch in order."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        seen, missed = self._beats, 0
        while not self._stop.wait(self._look_period_s):
            missed = missed + 1 if self._beats == seen else 0
            seen = self._beats
            if missed >= MISSED_MAX:
                log.critical(
                    "the core loop hangs: the process ends", extra={"seconds": MISSED_MAX * self._look_period_s}
                )
                self._on_hang()
                return
