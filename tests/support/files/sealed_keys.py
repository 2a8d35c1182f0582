"""Tables of idempotency keys as a state machine seals them, with keys of a test's choice."""

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.link.key_rows import KEY_ROWS, QUEUE_SHIFT, Halves, Receipt, split_keys


class SealedKeys:
    """A sealed table with these keys: 16 bytes each, the first half not zero."""

    def __init__(self, keys: dict[bytes, Receipt]) -> None:
        self.keys = keys

    def rows(self) -> npt.NDArray[Any]:
        """As SealedTable."""
        first, second = split_keys(b"".join(self.keys))
        rows = np.zeros(len(self.keys), KEY_ROWS)
        rows["first"], rows["second"] = first, second
        rows["receipt"] = [queue << QUEUE_SHIFT | offset for queue, offset, _ in self.keys.values()]
        rows["crc"] = [crc for _, _, crc in self.keys.values()]
        return rows

    def find_halves(self, first: Halves, second: Halves) -> dict[int, Receipt]:
        """As SealedTable."""
        names = [one.tobytes() + two.tobytes() for one, two in zip(first, second, strict=True)]
        return {number: self.keys[name] for number, name in enumerate(names) if name in self.keys}


def fresh_keys(rng: random.Random, count: int) -> dict[bytes, Receipt]:
    """Keys that collide more than honest ones: some share a first half, some a second half."""
    firsts = [rng.randbytes(7) + b"\1" for _ in range(max(1, count // 4))]
    seconds = [rng.randbytes(8) for _ in range(max(1, count // 4))]
    return {
        (rng.choice(firsts) if rng.random() < 0.6 else rng.randbytes(7) + b"\1")
        + (rng.choice(seconds) if rng.random() < 0.6 else rng.randbytes(8)): (
            rng.randrange(1 << 16),
            rng.randrange(1 << 48),
            rng.randrange(1 << 32),
        )
        for _ in range(count)
    }
