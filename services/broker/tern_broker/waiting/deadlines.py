"""What waits, by the tenth of a second in which its deadline comes: adding, removing and looking cost the same however many wait."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Waits(Protocol):
    """What can wait; told apart by identity."""

    @property
    def deadline_s(self) -> float:
        """Seconds, monotonic; does not change."""


W = TypeVar("W", bound=Waits)


class Deadlines(Generic[W]):
    """Owner: who parks them."""

    def __init__(self) -> None:
        # Dictionaries for their order.
        self._by_tenth: dict[int, dict[W, None]] = {}

    def add(self, wait: W) -> None:
        """*wait* waits from now on."""
        self._by_tenth.setdefault(_tenth(wait.deadline_s), {})[wait] = None

    def remove(self, wait: W) -> None:
        """*wait*, which was added, waits no more."""
        tenth = _tenth(wait.deadline_s)
        waits = self._by_tenth[tenth]
        del waits[wait]
        if not waits:
            del self._by_tenth[tenth]

    def over(self, now_s: float) -> list[W]:
        """Those whose deadline has come, the oldest tenth first. They wait until they are removed."""
        tenths = sorted(tenth for tenth in self._by_tenth if tenth <= _tenth(now_s))
        return [wait for tenth in tenths for wait in self._by_tenth[tenth] if wait.deadline_s <= now_s]

    def __iter__(self) -> Iterator[W]:
        """All that wait."""
        for waits in self._by_tenth.values():
            yield from waits


def _tenth(time_s: float) -> int:
    return int(time_s * 10)
