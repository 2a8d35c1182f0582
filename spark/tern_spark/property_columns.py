r"""The property strings of a page as Arrow columns: message id, keys, tags, a map of the others.

    k \x01 v \x02 k \x01 v \x02 | k \x01 v \x02 ...     | is the edge between two records

Numpy splits strings of that form in UTF-8. Most pages have the same names in the same order in
every record, which a comparison of bytes shows; otherwise Arrow numbers the names. All other pages,
and those with the same name twice in one record, go through `decode_properties` record by record.

Law: the columns equal `decode_properties` of every string.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tern_spark.arrays import ints, ints_of, strings
from tern_spark.schema import COLUMNS
from tern_wire.records.columns import Octets, windows
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS, decode_properties

Ints = npt.NDArray[np.int64]
# Properties with a column of their own; all others stay in `properties`.
LIFTED = {"message_id": MESSAGE_ID, "keys": KEYS, "tags": TAGS}
# Above this size a table of records and names is not made; sorting finds names that occur twice.
_TABLE_SIZE_MAX_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The m pairs of n records.

    *counts*: pairs of each record, shape (n,). *names*: index into *known* for each pair, shape
    (m,). *pieces*: name, separator, value, separator of each pair, an Arrow array of 4 m strings.
    """

    counts: Ints
    names: Ints
    known: list[str]
    pieces: Any

    def values(self, pairs: Ints) -> Any:
        """Return the values of *pairs*, indexes of pairs, as a string array."""
        return self.pieces.take(ints(4 * pairs + 2))


def property_columns(raw: Any) -> dict[str, Any]:
    """Return the columns message_id, keys, tags and properties of the strings *raw*.

    *raw* is a binary array of shape (n,), and not a slice of another array.
    """
    pairs = _split(raw)
    return _one_by_one(raw) if pairs is None else _columns(pairs)


def _split(raw: Any) -> _Pairs | None:
    """Return the pairs; None unless every string has the form above and names nothing twice."""
    _, offsets, text = raw.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(raw) + 1]
    octets = np.frombuffer(text or b"", np.uint8)[: ends[-1]]
    if not len(octets):
        return None
    marks = np.flatnonzero((octets - np.uint8(1)) < 2)  # zero becomes 255
    kinds = octets[marks]
    if len(marks) % 2 or (kinds[::2] != 1).any() or (kinds[1::2] != 2).any():
        return None
    # Each string that is not empty has to end with a pair, so that none extends into the next.
    if (octets[ends[1:][np.diff(ends) > 0] - 1] != 2).any() or not _is_utf8(octets):
        return None
    counts = np.diff(np.searchsorted(marks[1::2], ends))
    edges = np.zeros(2 * len(marks) + 1, np.int32)
    edges[1::2] = marks
    edges[2::2] = marks + 1
    pieces = pa.Array.from_buffers(pa.string(), 2 * len(marks), [None, pa.py_buffer(edges), text])
    if _is_uniform(octets, edges, counts):
        known = pieces.slice(0, 4 * counts[0])[::4].to_pylist()
        names = np.tile(np.arange(len(known)), len(counts))
        is_twice = len(set(known)) < len(known)
    else:
        encoded = pieces.take(ints(np.arange(0, len(pieces), 4))).dictionary_encode()
        known, names = encoded.dictionary.to_pylist(), ints_of(encoded.indices)
        is_twice = _is_any_twice(
            np.repeat(np.arange(len(counts)), counts) * len(known) + names, len(counts) * len(known)
        )
    return None if is_twice else _Pairs(counts, names, known, pieces)


def _is_utf8(octets: Octets) -> bool:
    if octets.max() < 0x80:
        return True
    try:
        str(octets.data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_uniform(octets: Octets, edges: npt.NDArray[np.int32], counts: npt.NDArray[Any]) -> bool:
    """Whether all records have the same names in the same order."""
    count = int(counts[0])
    if not count or (counts != count).any():
        return False
    starts = edges[:-1:4].reshape(-1, count)
    sizes = edges[1::4].reshape(-1, count) - starts
    if (sizes != sizes[0]).any():
        return False
    for at, size in enumerate(sizes[0].tolist()):
        if size:
            names = windows(octets, np.dtype(f"V{size}"))[starts[:, at]].view(np.uint8).reshape(-1, size)
            if (names != names[0]).any():
                return False
    return True


def _is_any_twice(cells: Ints, table_size: int) -> bool:
    """Whether a number below *table_size* occurs twice in *cells*."""
    if table_size > _TABLE_SIZE_MAX_BYTES:
        return len(np.unique(cells)) < len(cells)
    seen = np.zeros(table_size, bool)
    seen[cells] = True
    return int(np.count_nonzero(seen)) < len(cells)


def _columns(pairs: _Pairs) -> dict[str, Any]:
    counts, records = pairs.counts, len(pairs.counts)
    owners = np.repeat(np.arange(records), counts)
    rest = np.ones(len(owners), bool)
    columns = {}
    for column, name in LIFTED.items():
        if name not in pairs.known:
            columns[column] = pa.nulls(records, pa.string())
            continue
        is_it = pairs.names == pairs.known.index(name)
        rest &= ~is_it
        found = np.flatnonzero(is_it)
        if len(found) == records:
            columns[column] = pairs.values(found)
        else:
            places = np.full(records, -1, np.int64)
            places[owners[found]] = np.arange(len(found))
            columns[column] = pairs.values(found).take(ints(places, places >= 0))
    ends = np.zeros(records + 1, np.int32)
    np.cumsum(np.bincount(owners[rest], minlength=records), out=ends[1:])
    names = strings(pairs.known).take(ints(pairs.names[rest]))
    values = pairs.values(np.flatnonzero(rest))
    return columns | {"properties": pa.MapArray.from_arrays(ints(ends), names, values)}


def _one_by_one(raw: Any) -> dict[str, Any]:
    """Return the columns by their definition.

    Our proxies write no record that needs it, but for those without any property.
    """
    decoded = [decode_properties(item) for item in raw.to_pylist()]
    columns = {name: pa.array([found.pop(key, None) for found in decoded], pa.string()) for name, key in LIFTED.items()}
    return columns | {"properties": pa.array([list(found.items()) for found in decoded], COLUMNS["properties"][1])}
