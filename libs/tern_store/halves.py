"""Records of half messages: nobody finds them by key before their transaction is committed, everybody does afterwards.

A commit is applied long after the records were stored, so they are read again, once an entry, wherever they lie by then. Those before the
log's beginning are passed over: the entry is applied again (behind an older state, or the derived files are made again), and what of it is still
needed has a copy further on, which brings its keys itself.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from tern_store.store import Store

# Read in one go; a commit of many large messages must not need them all in memory.
STEP_SIZE_BYTES = 4 << 20


def index_committed(store: "Store", records: npt.NDArray[Any], topics: Mapping[int, bytes], now_ms: int) -> None:
    """The keys of *records* are found from now on, as of *now_ms*, the entry's time. LogRot if a record cannot be read.

    *records* have fields position, size and topic (its id); *topics*: topic id to name (UTF-8) of all of them.
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
