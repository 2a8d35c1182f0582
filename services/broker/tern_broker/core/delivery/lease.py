"""What holds offsets of one queue for one group: a lease, a run of what came back, a death; and their bitmaps.

Bit i of a bitmap is offset start + i. A bitmap is a Python integer: as wide as it must be, and one operation for all of it.
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
    """A run of offsets held by one receiver until *deadline_ms*; bits of *settled* are held no longer.

    *extended* holds later (or earlier) deadlines of single offsets. *token*: 16 bytes that stand for the receive's attempt id,
    empty if it had none.
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
        """Whether nothing is left to settle."""
        return self.settled == (1 << self.count) - 1

    @property
    def unsettled(self) -> int:
        """How many messages it holds."""
        return self.count - self.settled.bit_count()

    @property
    def first_held(self) -> int:
        """The first offset that it holds: retention keeps the queue's rows from there on."""
        return self.start + first_clear_bit(self.settled)

    @property
    def first_deadline_ms(self) -> int:
        """When the first message that it holds becomes visible again."""
        if not self.extended:
            return self.deadline_ms
        return min(self.deadline_of(offset) for offset in self.offsets().tolist())

    def deadline_of(self, offset: int) -> int:
        """Until when it holds *offset*."""
        return self.extended.get(offset, self.deadline_ms)

    def offsets(self) -> Offsets:
        """What it holds, ascending."""
        return clear_bits(self.settled, self.count) + self.start

    def pack(self) -> list[Any]:
        """A frozen copy of MessagePack's types."""
        extended = [[offset, deadline_ms] for offset, deadline_ms in self.extended.items()]
        head = (self.lease_id, self.start, self.count, pack_bits(self.settled), self.deadline_ms, self.attempt)
        return [*head, extended, self.token]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Lease":
        """What was packed."""
        lease_id, start, count, bits, deadline_ms, attempt, extended, token = packed
        return cls(lease_id, start, count, unpack_bits(bits), deadline_ms, attempt, dict(extended), token)


@dataclass(slots=True)
class Run:
    """Offsets that came back: unsettled ones (bit 0 in *settled*) may be leased again. *attempts* were made so far.

    The first one is unsettled: nothing below the group's committed offset is needed any more. *visible_ms*: it rests until then.
    *nacked_by*: the lease whose holder gave it back, 0 if nobody did; so that a nack that is repeated is known.
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
        """How many messages wait in it."""
        return self.count - self.settled.bit_count()

    def offsets(self) -> Offsets:
        """What waits in it, ascending."""
        return clear_bits(self.settled, self.count) + self.start

    def pack(self) -> list[Any]:
        """A frozen copy of MessagePack's types."""
        bits = pack_bits(self.settled)
        return [self.run_id, self.start, self.count, bits, self.attempts, self.visible_ms, self.nacked_by]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Run":
        """What was packed."""
        run_id, start, count, bits, attempts, visible_ms, nacked_by = packed
        return cls(run_id, start, count, unpack_bits(bits), attempts, visible_ms, nacked_by)


class Cause(IntEnum):
    """Why a message is not delivered any more."""

    EXPIRED = 1  # its last lease ended without an ack
    NACKED = 2  # its last attempt was nacked
    REJECTED = 3  # a consumer said so


@dataclass(frozen=True, slots=True)
class Death:
    """How a message died: after how many attempts, why, and what the consumer said (at most 1 KiB; mostly nothing)."""

    attempts: int
    cause: int
    reason: str = ""

    def pack(self) -> list[Any]:
        """A frozen copy of MessagePack's types."""
        return [self.attempts, self.cause, self.reason]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Death":
        """What was packed."""
        return cls(*packed)


def first_clear_bit(bits: int) -> int:
    """The number of the lowest 0 bit."""
    return (~bits & (bits + 1)).bit_length() - 1


def clear_bits(bits: int, count: int) -> Offsets:
    """The numbers of the 0 bits among the lowest *count*, ascending."""
    if not bits:
        return np.arange(count, dtype=np.int64)
    octets = np.frombuffer((~bits & ((1 << count) - 1)).to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(octets, bitorder="little"))


def held_by(holders: Iterable[Lease | Run]) -> Offsets:
    """What all of *holders* hold, in no order. Whole runs, which most are, cost no step of their own."""
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
    """Bitmaps are wider than MessagePack's integers."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def unpack_bits(data: bytes) -> int:
    """What was packed."""
    return int.from_bytes(data, "little")
