"""Virtual time: one heap of events for a whole world, in order of time, then of being asked for. Nothing else makes time pass.

Law: an event runs once, at its time, and never before one that was due earlier. Owner: the world.
"""

import heapq
from collections.abc import Callable
from typing import Any

# Where the virtual time of every world begins; far from 0, since programs take differences to "never".
BEGIN_S = 1000.0


class Scheduler:
    """The heap. *now_s* is the world's own time; nodes see it through their clocks."""

    def __init__(self) -> None:
        self.now_s = BEGIN_S
        self.events = 0  # that have run
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, time_s: float, callback: Callable[..., object], *arguments: object) -> None:
        """Run *callback* at *time_s*, or now if that has passed."""
        self._sequence += 1
        heapq.heappush(self._heap, (time_s, self._sequence, callback, arguments))

    def after(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> None:
        """Run *callback* in *delay_s*."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_s + delay_s, self._sequence, callback, arguments))

    def run_until(self, end_s: float, is_over: Callable[[], bool] | None = None) -> None:
        """Run what is due before *end_s*; stop early when *is_over* says so (asked after every event)."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end_s:
            time_s, _, callback, arguments = pop(heap)
            self.now_s = max(self.now_s, time_s)
            self.events += 1
            callback(*arguments)
            if is_over is not None and is_over():
                return
        self.now_s = max(self.now_s, end_s)
