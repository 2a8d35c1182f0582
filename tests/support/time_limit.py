"""A limit of time for campaigns with as many cases as one likes: a slow machine tries fewer, and the summary says how many."""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class TimeLimit:
    """*within_s* seconds from now on; 0: no limit."""

    def __init__(self, within_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic, self.began_s = monotonic, monotonic()
        self._within_s = within_s

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return self._monotonic() - self.began_s

    def is_over(self) -> bool:
        """Whether no further case is to begin."""
        return bool(self._within_s) and self.elapsed_s >= self._within_s

    def taken(self, results: Iterable[T]) -> Iterator[T]:
        """*results* until the time is over; the first one in any case, so that a run shows something."""
        for result in results:
            yield result
            if self.is_over():
                return

    def share(self, wanted: int, done: int, steps_left: int) -> int:
        """How many of *wanted* cases the next of *steps_left* equal steps may try, after *done* cases in the time so far; at
        least one.
        """
        if not self._within_s or not done:
            return wanted
        left_s = max(0.0, self._within_s - self.elapsed_s)
        return max(1, min(wanted, int(left_s / steps_left * done / max(self.elapsed_s, 0.001))))


def add_within(parser: argparse.ArgumentParser) -> None:
    """The option `--within`."""
    parser.add_argument(
        "--within", type=float, default=0, metavar="SECONDS", help="begin no further case after so long (default: all)"
    )
