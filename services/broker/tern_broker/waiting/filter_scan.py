"""Filters of receives: compiled once, and applied to a bounded part of a queue at a time.

Law: one look costs at most LOOK_S and LOOK_SIZE_MAX_BYTES, or one page, since the entry that is
being built waits for it. The rest is read for the next entry. So a group that matches one message
in a million delays producers no longer than a group that matches all.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.picking import Look
from tern_store import Store
from tern_wire.filters import Filter, compile_accepted
from tern_wire.limits import MIB

LOOK_S = 0.004
LOOK_SIZE_MAX_BYTES = 4 * MIB
# Records that an SQL filter evaluates between two checks of the clock, some 3 us each; and their
# bytes.
SQL_PAGE_ENTRIES = 256
PAGE_SIZE_MAX_BYTES = 1 * MIB
# Filters in use at a time: usually one for each group. A proxy has checked each against the limits
# of clients.
compiled = lru_cache(maxsize=1_024)(compile_accepted)


def compiled_text(text: str) -> Filter:
    """Return the filter of a subscription's text: SQL after `sql:`, tags after `tags:` or without a
    prefix.
    """
    if text.startswith("sql:"):
        return compiled(None, text.removeprefix("sql:"))
    return compiled(text.removeprefix("tags:"), None)


def look_with(wanted: Filter, store: Store, monotonic: Callable[[], float]) -> Callable[[], Look] | None:
    """Return a function that begins a look with *wanted*; None if everything matches."""
    return None if wanted.is_all else partial(_begin, wanted, store, monotonic)


def _begin(wanted: Filter, store: Store, monotonic: Callable[[], float]) -> Look:
    until_s = monotonic() + LOOK_S
    size_left = LOOK_SIZE_MAX_BYTES
    is_first = True

    def look(entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        nonlocal size_left, is_first
        # At least one page: a node that waited for a core would otherwise answer that there is
        # nothing.
        is_over = monotonic() >= until_s or size_left <= 0
        if is_over and not is_first:
            return np.zeros(0, bool)
        is_first = False
        if not wanted.is_tag:
            entries = entries[:SQL_PAGE_ENTRIES]
        mask = wanted.preselect(entries)
        left = np.flatnonzero(mask)
        sizes = np.cumsum(entries["size"].astype(np.int64)[left])
        fitting = max(1, int(np.searchsorted(sizes, PAGE_SIZE_MAX_BYTES, side="right")))
        if fitting < len(left):
            mask, left = mask[: int(left[fitting])], left[:fitting]
        if len(left):
            chosen = entries[left]
            size = chosen["size"].astype(np.int64)
            data = store.log.read_records(chosen["position"].astype(np.int64), size)
            size_left -= len(data)
            mask[left] = wanted.matches(data, np.cumsum(size) - size)
        return mask

    return look
