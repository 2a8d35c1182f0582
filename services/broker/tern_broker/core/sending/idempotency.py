"""Idempotency keys: the youngest table and the list of older ones; from key hash to the first
send's queue, offset and body CRC.

Keys are added to the youngest table, in memory. When it is full, or its first key a minute old, the
end of an entry seals it. From then on the state has only its number, count and newest time; its
keys are in a file (tern_store/keys/sent_keys.py). A table is dropped as a whole, when all its keys
are older than the window. All tables together have a limit, at which new keys are refused:
forgetting a key early would break the promise that a repeat is stored once.

Law: apply reads no file. It looks up a key in the youngest table, and trusts the receipts in the
command: the leader looked into all sealed tables when it built the entry. Sealing and dropping
tables follow from the log alone.

The youngest table is a hash table with linear probing in four arrays, 28 bytes a slot, at most 60 %
full. (Python's dict took 300 bytes a key.) The key hash is random already, so its first half is the
probe's start:

     slot = first half & mask
     | first half 8 (0: empty) | second half 8 | queue 16 bits, offset 48 bits | crc 4 |
"""

import zlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.array_thresholds import KEYS_ONE_BY_ONE_MAX
from tern_wire.limits import IDEMPOTENCY_KEYS_MAX, IDEMPOTENCY_TABLE_KEYS_MAX, IDEMPOTENCY_WINDOW_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.key_rows import KEY_ROWS, OFFSET_MASK, QUEUE_SHIFT, Halves, Receipt, split_keys

# The time for which a table is the youngest. Keys may be remembered that much longer than the
# window, and at least window / period tables exist.
TABLE_PERIOD_MS = 60_000

# A table grows by placing all keys again, which blocks the core loop: about 30 ms at the usual
# largest size.
SLOTS_MIN = 1 << 10
_EMPTY = 0
# Odd numbers without a pattern: each bit of a key affects many bits of its witness.
_MIX = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)))
# Halves, queue and offset as in a slot, CRC.
NewKey = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Packed:
    """The occupied slots of a table, in no particular order: four arrays of shape (n,)."""

    first: npt.NDArray[Any]
    second: npt.NDArray[Any]
    receipts: npt.NDArray[Any]
    crcs: npt.NDArray[Any]


def witness_of(keys: Packed) -> int:
    """Return 64 bits that depend on *keys*, in any order; empty slots do not count."""
    mixed = keys.first * _MIX[0] ^ keys.second * _MIX[1] ^ keys.receipts * _MIX[2] ^ keys.crcs * _MIX[3]
    mixed = (mixed ^ mixed >> np.uint64(29)) * _MIX[0]
    return int(mixed[keys.first != _EMPTY].sum(dtype=np.uint64))


