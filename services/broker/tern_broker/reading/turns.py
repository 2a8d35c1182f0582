"""Long reads, a slice at a time, so that they never delay the core loop's sends and votes.

Law: one slice of at most SLICE_S in a turn of the loop, for any number of reads, which take turns.
A read is an iterator that yields where it may be suspended, and sends its own answer.
"""

from collections import deque
from collections.abc import Callable, Iterator

# With the other work of a turn, the loop stays far below the 20 ms that producers would notice.
SLICE_S = 0.005
# Called with an error that a read has raised; not with an error that `failed` itself raises.
Failed = Callable[[Exception], None]


class Turns:
    """The reads in progress. Owner: the core loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], monotonic: Callable[[], float]) -> None:
        self._call_soon, self._monotonic = call_soon, monotonic
        self._waiting: deque[tuple[Iterator[None], Failed]] = deque()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, steps: Iterator[None], failed: Failed) -> None:
        """Run *steps* to their end, beginning in the next turn; an error goes to *failed*, once."""
        self._waiting.append((steps, failed))
        self._soon()

    def stop(self) -> None:
        """Drop the reads in progress: the files are about to be closed."""
        self._waiting.clear()

    def _soon(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._call_soon(self._slice)

    def _slice(self) -> None:
        self._is_due = False
        if not self._waiting:
            return
        until_s = self._monotonic() + SLICE_S
        steps, failed = self._waiting.popleft()
        # Before the slice: if it raises, the other reads continue.
        self._soon()
        try:
            for _ in steps:
                if self._monotonic() >= until_s:
                    self._waiting.append((steps, failed))
                    break
        except Exception as error:
            failed(error)
        self._soon()
