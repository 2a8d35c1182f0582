"""Idempotency keys: a bounded, replicated table from key hash to the first send's queue, offset and body CRC.

Keys live in generations of five minutes; a generation is dropped whole when the youngest key in it could be older than the
window. A full table refuses new keys: forgetting one early would break the promise that a repeat is stored once.

A generation is a hash table with linear probing in four arrays, 28 bytes a slot, at most 60 % full. (Python's dict took 300
bytes a key.) The key hash is random already, so its first half says where to look:

     slot = first half & mask      | first half 8 (0: empty) | second half 8 | queue 16 bits, offset 48 bits | crc 4 |
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.limits import IDEMPOTENCY_KEYS_MAX, IDEMPOTENCY_WINDOW_MS

GENERATION_MS = 300_000
assert IDEMPOTENCY_WINDOW_MS % GENERATION_MS == 0

# A table grows by placing everything again, which stops the world: about 30 ms at the largest size. Then another one begins.
SLOTS_MIN, SLOTS_MAX = 1 << 10, 1 << 19
_QUEUE_SHIFT, _OFFSET_MASK = 48, (1 << 48) - 1
_EMPTY = 0

# Queue, offset and body CRC of the first send with a key.
Receipt = tuple[int, int, int]
Halves = npt.NDArray[np.uint64]


def split_keys(keys: bytes) -> tuple[Halves, Halves]:
    """First and second halves of concatenated 16-byte hashes, each of shape (n,). A first half of 0 counts as 1."""
    halves = np.frombuffer(keys, "<u8").reshape(-1, 2)
    return np.maximum(halves[:, 0], 1), halves[:, 1].copy()


@dataclass(frozen=True, slots=True)
class Packed:
    """The occupied slots of one generation, in no particular order: four arrays of shape (n,)."""

    number: int
    first: npt.NDArray[Any]
    second: npt.NDArray[Any]
    receipts: npt.NDArray[Any]
    crcs: npt.NDArray[Any]


class Generation:
    """Keys first seen within one stretch of GENERATION_MS; *number* is time // GENERATION_MS. Owner: the table.

    A busy stretch has several of these with the same number.
    """

    def __init__(self, number: int, slots: int = SLOTS_MIN) -> None:
        self.number, self.count = number, 0
        self._allocate(slots)

    def _allocate(self, slots: int) -> None:
        self._mask = slots - 1
        self._first = np.zeros(slots, np.uint64)
        self._second = np.zeros(slots, np.uint64)
        self._receipts = np.zeros(slots, np.uint64)
        self._crcs = np.zeros(slots, np.uint32)
        # Single slots are read and written through these: four times as fast as indexing an array.
        arrays: tuple[Any, ...] = (self._first, self._second, self._receipts, self._crcs)
        self._views = tuple(memoryview(array) for array in arrays)

    def has_room(self, keys: int) -> bool:
        """Whether *keys* more fit without growing beyond the largest size (a table of its own takes any number)."""
        return (self.count + keys) * 10 <= SLOTS_MAX * 6 or self.count == 0

    def candidates(self, first: Halves) -> npt.NDArray[np.intp]:
        """Rows of *first* whose home slot is taken: only these can be here. Most new keys end here, all at once."""
        return np.flatnonzero(self._first[first & np.uint64(self._mask)] != _EMPTY)

    def find(self, first: int, second: int) -> Receipt | None:
        """The receipt of one key."""
        firsts, seconds, receipts, crcs = self._views
        slot = first & self._mask
        while (found := firsts[slot]) != _EMPTY:
            if found == first and seconds[slot] == second:
                packed = receipts[slot]
                return packed >> _QUEUE_SHIFT, packed & _OFFSET_MASK, crcs[slot]
            slot = slot + 1 & self._mask
        return None

    def add(self, first: list[int], second: list[int], receipts: list[int], crcs: list[int]) -> None:
        """Add keys that are not here yet."""
        if (self.count + len(first)) * 10 > (self._mask + 1) * 6:
            self._grow(self.count + len(first))
        firsts, seconds, packed, sums = self._views
        for key, rest, receipt, crc in zip(first, second, receipts, crcs, strict=True):
            slot = key & self._mask
            while firsts[slot] != _EMPTY:
                slot = slot + 1 & self._mask
            firsts[slot], seconds[slot], packed[slot], sums[slot] = key, rest, receipt, crc
        self.count += len(first)

    def _grow(self, count: int) -> None:
        old = self.pack()
        slots = self._mask + 1
        while count * 10 > slots * 6:
            slots *= 2
        self._allocate(slots)
        self._place(old)

    def _place(self, packed: Packed) -> None:
        """Put keys into an empty table: all that still search a slot take one step at a time, together."""
        mask = np.uint64(self._mask)
        slots, left = packed.first & mask, np.arange(len(packed.first))
        while len(left):
            wanted = slots[left]
            free = self._first[wanted] == _EMPTY
            # Of several that want the same free slot, the first one gets it.
            _, winners = np.unique(wanted[free], return_index=True)
            placed = left[free][winners]
            at = slots[placed]
            self._first[at], self._second[at] = packed.first[placed], packed.second[placed]
            self._receipts[at], self._crcs[at] = packed.receipts[placed], packed.crcs[placed]
            left = np.setdiff1d(left, placed, assume_unique=True)
            slots[left] = np.where(self._first[slots[left]] == _EMPTY, slots[left], slots[left] + np.uint64(1) & mask)

    def pack(self) -> Packed:
        """What is in it, copied."""
        used = self._first != _EMPTY
        return Packed(self.number, self._first[used], self._second[used], self._receipts[used], self._crcs[used])

    @staticmethod
    def unpack(packed: Packed) -> "Generation":
        """The generation again."""
        slots = SLOTS_MIN
        while len(packed.first) * 10 > slots * 6:
            slots *= 2
        generation = Generation(packed.number, slots)
        generation._place(packed)
        generation.count = len(packed.first)
        return generation


class KeyTable:
    """Owner: the state machine. Newest generation first."""

    def __init__(self, keys_max: int = IDEMPOTENCY_KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._generations: list[Generation] = []

    def __len__(self) -> int:
        return sum(generation.count for generation in self._generations)

    def find(self, keys: bytes) -> dict[int, Receipt]:
        """The receipts of those of the concatenated 16-byte *keys* that are known, by their number."""
        first, second = split_keys(keys)
        known: dict[int, Receipt] = {}
        for generation in self._generations:
            for row in generation.candidates(first).tolist():
                receipt = generation.find(int(first[row]), int(second[row]))
                if receipt is not None:
                    known[row] = receipt
        return known

    def room(self) -> int:
        """How many new keys fit."""
        return self._keys_max - len(self)

    def add(self, keys: bytes, queues: Halves, offsets: Halves, crcs: list[int], now_ms: int) -> None:
        """Remember new keys; the caller has checked room and find. *queues* < 2**16, *offsets* < 2**48, both uint64."""
        number = now_ms // GENERATION_MS
        newest = self._generations[0] if self._generations else None
        if newest is None or newest.number < number or not newest.has_room(len(crcs)):
            self._generations.insert(0, Generation(number))
        first, second = split_keys(keys)
        receipts = (queues << np.uint64(_QUEUE_SHIFT) | offsets).tolist()
        self._generations[0].add(first.tolist(), second.tolist(), receipts, crcs)

    def expire(self, now_ms: int) -> None:
        """Drop generations whose youngest key is older than the window."""
        oldest_kept = (now_ms - IDEMPOTENCY_WINDOW_MS) // GENERATION_MS
        while self._generations and self._generations[-1].number < oldest_kept:
            self._generations.pop()

    def snapshot(self) -> list[Packed]:
        """Copies that another thread may encode."""
        return [generation.pack() for generation in self._generations]

    def restore(self, packed: Packed) -> None:
        """Put back one generation of a snapshot; called newest first."""
        self._generations.append(Generation.unpack(packed))
