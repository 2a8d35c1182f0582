"""Idempotency keys: a bounded, replicated table from key hash to the first send's queue, offset and body CRC.

Keys live in generations of two minutes; a generation is dropped whole when the youngest key in it could be older than the
window. A full table refuses new keys: forgetting one early would break the promise that a repeat is stored once.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tern_wire.limits import IDEMPOTENCY_KEYS_MAX, IDEMPOTENCY_WINDOW_MS

GENERATION_MS = 120_000
assert IDEMPOTENCY_WINDOW_MS % GENERATION_MS == 0

_QUEUE_SHIFT, _CRC_SHIFT = 48, 64
_OFFSET_MASK, _QUEUE_MASK = (1 << 48) - 1, 0xFFFF


def pack_receipt(queue: int, offset: int, crc: int) -> int:
    """One integer instead of a tuple: a third of the memory. *offset* < 2**48, *queue* < 2**16."""
    return crc << _CRC_SHIFT | queue << _QUEUE_SHIFT | offset


def unpack_receipt(value: int) -> tuple[int, int, int]:
    """(queue, offset, crc) of a packed receipt."""
    return value >> _QUEUE_SHIFT & _QUEUE_MASK, value & _OFFSET_MASK, value >> _CRC_SHIFT


@dataclass(slots=True)
class Generation:
    """Keys first seen within one stretch of GENERATION_MS; *number* is time // GENERATION_MS."""

    number: int
    receipts: dict[bytes, int] = field(default_factory=dict)


class KeyTable:
    """Owner: the state machine. Newest generation first."""

    def __init__(self, keys_max: int = IDEMPOTENCY_KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._generations: list[Generation] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, key: bytes) -> int | None:
        """The packed receipt of the first send with *key*, or None."""
        for generation in self._generations:
            receipt = generation.receipts.get(key)
            if receipt is not None:
                return receipt
        return None

    def has_room(self, keys: int) -> bool:
        """Whether *keys* more fit."""
        return self._count + keys <= self._keys_max

    def add(self, pairs: Iterable[tuple[bytes, int]], now_ms: int) -> None:
        """Remember new keys; the caller has checked has_room and find."""
        number = now_ms // GENERATION_MS
        if not self._generations or self._generations[0].number < number:
            self._generations.insert(0, Generation(number))
        newest = self._generations[0].receipts
        before = len(newest)
        newest.update(pairs)
        self._count += len(newest) - before

    def expire(self, now_ms: int) -> None:
        """Drop generations whose youngest key is older than the window."""
        oldest_kept = (now_ms - IDEMPOTENCY_WINDOW_MS) // GENERATION_MS
        while self._generations and self._generations[-1].number < oldest_kept:
            self._count -= len(self._generations.pop().receipts)

    def snapshot(self) -> list[tuple[int, dict[bytes, int]]]:
        """Copies that another thread may encode: shallow, so cheap."""
        return [(generation.number, dict(generation.receipts)) for generation in self._generations]

    def restore(self, number: int, pairs: Iterator[tuple[bytes, int]]) -> None:
        """Put back one generation of a snapshot; called newest first."""
        generation = Generation(number, dict(pairs))
        self._generations.append(generation)
        self._count += len(generation.receipts)
