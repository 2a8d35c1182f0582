"""Filters of receives: compiled once, and asked for a bounded part of a queue at a time.

Law: one look costs at most LOOK_S and LOOK_SIZE_MAX_BYTES, or one page, and the entry that is being built waits for it; what is left is looked at for the
next entry. So a group that wants one message in a million keeps producers waiting no longer than one that wants them all.
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
# Records that an SQL filter evaluates before it looks at the clock again, some 3 us each; and their bytes.
SQL_PAGE_ENTRIES = 256
PAGE_SIZE_MAX_BYTES = 1 * MIB
# Filters in use at a time: a group has one, mostly. A proxy has held each to what a client may ask for.
compiled = lru_cache(maxsize=1_024)(compile_accepted)


def compiled_text(text: str) -> Filter:
    """The filter of a subscription as members say it: SQL behind `sql:`, tags behind `tags:` or plain."""
    if text.startswith("sql:"):
        return compiled(None, text.removeprefix("sql:"))
    return compiled(text.removeprefix("tags:"), None)


def look_with(wanted: Filter, store: Store, monotonic: Callable[[], float]) -> Callable[[], Look] | None:
    """What begins a look with *wanted*; None when everything is."""
    return None if wanted.is_all else partial(_begin, wanted, store, monotonic)


def _begin(wanted: Filter, store: Store, monotonic: Callable[[], float]) -> Look:
    until_s = monotonic() + LOOK_S
    size_left = LOOK_SIZE_MAX_BYTES
    is_first = True

    def look(entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        nonlocal size_left, is_first
        # One page at least: a node that had to wait for a core since would otherwise answer that there is nothing.
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
