"""Times of what a queue holds, whether its files have them or only copies of its messages are left.

Files that were made again from the log's beginning begin where the queue ended then. What a group has not read of before lies behind it as copies
(`MovedEntries`), without a row of times: such a message is as old as its record.
"""

from typing import TYPE_CHECKING

import numpy as np

from tern_store.errors import StoreError
from tern_wire.records.layout import AT_STORE_STAMP

if TYPE_CHECKING:
    from tern_store.store import Store

_STAMP_SIZE_BYTES = 8


def visible_at(store: "Store", topic_id: int, queue: int, offset: int) -> int:
    """From when on the message at *offset* was visible, in ms; StoreError when it is not kept. LogRot, DerivedDamage."""
    if store.queues.min(topic_id, queue) <= offset < store.queues.end(topic_id, queue):
        return store.queues.visible_at(topic_id, queue, offset)
    entries = store.read_queue(topic_id, queue, offset, 1)
    if not len(entries):
        raise StoreError(f"queue {topic_id}/{queue} has no offset {offset}")
    at = entries["position"].astype(np.int64) + AT_STORE_STAMP
    return int.from_bytes(store.log.read_records(at, np.array([_STAMP_SIZE_BYTES])), "big")


def offset_at(store: "Store", topic_id: int, queue: int, visible_ms: int, *, least: int, end: int) -> int:
    """The first offset of [*least*, *end*), the queue as its owner knows it, that was visible at *visible_ms* or later; *end* if none was.
    LogRot, DerivedDamage."""
    if least >= end:
        return end
    filed = store.queues.end(topic_id, queue) > 0
    first = min(max(least, store.queues.min(topic_id, queue)), end) if filed else end
    found = min(store.queues.offset_at(topic_id, queue, visible_ms), end) if first < end else end
    if found > first:
        return found
    # All in the files is young enough, so the first one may be before them.
    while least < first:
        middle = (least + first) // 2
        if visible_at(store, topic_id, queue, middle) < visible_ms:
            least = middle + 1
        else:
            first = middle
    return first
