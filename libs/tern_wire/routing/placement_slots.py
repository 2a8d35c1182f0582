"""Slots of many keys and message groups at once (placement.py), for brokers.

A module of its own, because clients work without numpy.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tern_wire.routing.placement import SLOTS, owners

_MASK = SLOTS - 1
Slots = npt.NDArray[np.intp]


@lru_cache(maxsize=1_024)
def owned_by(groups: tuple[str, ...], name: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the slots that *name* owns, shape (1024,)."""
    return np.array([owner == name for owner in owners(groups)])


def slots_of_keys(keys: npt.NDArray[np.void]) -> Slots:
    """Return the slots of key hashes, shape (n,), dtype V16 (see `slot_of_key`)."""
    return (np.ascontiguousarray(keys).view("<u2").reshape(-1, 8)[:, 0] & _MASK).astype(np.intp)


def slots_of_message_groups(message_groups: npt.NDArray[np.uint64]) -> Slots:
    """Return the slots of message groups' hashes, shape (n,) (see `slot_of_message_group`)."""
    return (message_groups >> np.uint64(32) & np.uint64(_MASK)).astype(np.intp)
