"""Waits by the tenth of a second of their deadline: adding, removing and looking cost the same for
any number of waits.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Waits(Protocol):
    """An item that waits; compared by identity."""

    @property
    def deadline_s(self) -> float:
        """Deadline in seconds, monotonic; does not change."""


W = TypeVar("W", bound=Waits)


class Deadlines(Generic[W]):
    """Owner: the code that parks the waits."""

    def __init__(self) -> None:
        # Dictionaries keep the order.
        self._by_tenth: dict[int, dict[W, None]] = {}

    def add(self, wait: W) -> None:
        """Add *wait*."""
        self._by_tenth.setdefault(_tenth(wait.deadline_s), {})[wait] = None

    def remove(self, wait: W) -> None:
        """Remove *wait*, which was added."""
        tenth = _tenth(wait.deadline_s)
        waits = self._by_tenth[tenth]
        del waits[wait]
        if not waits:
            del self._by_tenth[tenth]

    def over(self, now_s: float) -> list[W]:
        """Return waits whose deadline has passed, the oldest tenth first. They stay until they are
        removed.
        """
        this = _tenth(now_s)
        tenths = sorted([tenth for tenth in self._by_tenth if tenth <= this])
        return [wait for tenth in tenths for wait in self._by_tenth[tenth] if wait.deadline_s <= now_s]

    def __iter__(self) -> Iterator[W]:
        """Iterate over all waits."""
        for waits in self._by_tenth.values():
            yield from waits


def _tenth(time_s: float) -> int:
    return int(time_s * 10)
