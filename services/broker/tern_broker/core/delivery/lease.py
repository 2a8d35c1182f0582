"""Items that hold offsets of one queue for one group: a lease, a run of returned offsets, a death;
and their bitmaps.

Bit i of a bitmap is offset start + i. A bitmap is a Python integer: as wide as needed, and one
operation covers all of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]


@dataclass(slots=True)
class Lease:
    """A range of offsets held by one receiver until *deadline_ms*; offsets with a bit in *settled*
    are no longer held.

    *extended* has later (or earlier) deadlines of single offsets. *token*: 16 bytes that stand for
    the receive's attempt id, empty without one.
    """

    lease_id: int
    start: int
    count: int
    settled: int
    deadline_ms: int
    attempt: int
    extended: dict[int, int] = field(default_factory=dict)
    token: bytes = b""

    @property
    def is_done(self) -> bool:
        """Whether no message is left to settle."""
        return self.settled == (1 << self.count) - 1

    @property
    def unsettled(self) -> int:
        """Number of held messages."""
        return self.count - self.settled.bit_count()

    @property
    def first_held(self) -> int:
        """The first held offset: retention keeps the queue's rows from there on."""
        return self.start + first_clear_bit(self.settled)

    @property
    def first_deadline_ms(self) -> int:
        """Time at which the first held message becomes visible again."""
        if not self.extended:
            return self.deadline_ms
        return min(self.deadline_of(offset) for offset in self.offsets().tolist())

    def deadline_of(self, offset: int) -> int:
        """Return the deadline of *offset*."""
        return self.extended.get(offset, self.deadline_ms)

    def offsets(self) -> Offsets:
        """Return the held offsets, ascending."""
        return clear_bits(self.settled, self.count) + self.start

    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types."""
        extended = [[offset, deadline_ms] for offset, deadline_ms in self.extended.items()]
        head = (self.lease_id, self.start, self.count, pack_bits(self.settled), self.deadline_ms, self.attempt)
        return [*head, extended, self.token]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Lease":
        """Restore an instance from *packed*."""
        lease_id, start, count, bits, deadline_ms, attempt, extended, token = packed
        return cls(lease_id, start, count, unpack_bits(bits), deadline_ms, attempt, dict(extended), token)


@dataclass(slots=True)
class Run:
    """Returned offsets: unsettled ones (bit 0 in *settled*) may be leased again. *attempts* were
    made so far.

    The first offset is unsettled: records below the group's committed offset may be dropped.
    *visible_ms*: end of the rest. *nacked_by*: the lease whose holder nacked the messages, 0 for
    none; it identifies a repeated nack.
    """

    run_id: int
    start: int
    count: int
    settled: int
    attempts: int
    visible_ms: int = 0
    nacked_by: int = 0

    @property
    def waiting(self) -> int:
        """Number of messages that wait in the run."""
        return self.count - self.settled.bit_count()

    def offsets(self) -> Offsets:
        """Return the waiting offsets, ascending."""
        return clear_bits(self.settled, self.count) + self.start

    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types."""
        bits = pack_bits(self.settled)
        return [self.run_id, self.start, self.count, bits, self.attempts, self.visible_ms, self.nacked_by]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Run":
        """Restore an instance from *packed*."""
        run_id, start, count, bits, attempts, visible_ms, nacked_by = packed
        return cls(run_id, start, count, unpack_bits(bits), attempts, visible_ms, nacked_by)


class Cause(IntEnum):
    """The reason why a message is not delivered any more."""

    EXPIRED = 1  # its last lease expired without an ack
    NACKED = 2  # its last attempt was nacked
    REJECTED = 3  # a consumer rejected it


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a message: number of attempts, cause, and the consumer's reason (at most 1 KiB;
    mostly empty).
    """

    attempts: int
    cause: int
    reason: str = ""

    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types."""
        return [self.attempts, self.cause, self.reason]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Death":
        """Restore an instance from *packed*."""
        return cls(*packed)


def first_clear_bit(bits: int) -> int:
    """Return the number of the lowest 0 bit."""
    return (~bits & (bits + 1)).bit_length() - 1


def clear_bits(bits: int, count: int) -> Offsets:
    """Return the numbers of the 0 bits among the lowest *count*, ascending."""
    if not bits:
        return np.arange(count, dtype=np.int64)
    octets = np.frombuffer((~bits & ((1 << count) - 1)).to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(octets, bitorder="little"))


def held_by(holders: Iterable[Lease | Run]) -> Offsets:
    """Return the offsets held by all *holders*, in no order. Whole runs, the common case, are
    handled together.
    """
    whole: list[int] = []
    parts: list[Offsets] = []
    for holder in holders:
        if holder.settled:
            parts.append(holder.offsets())
        else:
            whole += (holder.start, holder.count)
    starts, counts = np.array(whole, np.int64).reshape(-1, 2).T
    ends = np.cumsum(counts)
    parts.append(np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(starts - (ends - counts), counts))
    return np.concatenate(parts)


def pack_bits(bits: int) -> bytes:
    """Return a bitmap as bytes: bitmaps are wider than MessagePack's integers."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def unpack_bits(data: bytes) -> int:
    """Return the bitmap of `pack_bits`."""
    return int.from_bytes(data, "little")
