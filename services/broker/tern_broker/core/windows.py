"""Tables of the state in windows: a comparison of the nodes looks at one of each, so that it costs the same however much is held."""

from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

from tern_wire.limits import INSPECTED_ROWS_MAX

T = TypeVar("T")


@runtime_checkable
class Windowed(Protocol):
    """A part of the state, or of a part, that may be large. All windows together say what `pack` says."""

    def windows(self) -> int:
        """How many there are, at least one."""

    def window(self, number: int) -> Any:
        """One of them, of MessagePack's types; nothing behind the last one."""


def windows_of(*tables: Sized, size: int = INSPECTED_ROWS_MAX) -> int:
    """How many windows of *size* rows the longest of *tables* has."""
    return max(1, *(-(-len(table) // size) for table in tables))


def rows_of(rows: Iterable[T], number: int, size: int = INSPECTED_ROWS_MAX) -> list[T]:
    """Window *number* of *rows*, whose order is the same on all nodes."""
    return list(islice(rows, number * size, (number + 1) * size))
