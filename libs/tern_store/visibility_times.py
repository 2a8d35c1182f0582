"""Visibility times of queued messages, from the queue's files or from copies of the messages.

Files that were made again from the log's beginning begin at the queue's end of that time. Messages
before it that a group has not read remain as copies (`MovedEntries`) without a row of times: the
age of such a message is that of its record.
"""

from typing import TYPE_CHECKING

import numpy as np

from tern_store.errors import StoreError
from tern_wire.records.layout import AT_STORE_STAMP

if TYPE_CHECKING:
    from tern_store.store import Store

_STAMP_SIZE_BYTES = 8


def visible_at(store: "Store", topic_id: int, queue: int, offset: int) -> int:
    """Time in ms at which the message at *offset* became visible.
    StoreError if it is not kept; LogRot, DerivedDamage.
    """
    if store.queues.min(topic_id, queue) <= offset < store.queues.end(topic_id, queue):
        return store.queues.visible_at(topic_id, queue, offset)
    entries = store.read_queue(topic_id, queue, offset, 1)
    if not len(entries):
        raise StoreError(f"queue {topic_id}/{queue} has no offset {offset}")
    at = entries["position"].astype(np.int64) + AT_STORE_STAMP
    return int.from_bytes(store.log.read_records(at, np.array([_STAMP_SIZE_BYTES])), "big")


def offset_at(store: "Store", topic_id: int, queue: int, visible_ms: int, *, least: int, end: int) -> int:
    """First offset of [*least*, *end*) that became visible at *visible_ms* or later; *end* if none
    did.
    The caller gives the bounds of the queue. LogRot, DerivedDamage.
    """
    if least >= end:
        return end
    filed = store.queues.end(topic_id, queue) > 0
    first = min(max(least, store.queues.min(topic_id, queue)), end) if filed else end
    found = min(store.queues.offset_at(topic_id, queue, visible_ms), end) if first < end else end
    if found > first:
        return found
    # Every message in the files is young enough, so the first one may lie before the files.
    while least < first:
        middle = (least + first) // 2
        if visible_at(store, topic_id, queue, middle) < visible_ms:
            least = middle + 1
        else:
            first = middle
    return first
