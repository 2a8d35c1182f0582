"""What the messages of an archive say, wherever they lie: for the proof that a copy has the same.

Compared are body, keys, tag, content type, message group and the producer's properties. Id, times,
queue and offset of a copy are its own, and so are the properties of a replay.

Law: two archives have the same messages, each equally often, exactly when rows and sums are equal
(but for collisions of SHA-256).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import ArchivedRange
from tern_jobs.archive.reading import file_batches
from tern_jobs.replay.rows import messages_of, without_origin
from tern_spark.sink.columns import Rows, rows_of
from tern_spark.sink.entries import encode

_WORDS = 4
_WORD_MASK = (1 << 64) - 1


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The number of messages, and the sums of the four words of their SHA-256, modulo 2**64."""

    rows: int = 0
    sums: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __add__(self, other: "Contents") -> "Contents":
        """Return the contents of both."""
        one, two, three, four = ((a + b) & _WORD_MASK for a, b in zip(self.sums, other.sums, strict=True))
        return Contents(rows=self.rows + other.rows, sums=(one, two, three, four))

    def hexdigest(self) -> str:
        """Return the sums as text."""
        return "".join(f"{word:016x}" for word in self.sums)


def total(found: Iterable[Contents]) -> Contents:
    """Return the contents of all of them."""
    return sum(found, start=Contents())


def contents_of(found: ArchivedRange, *, uri: str) -> Contents:
    """Return the contents of one file of an archive."""
    made = Contents()
    if found.file:
        for batch in file_batches(ArchiveFolder(uri), found.file):
            made += batch_contents(batch)
    return made


def batch_contents(batch: Any) -> Contents:
    """Return the contents of a RecordBatch with the columns of a topic."""
    rows = _canonical(rows_of(messages_of(batch, tells_origin=False), 0))
    entries = encode(rows, 0, b"")
    data, ends = memoryview(entries.data.data), entries.ends.tolist()
    digests = b"".join(hashlib.sha256(data[at:end]).digest() for at, end in pairwise(ends))
    words: npt.NDArray[np.uint64] = np.frombuffer(digests, "<u8").reshape(-1, _WORDS)
    one, two, three, four = words.sum(axis=0, dtype=np.uint64).tolist()
    return Contents(rows=len(rows), sums=(one, two, three, four))


def _canonical(rows: Rows) -> Rows:
    """Return *rows* with the producer's properties of each in the order of their names."""
    if rows.properties is None:
        return rows
    properties = without_origin(rows.properties)
    ends = properties.offsets.to_numpy()
    names, values = properties.keys[ends[0] : ends[-1]], properties.items[ends[0] : ends[-1]]
    numbers = np.repeat(np.arange(len(properties)), np.diff(ends))
    order = pc.sort_indices(
        pa.table({"row": numbers, "name": names}), sort_keys=[("row", "ascending"), ("name", "ascending")]
    )
    offsets = pa.array(ends - ends[0])
    return replace(rows, properties=pa.MapArray.from_arrays(offsets, names.take(order), values.take(order)))
