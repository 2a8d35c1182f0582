"""Keys of half messages: indexed when their transaction commits, not before.

A commit is applied long after its records were stored, so the records are read again, once per
entry, from their present place. Records before the log's beginning are skipped: the entry is then
being applied again (behind an older state, or to make the derived files again), and records that
are still needed have a later copy, which indexes its own keys.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tern_store.store import Store

# Bytes read at once: a commit of many large messages must not fill the memory.
STEP_SIZE_BYTES = 4 << 20


def index_committed(store: "Store", records: npt.NDArray[Any], topics: Mapping[int, bytes], now_ms: int) -> None:
    """Index the keys of *records* at *now_ms*, the entry's time. LogRot if a record is unreadable.
    *records* have the fields position, size and topic (its id); *topics*: id to name (UTF-8) of
    every topic in *records*.
    """
    records = records[records["position"] >= store.log.start.position]
    records = records[np.lexsort((records["position"], records["topic"]))]
    at = 0
    while at < len(records):
        same = int(np.searchsorted(records["topic"], records["topic"][at], side="right"))
        total = np.cumsum(records["size"][at:same].astype(np.int64))
        end = at + max(1, int(np.searchsorted(total, STEP_SIZE_BYTES, side="right")))
        positions, sizes = (records[name][at:end].astype(np.int64) for name in ("position", "size"))
        data = store.log.read_records(positions, sizes)
        starts = np.cumsum(sizes) - sizes
        store.keys.add(data, starts, positions, now_ms, topic=topics[int(records["topic"][at])])
        at = end