class Table:
    """A hash table of keys. Owner: the state. A sealed table never changes, and any thread may read
    it.
    """

    def __init__(self, slots: int = 0) -> None:
        self.count = 0
        self._allocate(slots or SLOTS_MIN)

    def _allocate(self, slots: int) -> None:
        self._mask = slots - 1
        self._first = np.zeros(slots, np.uint64)
        self._second = np.zeros(slots, np.uint64)
        self._receipts = np.zeros(slots, np.uint64)
        self._crcs = np.zeros(slots, np.uint32)
        # Single slots are read and written through these: four times as fast as indexing an array.
        arrays: tuple[Any, ...] = (self._first, self._second, self._receipts, self._crcs)
        self._views = tuple(memoryview(array) for array in arrays)

    def find_halves(self, first: Halves, second: Halves) -> dict[int, Receipt]:
        """Return the receipts of the keys in the table, by number of the key."""
        mask, known = np.uint64(self._mask), dict[int, Receipt]()
        # Most new keys end here, all at once: their home slot is free.
        rows = (self._first[first & mask] != _EMPTY).nonzero()[0]
        slots = first[rows] & mask
        while len(rows) > KEYS_ONE_BY_ONE_MAX:
            found = self._first[slots]
            is_here = (found == first[rows]) & (self._second[slots] == second[rows])
            for row, slot in zip(rows[is_here].tolist(), slots[is_here].tolist(), strict=True):
                known[row] = self._receipt(slot)
            is_open = ~is_here & (found != _EMPTY)
            rows, slots = rows[is_open], slots[is_open] + np.uint64(1) & mask
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            receipt = self._find(int(first[row]), int(second[row]), slot)
            if receipt is not None:
                known[row] = receipt
        return known

    def _find(self, first: int, second: int, slot: int) -> Receipt | None:
        firsts, seconds, _, _ = self._views
        while (found := firsts[slot]) != _EMPTY:
            if found == first and seconds[slot] == second:
                return self._receipt(slot)
            slot = slot + 1 & self._mask
        return None

    def _receipt(self, slot: int) -> Receipt:
        _, _, receipts, crcs = self._views
        packed = receipts[slot]
        return packed >> QUEUE_SHIFT, packed & OFFSET_MASK, crcs[slot]

    def add(self, keys: Packed) -> None:
        """Add keys that are not in the table, each once."""
        self.count += len(keys.first)
        if self.count * 10 > (self._mask + 1) * 6:
            self._grow(self.count)
        self._place(keys)

    def has(self, first: int, second: int) -> bool:
        """Return whether the key is in the table."""
        return self._find(first, second, first & self._mask) is not None

    def add_few(self, keys: list[NewKey]) -> None:
        """Add keys that are not in the table, one by one."""
        self.count += len(keys)
        if self.count * 10 > (self._mask + 1) * 6:
            self._grow(self.count)
        self._put(keys)

    def _grow(self, count: int) -> None:
        old = self.pack()
        slots = self._mask + 1
        while count * 10 > slots * 6:
            slots *= 2
        self._allocate(slots)
        self._place(old)

    def _place(self, keys: Packed) -> None:
        """Put keys into free slots: while many keys probe, all of them advance together."""
        mask = np.uint64(self._mask)
        slots, left = keys.first & mask, np.arange(len(keys.first))
        is_placed = np.zeros(len(left), bool)
        while len(left) > KEYS_ONE_BY_ONE_MAX:
            free = left[self._first[slots[left]] == _EMPTY]
            at, first, second = slots[free], keys.first[free], keys.second[free]
            # Of several keys that want the same free slot, the last one gets it.
            self._first[at], self._second[at] = first, second
            placed = free[(self._first[at] == first) & (self._second[at] == second)]
            at = slots[placed]
            self._receipts[at], self._crcs[at] = keys.receipts[placed], keys.crcs[placed]
            is_placed[placed] = True
            left = left[~is_placed[left]]
            slots[left] = slots[left] + np.uint64(1) & mask
        columns = (keys.first, keys.second, keys.receipts, keys.crcs)
        self._put(zip(*(column[left].tolist() for column in columns), strict=True))

    def _put(self, keys: Iterable[NewKey]) -> None:
        """Put keys into free slots, one by one."""
        firsts, seconds, packed, sums = self._views
        mask = self._mask
        for first, second, receipt, crc in keys:
            slot = first & mask
            while firsts[slot] != _EMPTY:
                slot = slot + 1 & mask
            firsts[slot], seconds[slot], packed[slot], sums[slot] = first, second, receipt, crc

    def pack(self) -> Packed:
        """Return a copy of the occupied slots."""
        used = self._first != _EMPTY
        return Packed(self._first[used], self._second[used], self._receipts[used], self._crcs[used])

    def witness(self) -> int:
        """Return the witness of the keys in the table and their receipts, in any order."""
        return witness_of(Packed(self._first, self._second, self._receipts, self._crcs))

    def rows(self) -> npt.NDArray[Any]:
        """Return the occupied slots as KEY_ROWS."""
        packed = self.pack()
        rows = np.zeros(len(packed.first), KEY_ROWS)
        rows["first"], rows["second"], rows["receipt"], rows["crc"] = astuple(packed)
        return rows


@dataclass(frozen=True, slots=True)
class SealedFacts:
    """The state's data about a sealed table; *newest_ms* is the time of its youngest key."""

    number: int
    count: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """A table that an entry has sealed, for the owner of the key files."""

    facts: SealedFacts
    table: Table


