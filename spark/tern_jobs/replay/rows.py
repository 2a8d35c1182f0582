"""Rows of a slice, those that were chosen, as they are sent again.

Body, key, tag, content type, message group and the producer's properties stay. Id, times and queue
are those of the new message; two properties may tell the old ones. A delay is over, and a
transaction was committed: neither is sent again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.reading import broker_batches, file_batches
from tern_jobs.replay.plans import Choice
from tern_jobs.replay.slices import Slice
from tern_spark.options import ReadOptions
from tern_wire.filters import Filter, compile_filter
from tern_wire.records.properties import KEYS, MESSAGE_GROUP, MESSAGE_ID, TAGS

# Topic, queue and offset of the message that was replayed, and when it was stored (ms since 1970).
ORIGIN, ORIGIN_STORED_MS = "replay_origin", "replay_stored_ms"
_ORIGIN_NAMES = pa.array([ORIGIN, ORIGIN_STORED_MS])
# Columns of the properties that are not in the map.
_LIFTED = {KEYS: "keys", TAGS: "tags", MESSAGE_ID: "message_id"}


def slice_batches(found: Slice, archive: str, options: ReadOptions, created_ms: Mapping[str, int]) -> Iterator[Any]:
    """Yield the rows of a slice, from the archive's files or from the broker. *created_ms*: when
    topics were made, for those of a broker.
    """
    if not archive:
        yield from broker_batches(
            options, found.topic, found.queue, found.start, found.end, created_ms=created_ms[found.topic]
        )
        return
    folder = ArchiveFolder(archive)
    for file in found.files:
        yield from file_batches(folder, file, found.start, found.end)


class Choosing:
    """Picks rows by store time and filter."""

    def __init__(self, choice: Choice) -> None:
        given = dict(choice.selection)
        self._filter: Filter = compile_filter(given.get("tags"), given.get("sql"))
        self._since_ms, self._until_ms = choice.since_ms, choice.until_ms

    def chosen(self, batch: Any) -> Any:
        """Return the rows of *batch* that are wanted."""
        mask: np.ndarray[Any, Any] | None = None
        if self._since_ms or self._until_ms:
            times_ms = batch.column("store_ts").cast(pa.int64()).to_numpy() // 1_000
            mask = times_ms >= self._since_ms
            if self._until_ms:
                mask &= times_ms < self._until_ms
        if not self._filter.is_all:
            columns = [self._values(batch, name) for name in self._filter.names]
            holds = self._filter.holds
            found = np.fromiter((holds(list(row)) for row in zip(*columns, strict=True)), np.bool_, batch.num_rows)
            mask = found if mask is None else mask & found
        return batch if mask is None or mask.all() else batch.filter(pa.array(mask))

    def _values(self, batch: Any, name: str) -> list[str | None]:
        if name in _LIFTED:
            values: list[str | None] = batch.column(_LIFTED[name]).to_pylist()
        else:
            values = pc.map_lookup(batch.column("properties"), name, "last").to_pylist()
        return values


def messages_of(batch: Any, *, tells_origin: bool) -> Any:
    """Return *batch* with the columns that `tern_spark.sink` writes."""
    properties = batch.column("properties")
    columns = {
        "body": batch.column("body"),
        "keys": batch.column("keys"),
        "tags": batch.column("tags"),
        "message_group": pc.map_lookup(properties, MESSAGE_GROUP, "last"),
        "properties": _with_origin(batch) if tells_origin else properties,
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _with_origin(batch: Any) -> Any:
    """Return the properties of *batch* and, behind them, where each row was. What an earlier replay
    told is left out.
    """
    keys, items, counts = _kept(batch.column("properties"))
    count = batch.num_rows
    ends = np.concatenate(([0], (counts + 2).cumsum()))
    places = np.empty(ends[-1], np.int64)
    is_new = np.zeros(ends[-1], bool)
    is_new[ends[1:] - 1] = is_new[ends[1:] - 2] = True
    places[~is_new] = np.arange(len(keys))
    places[ends[1:] - 2] = len(keys) + np.arange(count)
    places[ends[1:] - 1] = len(keys) + count + np.arange(count)
    names = pa.concat_arrays([keys, _ORIGIN_NAMES.take(pa.array(np.repeat([0, 1], count)))])
    stored_ms = batch.column("store_ts").cast(pa.int64()).to_numpy() // 1_000
    values = pa.concat_arrays([items, _origins(batch), pa.array(stored_ms).cast(pa.string())])
    taken = pa.array(places)
    return pa.MapArray.from_arrays(pa.array(ends.astype(np.int32)), names.take(taken), values.take(taken))


def without_origin(column: Any) -> Any:
    """Return a column of properties without those of a replay."""
    names, values, counts = _kept(column)
    return pa.MapArray.from_arrays(pa.array(np.concatenate(([0], counts.cumsum())).astype(np.int32)), names, values)


def _kept(column: Any) -> tuple[Any, Any, Any]:
    """Return names, values and the number of pairs of each row, without those of a replay."""
    column = column.cast(pa.map_(pa.string(), pa.string()))
    ends = column.offsets.to_numpy()
    names, values = column.keys[ends[0] : ends[-1]], column.items[ends[0] : ends[-1]]
    counts = np.diff(ends).astype(np.int64)
    is_old = pc.is_in(names, value_set=_ORIGIN_NAMES)
    if pc.any(is_old).as_py() or column.null_count:
        rows = np.repeat(np.arange(len(counts)), counts)
        is_kept = ~is_old.to_numpy(zero_copy_only=False)
        is_kept &= column.is_valid().to_numpy(zero_copy_only=False)[rows]
        counts = np.bincount(rows[is_kept], minlength=len(counts))
        names, values = names.filter(pa.array(is_kept)), values.filter(pa.array(is_kept))
    return names, values, counts


def _origins(batch: Any) -> Any:
    """Return `orders/broker-a:3/17` for each row."""
    parts = ("broker", "queue_id", "queue_offset")
    broker, queue, offset = (batch.column(name).cast(pa.string()) for name in parts)
    where = pc.binary_join_element_wise(broker, queue, ":")
    return pc.binary_join_element_wise(batch.column("topic").cast(pa.string()), where, offset, "/")
