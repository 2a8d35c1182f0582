"""Reading everything again, slowly, for ever: rot is found before a peer's disk fails too."""

import logging
from collections.abc import Callable, Iterator

from tern_store import Checked, DerivedDamage, LogRot, Store

log = logging.getLogger(__name__)
# A step of 1 MiB costs about 1 ms of the core loop; 20 of them a second are 20 MiB/s, a terabyte in 15 hours.
STEP_PERIOD_S = 0.05
# A pass over a small store takes seconds; it need not be read all day.
PASS_PERIOD_S = 3600.0


class Scrubber:
    """Passes over one store. Owner: the core loop."""

    def __init__(self, store: Store, *, on_damage: Callable[[LogRot | DerivedDamage], None]) -> None:
        self._store, self._on_damage = store, on_damage
        self._steps: Iterator[Checked | LogRot | DerivedDamage] | None = None
        self._next_pass_s = 0.0
        self.passes = 0
        self.checked_bytes = 0

    def step(self, now_s: float) -> None:
        """One step, if a pass is under way or due."""
        if self._steps is None:
            if now_s < self._next_pass_s:
                return
            self._steps = self._store.verify()
        found = next(self._steps, None)
        if found is None:
            self._steps, self._next_pass_s = None, now_s + PASS_PERIOD_S
            self.passes += 1
        elif isinstance(found, Checked):
            self.checked_bytes += found.size_bytes
        else:
            self._on_damage(found)
