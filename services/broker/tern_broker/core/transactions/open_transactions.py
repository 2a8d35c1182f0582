"""The table of transactions that have not ended: open and parked ones, one row each, with their
messages.

A row is a slot in some columns; the choice of slot is internal, and may differ between nodes.
Operations on all rows (saving, listing, retention) are a few array operations; operations on one
row cost some lookups, independent of their number.

     WAITING -- its time --> DUE -- claim --> CLAIMED -- report --> WAITING   each -- end --> gone
        |                     ^                  |
        |                     +--- its end ------+-- its second end --> WAITING
        |                     +-- no request for an interval --> WAITING
        +-- checked often enough --> PARKED
"""

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.windows import rows_of, windows_of
from tern_wire.link.rows import MOVE_ROWS, MOVED_HALF

# A half message in the state, 32 bytes.
MESSAGES = np.dtype(
    [("position", "<i8"), ("tag", "<i8"), ("size", "<u4"), ("topic", "<u4"), ("queue", "<u4"), ("reserved", "<u4")]
)
MESSAGE = struct.Struct("<qqIIII")
# A finished check, 24 bytes: *checker* and *answer* are numbers of texts.
NOTES = np.dtype(
    [
        ("at_ms", "<i8"),
        ("checker", "<u4"),
        ("answer", "<u4"),
        ("latency_ms", "<u4"),
        ("attempt", "<u2"),
        ("reserved", "<u2"),
    ]
)
assert (MESSAGES.itemsize, MESSAGE.size, NOTES.itemsize) == (32, 32, 24)
FREE, WAITING, DUE, CLAIMED, PARKED = range(5)
# *at_ms*: in WAITING the time of the next check, in DUE and PARKED the begin of the phase, in
# CLAIMED its end. *vain_ms*: in DUE the time at which the attempt is lost, 0 for never. *size*: of
# the records. *passes*: how often the attempt was handed out. *claimed_ms*, *checker*: time and
# checker of the last claim.
COLUMNS: dict[str, Any] = {
    "number": np.int64,
    "begun_ms": np.int64,
    "at_ms": np.int64,
    "vain_ms": np.int64,
    "claim": np.int64,
    "claimed_ms": np.int64,
    "group": np.uint32,
    "checker": np.uint32,
    "size": np.uint32,
    "attempts": np.uint16,
    "phase": np.uint8,
    "passes": np.uint8,
}
_ROOM_MIN = 64
Numbers = npt.NDArray[Any]


