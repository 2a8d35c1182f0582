"""The outcomes of the last OUTCOMES_KEPT_MAX transactions of one broker group, and some more, since
whole blocks are dropped.

     blocks, oldest first:   | sorted by number | sorted | ... | the youngest, with a dictionary |

A row has 54 bytes, so all of them take some 15 MiB. A lookup visits the youngest block, then
searches the others, at most 33. Lookups serve repeated ends and operators, not the first end of a
transaction.
"""

from bisect import bisect_left
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.limits import OUTCOMES_KEPT_MAX

# The data of an ended transaction. *offset*: of its first visible message, -1 for none; *reason*:
# number of a text.
OUTCOMES = np.dtype(
    [
        ("number", "<i8"),
        ("begun_ms", "<i8"),
        ("ended_ms", "<i8"),
        ("offset", "<i8"),
        ("group", "<u4"),
        ("topic", "<u4"),
        ("size", "<u4"),
        ("reason", "<u4"),
        ("queue", "<u2"),
        ("messages", "<u2"),
        ("attempts", "u1"),
        # outcome * 16 + by
        ("how", "u1"),
    ]
)
assert OUTCOMES.itemsize == 54
BLOCK_ROWS = 8_192
_SORTED_BLOCKS = OUTCOMES_KEPT_MAX // BLOCK_ROWS
Row = npt.NDArray[Any]


class Outcomes:
    """Owner: the state machine."""

    def __init__(self) -> None:
        # Full blocks, sorted by number and never changed.
        self._sorted: list[Row] = []
        self._youngest = np.zeros(BLOCK_ROWS, OUTCOMES)
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sorted) * BLOCK_ROWS + len(self._places)

    def add(self, row: tuple[int, ...]) -> None:
        """Add an ended transaction; *row* as OUTCOMES, with a new number."""
        place = len(self._places)
        self._youngest[place] = row
        self._places[row[0]] = place
        if place + 1 == BLOCK_ROWS:
            self._sorted.append(self._youngest[np.argsort(self._youngest["number"])])
            del self._sorted[: max(0, len(self._sorted) - _SORTED_BLOCKS)]
            self._youngest, self._places = np.zeros(BLOCK_ROWS, OUTCOMES), {}

    def find(self, number: int) -> dict[str, int] | None:
        """Return the outcome of transaction *number*, by the names of OUTCOMES; None if it is not
        present.
        """
        place = self._places.get(number)
        if place is not None:
            return _facts(self._youngest[place])
        for rows in reversed(self._sorted):
            at = bisect_left(rows["number"], number)
            if at < len(rows) and rows["number"][at] == number:
                return _facts(rows[at])
        return None

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types: full blocks without a copy, since they never
        change.
        """
        return [*(rows.view(np.uint8).data for rows in self._sorted), self._youngest[: len(self._places)].tobytes()]

    def windows(self) -> int:
        """Return the number of windows: one for each block."""
        return len(self._sorted) + 1

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        if number < len(self._sorted):
            return self._sorted[number].view(np.uint8).data
        return self._youngest[: len(self._places)].tobytes() if number == len(self._sorted) else b""

    def unpack(self, packed: Any) -> None:
        """Restore the state from *packed*. Call it on a new instance."""
        *blocks, youngest = packed
        self._sorted = [np.frombuffer(block, OUTCOMES) for block in blocks]
        rows = np.frombuffer(youngest, OUTCOMES)
        self._youngest[: len(rows)] = rows
        self._places = {number: place for place, number in enumerate(rows["number"].tolist())}


def _facts(row: Any) -> dict[str, int]:
    return dict(zip(OUTCOMES.names or (), row.item(), strict=True))
