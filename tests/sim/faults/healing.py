"""What faults have broken and how it is mended: each once, after its time or when all faults end, whatever comes first."""

from collections.abc import Callable

from tests.sim.machines.scheduler import Scheduler


class Healing:
    """Owner: who breaks things."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._open: list[Callable[[], None]] = []

    def after(self, seconds: float, heal: Callable[[], None]) -> None:
        """Call *heal* after so long, or when all faults end."""
        over = False

        def once() -> None:
            nonlocal over
            if not over:
                over = True
                heal()

        self._open.append(once)
        self._scheduler.after(seconds, once)

    def all(self) -> None:
        """Faults end: mend what is still broken."""
        healing, self._open = self._open, []
        for heal in healing:
            heal()