class OpenTransactions:
    """Owner: the state machine. `columns` by name; `phase` of an unused slot is FREE."""

    def __init__(self) -> None:
        self.columns: dict[str, Numbers] = {name: np.zeros(0, kind) for name, kind in COLUMNS.items()}
        # By slot: MESSAGES and NOTES as bytes.
        self.messages: list[bytes] = []
        self.notes: list[bytes] = []
        self.slots: dict[int, int] = {}
        self._free: list[int] = []
        self.message_count = 0

    def __len__(self) -> int:
        return len(self.slots)

    # Changes --------------------------------------------------------------------------------------
    def add(
        self, numbers: Numbers, groups: Numbers, begun_ms: int, at_ms: Numbers, messages: Sequence[bytes]
    ) -> list[int]:
        """Add transactions that wait for their first check at *at_ms*; shapes (n,), n > 0,
        *messages* as MESSAGES.

        Return their numbers, as the same objects that the table has: a caller that keeps these
        saves 32 bytes for each.
        """
        while len(self._free) < len(numbers):
            self._grow()
        chosen = [self._free.pop() for _ in range(len(numbers))]
        values: dict[str, Any] = dict.fromkeys(COLUMNS, 0)
        starts = np.cumsum([0, *(len(each) // MESSAGES.itemsize for each in messages[:-1])])
        sizes = np.add.reduceat(read_messages(b"".join(messages))["size"].astype(np.int64), starts)
        values |= {"number": numbers, "begun_ms": begun_ms, "at_ms": at_ms, "group": groups, "size": sizes}
        values["phase"] = WAITING
        for name, value in values.items():
            self.columns[name][chosen] = value
        added: list[int] = numbers.tolist()
        for slot, number, each in zip(chosen, added, messages, strict=True):
            self.slots[number], self.messages[slot], self.notes[slot] = slot, each, b""
            self.message_count += len(each) // MESSAGES.itemsize
        return added

    def drop(self, slot: int) -> None:
        """Remove a transaction that has ended."""
        del self.slots[self.get("number", slot)]
        self.message_count -= len(self.messages[slot]) // MESSAGES.itemsize
        self.messages[slot] = self.notes[slot] = b""
        self.columns["phase"][slot] = FREE
        self._free.append(slot)

    def get(self, name: str, slot: int) -> int:
        """Return one number of a row."""
        return int(self.columns[name][slot])

    def set(self, slot: int, **values: int) -> None:
        """Set numbers of a row by name."""
        for name, value in values.items():
            self.columns[name][slot] = value

    def move(self, number: int, ordinal: int, position: int) -> None:
        """Set the position of the transaction's message *ordinal*, which was copied. An ended
        transaction is ignored.
        """
        slot = self.slots.get(number)
        if slot is not None:
            messages = read_messages(self.messages[slot]).copy()
            messages["position"][ordinal : ordinal + 1] = position
            self.messages[slot] = messages.tobytes()

    # Queries --------------------------------------------------------------------------------------
    def used(self) -> Numbers:
        """Return the slots in use, in the order of their transactions' numbers."""
        slots = np.flatnonzero(self.columns["phase"])
        ordered: Numbers = slots[np.argsort(self.columns["number"][slots])]
        return ordered

    def records_below(self, position: int) -> tuple[Numbers, npt.NDArray[np.int64]]:
        """Return the records below *position* of the log, as a COPY describes them (MOVE_ROWS), and
        their positions, ascending.
        """
        slots = np.flatnonzero(self.columns["phase"])
        parts = list(map(self.messages.__getitem__, slots.tolist()))
        messages = read_messages(b"".join(parts))
        counts = np.fromiter(map(len, parts), np.int64, len(parts)) // MESSAGES.itemsize
        old = np.flatnonzero(messages["position"] < position)
        old = old[np.argsort(messages["position"][old], kind="stable")]
        rows = np.zeros(len(old), MOVE_ROWS)
        rows["kind"] = MOVED_HALF
        for name in ("topic", "queue", "size", "tag"):
            rows[name] = messages[name][old]
        rows["number"] = np.repeat(self.columns["number"][slots], counts)[old]
        rows["deliver_ms"] = (np.arange(len(messages)) - np.repeat(np.cumsum(counts) - counts, counts))[old]
        return rows, messages["position"][old].astype(np.int64)

    # Saving ---------------------------------------------------------------------------------------
    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        slots = self.used()
        chosen = slots.tolist()
        # Transactions without an attempt have none.
        asked = np.flatnonzero(self.columns["attempts"][slots]).tolist()
        return {
            "columns": {name: self.columns[name][slots].tobytes() for name in COLUMNS},
            "messages": list(map(self.messages.__getitem__, chosen)),
            "notes": [[number, notes] for number in asked if (notes := self.notes[chosen[number]])],
        }

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self.slots)

    def window(self, number: int) -> Any:
        """Return window *number*, in the order in which transactions began, independent of their
        slots.
        """
        chosen = rows_of(self.slots.values(), number)
        columns = [self.columns[name][chosen].tobytes() for name in COLUMNS]
        return [columns, [self.messages[slot] for slot in chosen], [self.notes[slot] for slot in chosen]]

    def unpack(self, packed: Any) -> None:
        """Restore the state from *packed*. Call it on a new instance."""
        self.columns = {name: np.frombuffer(packed["columns"][name], kind).copy() for name, kind in COLUMNS.items()}
        self.messages = list(packed["messages"])
        self.notes = [b""] * len(self.messages)
        for number, notes in packed["notes"]:
            self.notes[number] = notes
        self.slots = {number: slot for slot, number in enumerate(self.columns["number"].tolist())}
        self.message_count = sum(map(len, self.messages)) // MESSAGES.itemsize

    def _grow(self) -> None:
        room = len(self.messages)
        more = max(_ROOM_MIN, room)
        for name, kind in COLUMNS.items():
            self.columns[name] = np.concatenate([self.columns[name], np.zeros(more, kind)])
        self.messages += [b""] * more
        self.notes += [b""] * more
        self._free += range(room + more - 1, room - 1, -1)


def read_messages(data: bytes) -> Numbers:
    """Return bytes as MESSAGES."""
    return np.frombuffer(data, MESSAGES)
