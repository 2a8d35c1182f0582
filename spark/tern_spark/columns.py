"""Pages of records as Arrow RecordBatches, column by column: no Python object per message.

`tern_wire.records.columns` locates heads, bodies and properties. Bodies and property strings are
cut out of the page by Arrow, with one copy; `property_columns` splits the properties.

Law: the result equals `tern_wire.records.read.decode_record` of every record; a compressed body is
decompressed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tern_spark.arrays import bools, ints, repeated, strings, typed
from tern_spark.property_columns import property_columns
from tern_spark.schema import COLUMNS, IN_PROPERTIES, arrow_schema
from tern_wire.errors import LinkBodyMalformed, RecordMalformed
from tern_wire.extras import need_extra
from tern_wire.names import QueueName
from tern_wire.records.columns import RecordColumns, read_columns, read_heads
from tern_wire.records.compression import COMPRESSED, LIBRARIES, compression_of, decompress
from tern_wire.records.layout import HEAD_SIZE_BYTES, Bytes

Ints = npt.NDArray[np.int64]
# Half of what a binary array of Arrow can hold; a page of text unpacks to a tenth of it.
PLAIN_PAGE_SIZE_MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes of one queue in a page."""

    topic: str
    queue: QueueName
    size_bytes: int


def record_batch(page: Bytes, *, topic: str, queue: QueueName, names: Sequence[str] = tuple(COLUMNS)) -> Any:
    """Return the concatenated records of *page* as a RecordBatch of the columns *names*.

    Its shape is (records, columns). *topic* and *queue* are those of the read; a record may carry
    the name of the topic to which it was first sent. LinkBodyMalformed when the records do not fill
    the page or contradict themselves.
    """
    return records_batch(page, [Part(topic, queue, len(page))], names)


def records_batch(page: Bytes, parts: Sequence[Part], names: Sequence[str]) -> Any:
    """Return the records of several queues, one queue behind the other, as `record_batch` does.

    *parts* fill the page.
    """
    try:
        records = read_columns(page)
    except RecordMalformed as error:
        raise LinkBodyMalformed(reason=f"a record at {error.fields['position']}: {error.fields['reason']}") from error
    build = _of_heads(records.heads, parts, _rows_of(parts, records.starts, len(page)))
    build["body"] = partial(_bodies, page, records)
    if not IN_PROPERTIES.isdisjoint(names):
        found = property_columns(slices(page, records.property_starts, records.property_sizes))
        for name in IN_PROPERTIES:
            build[name] = partial(found.__getitem__, name)
    return pa.RecordBatch.from_arrays([build[name]() for name in names], schema=arrow_schema(names))


def _bodies(page: Bytes, records: RecordColumns) -> Any:
    """Return the plain bodies. A page without a compressed one is not looked at twice.

    LinkBodyMalformed for a body that cannot be decompressed within the limit of a message.
    """
    stored = slices(page, records.body_starts, records.heads["body_size"].astype(np.int64))
    sysflags = records.heads["sysflag"]
    (compressed,) = (sysflags & COMPRESSED).nonzero()
    if not len(compressed):
        return stored
    bodies = stored.to_pylist()
    size_bytes = len(page)
    for row in compressed.tolist():
        offset = int(records.heads["queue_offset"][row])
        bodies[row] = _plain(bodies[row], int(sysflags[row]), offset)
        size_bytes += len(bodies[row])
        if size_bytes > PLAIN_PAGE_SIZE_MAX_BYTES:
            reason = f"its bodies unpack to more than {PLAIN_PAGE_SIZE_MAX_BYTES} bytes, at offset {offset}: read smaller pages"
            raise LinkBodyMalformed(reason=reason)
    return pa.array(bodies, pa.binary())


def _plain(stored: bytes, sysflag: int, offset: int) -> bytes:
    try:
        compression = compression_of(sysflag)
        if libraries := LIBRARIES.get(compression):
            need_extra("ternmq-client[compression]", f"A body in {compression.name.lower()}", *libraries)
        return decompress(stored, compression)
    except RecordMalformed as error:
        raise LinkBodyMalformed(reason=f"the body at offset {offset}: {error.fields['reason']}") from error


def heads_batch(page: Bytes, parts: Sequence[Part], names: Sequence[str]) -> Any:
    """Return the heads of *page* (HEAD_ROWS each) as a RecordBatch of the columns *names*, all of
    HEAD_COLUMNS. LinkBodyMalformed when it has anything else.
    """
    heads = read_heads(page)
    starts = np.arange(len(heads)) * HEAD_SIZE_BYTES
    build = _of_heads(heads, parts, _rows_of(parts, starts, len(page)))
    return pa.RecordBatch.from_arrays([build[name]() for name in names], schema=arrow_schema(names))


def _rows_of(parts: Sequence[Part], starts: Ints, size_bytes: int) -> Ints:
    """Return the number of rows of each part. LinkBodyMalformed when a row lies in two parts."""
    ends = np.cumsum([part.size_bytes for part in parts])
    until = np.searchsorted(starts, ends)
    if not np.array_equal(np.append(starts, size_bytes)[until], ends):
        raise LinkBodyMalformed(reason="a record runs past the end of its page")
    return np.diff(until, prepend=0)


def _of_heads(heads: npt.NDArray[Any], parts: Sequence[Part], rows: Ints) -> dict[str, Callable[[], Any]]:
    """Return how to build each of HEAD_COLUMNS."""
    return {
        "topic": lambda: _repeat([part.topic for part in parts], rows),
        "queue_id": lambda: ints(np.repeat(np.array([part.queue.queue for part in parts], np.int32), rows)),
        "queue_offset": lambda: ints(heads["queue_offset"].astype(np.int64)),
        "born_ts": lambda: _times(heads["born_ms"]),
        "store_ts": lambda: _times(heads["stored_ms"]),
        "broker": lambda: _repeat([part.queue.broker_group for part in parts], rows),
        "reconsume_times": lambda: ints(heads["attempts"].astype(np.int32)),
        "store_size": lambda: ints(heads["size"].astype(np.int32)),
    }


def slices(page: Bytes, starts: Ints, sizes: Ints) -> Any:
    """Return the byte strings at *starts*, which ascend and do not overlap, as a binary array.

    An array over the page itself has every string, and between two of them the bytes that separate
    them; Arrow's filter copies every other value.
    """
    if not len(starts):
        return strings([]).cast(pa.binary())
    edges = np.empty(2 * len(starts), np.int32)
    edges[::2] = starts
    edges[1::2] = starts + sizes
    wanted = np.zeros(2 * len(starts) - 1, bool)
    wanted[::2] = True
    found = pa.Array.from_buffers(pa.binary(), len(wanted), [None, pa.py_buffer(edges), pa.py_buffer(page)])
    return found.filter(bools(wanted))


def _times(times_ms: npt.NDArray[Any]) -> Any:
    return typed(pa.timestamp("us", tz="UTC"), times_ms.astype(np.int64) * 1_000)


def _repeat(texts: Sequence[str], rows: Ints) -> Any:
    if len(set(texts)) == 1:
        return repeated(texts[0], int(rows.sum()))
    return strings(texts).take(ints(np.repeat(np.arange(len(texts)), rows)))