class KeyTable:
    """The youngest table and the list of sealed ones. Owner: the state machine."""

    def __init__(self, keys_max: int = IDEMPOTENCY_KEYS_MAX, table_keys_max: int = IDEMPOTENCY_TABLE_KEYS_MAX) -> None:
        """*table_keys_max* is saved with the state: all nodes of a group must have begun with the
        same.
        """
        self._keys_max, self._table_keys_max = keys_max, table_keys_max
        self._table = Table()
        # If the youngest table has keys: the times of the first and the last entry that added some.
        self._oldest_ms = self._newest_ms = 0
        self._sealed: list[SealedFacts] = []  # oldest first
        self._sealed_count, self._next_number = 0, 1

    def __len__(self) -> int:
        return self._table.count + self._sealed_count

    def find(self, first: Halves, second: Halves) -> dict[int, Receipt]:
        """Return the receipts of the keys in the youngest table, by number of the key."""
        return self._table.find_halves(first, second) if self._table.count else {}

    def room(self) -> int:
        """Return how many new keys fit."""
        return self._keys_max - len(self)

    def add(self, keys: bytes, queues: Halves, offsets: Halves, crcs: npt.NDArray[Any], now_ms: int) -> None:
        """Add new keys; the caller has checked `room` and `find`. *queues* < 2**16, *offsets* <
        2**48, both uint64.
        """
        if not keys:
            return
        self._note(now_ms)
        self._table.add(Packed(*split_keys(keys), queues << np.uint64(QUEUE_SHIFT) | offsets, crcs))

    def has(self, first: int, second: int) -> bool:
        """Return whether the youngest table has the key."""
        return self._table.has(first, second)

    def add_few(self, keys: list[NewKey], now_ms: int) -> None:
        """Add new keys, at least one, and few enough that one by one is faster."""
        self._note(now_ms)
        self._table.add_few(keys)

    def _note(self, now_ms: int) -> None:
        """Note the time of keys that are about to be added."""
        if not self._table.count:
            self._oldest_ms = now_ms
        self._newest_ms = now_ms

    # At the begin and the end of an entry ---------------------------------------------------------
    def expire(self, now_ms: int) -> list[int]:
        """Drop tables whose youngest key is older than the window; return the numbers of the sealed
        ones.
        """
        oldest_kept_ms = now_ms - IDEMPOTENCY_WINDOW_MS
        if self._table.count and self._newest_ms < oldest_kept_ms:
            self._table = Table()
        dropped = []
        while self._sealed and self._sealed[0].newest_ms < oldest_kept_ms:
            facts = self._sealed.pop(0)
            self._sealed_count -= facts.count
            dropped.append(facts.number)
        return dropped

    def seal_if_due(self, now_ms: int) -> Sealed | None:
        """Seal the youngest table and begin a new one, if it is full or its period is over."""
        count = self._table.count
        if not count or (count < self._table_keys_max and now_ms - self._oldest_ms < TABLE_PERIOD_MS):
            return None
        sealed = Sealed(SealedFacts(self._next_number, count, self._newest_ms), self._table)
        self._sealed.append(sealed.facts)
        self._sealed_count += count
        self._next_number += 1
        self._table = Table()
        return sealed

    # Saving ---------------------------------------------------------------------------------------
    def facts(self) -> dict[str, Any]:
        """Return all but the keys of the youngest table, of MessagePack's types."""
        return {
            "table_keys_max": self._table_keys_max,
            "oldest_ms": self._oldest_ms,
            "newest_ms": self._newest_ms,
            "next_number": self._next_number,
            "sealed": [list(astuple(facts)) for facts in self._sealed],
        }

    def snapshot(self) -> Packed:
        """Return a copy of the youngest table, which another thread may encode."""
        return self._table.pack()

    def witness(self) -> int:
        """Return 64 bits that depend on all keys and facts, independent of the order of the
        keys.
        """
        return self._table.witness() ^ zlib.crc32(encode_msgpack(self.facts()))

    def restore(self, facts: dict[str, Any], packed: Packed) -> None:
        """Restore the state from *facts* and *packed*. Call it on a new table."""
        self._table_keys_max = facts["table_keys_max"]
        self._oldest_ms, self._newest_ms = facts["oldest_ms"], facts["newest_ms"]
        self._next_number = facts["next_number"]
        self._sealed = [SealedFacts(*values) for values in facts["sealed"]]
        self._sealed_count = sum(facts.count for facts in self._sealed)
        self._table.add(packed)
