"""Pages of records as Arrow RecordBatches, column by column: no Python object per message.

`tern_wire.records.columns` locates heads, bodies and properties. Bodies and property strings become
Arrow `binary_view` arrays that point into the page, and Arrow copies them out in C++. Arrow's
kernels split the properties; only a page with invalid UTF-8, or with the same name twice in one
record, goes through `decode_properties` message by message.

Law: the result equals `tern_wire.records.read.decode_record` of every record.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tern_spark.schema import COLUMNS, IN_PROPERTIES, arrow_schema
from tern_wire.errors import LinkBodyMalformed, RecordMalformed
from tern_wire.names import QueueName
from tern_wire.records.columns import read_columns
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS, decode_properties

Ints = npt.NDArray[np.int64]

# One row of a binary_view array: length and, for up to 12 bytes, the value itself; else 4 bytes of
# the value, buffer and offset.
_VIEW = np.dtype({"names": ["size", "inline"], "formats": ["<i4", "V12"], "itemsize": 16})
_VIEW_FAR = np.dtype({"names": ["buffer", "at"], "formats": ["<i4", "<i4"], "offsets": [8, 12], "itemsize": 16})
_INLINE_SIZE_BYTES = 12
# Properties with a column of their own; all others stay in `properties`.
_LIFTED = {"message_id": MESSAGE_ID, "keys": KEYS, "tags": TAGS}


def record_batch(page: bytes, *, topic: str, queue: QueueName, names: Sequence[str] = tuple(COLUMNS)) -> Any:
    """Return the concatenated records of *page* as a RecordBatch of the columns *names*.

    Its shape is (records, columns). *topic* and *queue* are those of the read; a record may carry
    the name of the topic to which it was first sent. LinkBodyMalformed when the records do not fill
    the page or contradict themselves.
    """
    try:
        records = read_columns(page)
    except RecordMalformed as error:
        raise LinkBodyMalformed(reason=f"a record at {error.fields['position']}: {error.fields['reason']}") from error
    heads, count = records.heads, len(records)
    build: dict[str, Callable[[], Any]] = {
        "topic": lambda: _repeat(topic, count),
        "queue_id": lambda: pa.array(np.full(count, queue.queue, np.int32)),
        "queue_offset": lambda: pa.array(heads["queue_offset"].astype(np.int64)),
        "body": lambda: _binary(page, records.body_starts, heads["body_size"].astype(np.int64)),
        "born_ts": lambda: _times(heads["born_ms"]),
        "store_ts": lambda: _times(heads["stored_ms"]),
        "broker": lambda: _repeat(queue.broker_group, count),
        "reconsume_times": lambda: pa.array(heads["attempts"].astype(np.int32)),
        "store_size": lambda: pa.array(heads["size"].astype(np.int32)),
    }
    if not IN_PROPERTIES.isdisjoint(names):
        found = _properties(_binary(page, records.property_starts, records.property_sizes))
        for name in IN_PROPERTIES:
            build[name] = partial(found.__getitem__, name)
    return pa.RecordBatch.from_arrays([build[name]() for name in names], schema=arrow_schema(names))


def _binary(page: bytes, starts: Ints, sizes: Ints) -> Any:
    """Return the byte strings at *starts* as an Arrow binary array."""
    views = np.zeros(len(starts), _VIEW)
    views["size"] = sizes
    # Twelve bytes from every start, with zeros beyond the value: right for short values, and a
    # 4-byte prefix for long ones.
    padded = np.frombuffer(page + bytes(_INLINE_SIZE_BYTES), np.uint8)
    columns = np.arange(_INLINE_SIZE_BYTES)
    inline = padded[starts[:, None] + columns]
    inline[columns >= sizes[:, None]] = 0
    views["inline"] = inline.view("V12").reshape(-1)
    far = sizes > _INLINE_SIZE_BYTES
    pointers = views.view(_VIEW_FAR)
    pointers["buffer"][far] = 0
    pointers["at"][far] = starts[far]
    buffers = [None, pa.py_buffer(views), pa.py_buffer(page)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers).cast(pa.binary())


def _properties(raw: Any) -> dict[str, Any]:
    """Return the four columns of the property strings *raw* (binary, shape (n,))."""
    try:
        items = pc.split_pattern(raw.cast(pa.string()), "\x02")
    except pa.ArrowInvalid:  # not UTF-8
        return _properties_one_by_one(raw)
    # One row per `name\x01value`. Pieces without a separator, such as the empty one behind the last
    # \x02, are no properties.
    flat = items.values
    is_pair = pc.match_substring(flat, "\x01").to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(raw)), np.diff(items.offsets.to_numpy()))[is_pair]
    halves = pc.split_pattern(flat.filter(pa.array(is_pair)), "\x01", max_splits=1).values
    odd = np.arange(0, 2 * len(rows), 2)
    keys = halves.take(pa.array(odd)).dictionary_encode()
    values = halves.take(pa.array(odd + 1))
    key_at = keys.indices.to_numpy()
    known: list[str] = keys.dictionary.to_pylist()
    seen = np.zeros(len(raw) * max(len(known), 1), bool)
    seen[rows * len(known) + key_at] = True
    if int(seen.sum()) != len(rows):  # a name twice in one record
        return _properties_one_by_one(raw)

    lifted = {name: key for name, key in _LIFTED.items() if key in known}
    columns = {name: pa.nulls(len(raw), pa.string()) for name in _LIFTED}
    rest = np.ones(len(rows), bool)
    for name, key in lifted.items():
        at = np.flatnonzero(key_at == known.index(key))
        rest[at] = False
        where = np.full(len(raw), -1, np.int64)
        where[rows[at]] = at
        columns[name] = values.take(pa.array(where, mask=where < 0))
    ends = np.cumsum(np.bincount(rows[rest], minlength=len(raw)))
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    kept = pa.array(rest)
    names = keys.dictionary.take(keys.indices.filter(kept))
    return columns | {"properties": pa.MapArray.from_arrays(pa.array(offsets), names, values.filter(kept))}


def _properties_one_by_one(raw: Any) -> dict[str, Any]:
    """Return the columns of _properties, by the definition itself.

    For records that our proxies have not written.
    """
    decoded = [decode_properties(item) for item in raw.to_pylist()]
    columns = {
        name: pa.array([found.pop(key, None) for found in decoded], pa.string()) for name, key in _LIFTED.items()
    }
    return columns | {"properties": pa.array([list(found.items()) for found in decoded], COLUMNS["properties"][1])}


def _times(times_ms: npt.NDArray[Any]) -> Any:
    return pa.array(times_ms.astype(np.int64) * 1_000).cast(pa.timestamp("us", tz="UTC"))


def _repeat(text: str, count: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.string()), count)
