"""Reads all files again, slowly, for ever: damage is found before a peer's disk fails too."""

import logging
from collections.abc import Callable, Iterator

from tern_store import Checked, DerivedDamage, LogRot, Store

log = logging.getLogger(__name__)
# A step of 1 MiB costs about 1 ms of the core loop; 20 of them a second are 20 MiB/s, a terabyte in
# 15 hours.
STEP_PERIOD_S = 0.05
# A small store is read every half minute, a large one at least every hour. The pause between two
# passes is three times the duration of one, so that reading costs half a percent of a core.
PAUSE_MIN_S, PAUSE_MAX_S = 30.0, 3600.0
PAUSE_PER_PASS = 3


class Scrubber:
    """Passes over one store. Owner: the core loop."""

    def __init__(self, store: Store, *, on_damage: Callable[[LogRot | DerivedDamage], None]) -> None:
        self._store, self._on_damage = store, on_damage
        self._steps: Iterator[Checked | LogRot | DerivedDamage] | None = None
        self._began_s = 0.0
        self._next_pass_s = 0.0
        self.passes = 0
        self.checked_bytes = 0

    def step(self, now_s: float) -> None:
        """Do one step, if a pass is in progress or due."""
        if self._steps is None:
            if now_s < self._next_pass_s:
                return
            self._steps, self._began_s = self._store.verify(), now_s
        found = next(self._steps, None)
        if found is None:
            pause_s = PAUSE_PER_PASS * (now_s - self._began_s)
            self._steps, self._next_pass_s = None, now_s + min(PAUSE_MAX_S, max(PAUSE_MIN_S, pause_s))
            self.passes += 1
        elif isinstance(found, Checked):
            self.checked_bytes += found.size_bytes
        else:
            self._on_damage(found)
