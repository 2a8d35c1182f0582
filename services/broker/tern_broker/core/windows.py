"""Tables of the state in windows. A comparison of the nodes inspects one window of each, so its
cost does not grow with the state.
"""

from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

from tern_wire.limits import INSPECTED_ROWS_MAX

T = TypeVar("T")


@runtime_checkable
class Windowed(Protocol):
    """A part of the state, or of a part, that may be large. All windows together contain what
    `pack` returns.
    """

    def windows(self) -> int:
        """Return the number of windows, at least one."""

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types; an empty one behind the last."""


def windows_of(*tables: Sized, size: int = INSPECTED_ROWS_MAX) -> int:
    """Return how many windows of *size* rows the longest of *tables* has."""
    return max(1, *(-(-len(table) // size) for table in tables))


def rows_of(rows: Iterable[T], number: int, size: int = INSPECTED_ROWS_MAX) -> list[T]:
    """Return window *number* of *rows*, whose order is the same on all nodes."""
    return list(islice(rows, number * size, (number + 1) * size))
