"""The checksum of rows: equal for the records of a broker and for the rows of a Parquet file.

Each column has a stream of lengths and one of bytes. Both are concatenations, so the result does
not depend on how the rows were divided into batches, pages or row groups.

Law: two sequences of rows have the same checksum exactly when every column of every row is equal
(but for collisions of SHA-256).
"""

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

# All columns of a topic but `topic` and `broker`, which the range names. The order is the format.
TEXTS = ("message_id", "keys", "tags", "body")
FIGURES = ("queue_id", "queue_offset", "born_ts", "store_ts", "reconsume_times", "store_size")
PROPERTIES = "properties"
_NULL = -1


class RowsChecksum:
    """Takes batches of rows, in order; hexdigest() at any time."""

    def __init__(self) -> None:
        names = [*TEXTS, *FIGURES, PROPERTIES, f"{PROPERTIES}.names", f"{PROPERTIES}.values"]
        self._lengths = {name: hashlib.sha256() for name in names}
        self._bytes = {name: hashlib.sha256() for name in names}
        self.rows = 0

    def add(self, batch: Any) -> None:
        """Add the rows of *batch*, a RecordBatch with all columns of a topic."""
        for name in TEXTS:
            self._add_texts(name, batch.column(name))
        for name in FIGURES:
            figures = batch.column(name).cast(pa.int64())
            present = np.asarray(figures.is_valid())
            self._lengths[name].update(present.astype(np.uint8).tobytes())
            self._bytes[name].update(figures.fill_null(0).to_numpy().astype("<i8").tobytes())
        self._add_properties(batch.column(PROPERTIES))
        self.rows += batch.num_rows

    def hexdigest(self) -> str:
        """Return the checksum of the rows so far."""
        whole = hashlib.sha256(self.rows.to_bytes(8, "little"))
        for name, lengths in self._lengths.items():
            whole.update(lengths.digest() + self._bytes[name].digest())
        return whole.hexdigest()

    def _add_texts(self, name: str, column: Any) -> None:
        column = column.cast(pa.large_binary())
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        lengths = np.diff(offsets).astype("<i8")
        if column.null_count:
            # Bytes under a NULL are none of the row's: rebuild the column without them.
            is_null = ~np.asarray(column.is_valid())
            column = column.drop_null()
            offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
            lengths[is_null] = _NULL
        self._lengths[name].update(lengths.tobytes())
        data = column.buffers()[2]
        if data is not None and len(offsets):
            self._bytes[name].update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])

    def _add_properties(self, column: Any) -> None:
        offsets = column.offsets.to_numpy()
        counts = np.diff(offsets).astype("<i8")
        present = np.asarray(column.is_valid())
        self._lengths[PROPERTIES].update(np.where(present, counts, _NULL).tobytes())
        first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        # A slice of a map keeps the whole map's keys and items.
        self._add_texts(f"{PROPERTIES}.names", column.keys[first:last])
        self._add_texts(f"{PROPERTIES}.values", column.items[first:last])
