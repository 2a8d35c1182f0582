"""The task of `rollup`: counts, bytes and latencies of a queue range by tag and minute.

Only header columns are decoded, and a task returns sums, so that no row leaves it.
"""

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tern_jobs.archive.reading import broker_batches
from tern_jobs.reports.latencies import bucket_of
from tern_spark.options import ReadOptions
from tern_spark.ranges import QueueRange

COLUMNS = ("tags", "born_ts", "store_ts", "store_size")
_MINUTE_US = 60_000_000


class Sums(msgspec.Struct):
    """What messages of one topic, tag and minute add up to. *latencies*: messages by bucket."""

    messages: int = 0
    stored_bytes: int = 0
    latencies: Counter[int] = msgspec.field(default_factory=Counter)

    def add(self, other: "Sums") -> None:
        """Add *other* to these."""
        self.messages += other.messages
        self.stored_bytes += other.stored_bytes
        self.latencies.update(other.latencies)


# Topic, tag ("" for none), minutes since 1970.
Key = tuple[str, str, int]


def sum_range(found: QueueRange, *, options: ReadOptions) -> dict[Key, Sums]:
    """Return the sums of a queue range. The minute is that of the store time."""
    sums: dict[Key, Sums] = {}
    for batch in broker_batches(options, found.topic, found.queue, found.start, found.end, COLUMNS):
        for key, part in _batch_sums(batch, found.topic):
            sums.setdefault(key, Sums()).add(part)
    return sums


def _batch_sums(batch: Any, topic: str) -> list[tuple[Key, Sums]]:
    """Return the sums of one batch, by sorted runs of (tag, minute)."""
    tags = batch.column("tags").fill_null("").dictionary_encode()
    names: list[str] = tags.dictionary.to_pylist()
    tag_at = tags.indices.to_numpy().astype(np.int64)
    stored_us = batch.column("store_ts").cast(pa.int64()).to_numpy()
    born_us = batch.column("born_ts").cast(pa.int64()).to_numpy()
    minutes = stored_us // _MINUTE_US
    buckets = bucket_of((stored_us - born_us) // 1_000)
    sizes = batch.column("store_size").to_numpy().astype(np.int64)
    order = np.lexsort((minutes, tag_at))
    changes = np.flatnonzero((np.diff(tag_at[order]) != 0) | (np.diff(minutes[order]) != 0)) + 1
    found = []
    for rows in np.split(order, changes):
        values, counts = np.unique(buckets[rows], return_counts=True)
        key = (topic, names[int(tag_at[rows[0]])], int(minutes[rows[0]]))
        latencies = Counter(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        found.append((key, Sums(len(rows), int(sizes[rows].sum()), latencies)))
    return found
