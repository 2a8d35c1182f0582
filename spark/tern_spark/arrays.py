"""Arrow arrays over the memory of NumPy arrays.

`pyarrow.array` does the same, but its first call imports pandas: 0.2 s of CPU and 38 MB in every
process of Spark, and a reader needs nothing of it.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]


def ints(values: npt.NDArray[Any], valid: Bools | None = None) -> Any:
    """Return integers, shape (n,), as an array of their own type; NULL where *valid* is False."""
    return typed(pa.from_numpy_dtype(values.dtype), values, valid)


def typed(kind: Any, values: npt.NDArray[Any], valid: Bools | None = None) -> Any:
    """Return *values*, shape (n,), as an array of the Arrow type *kind*, which has their width."""
    buffers = [None if valid is None else _bits(valid), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def bools(values: Bools) -> Any:
    """Return booleans, shape (n,), as an array."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def strings(texts: Sequence[str]) -> Any:
    """Return *texts* as an array of strings. One step of Python each: for few of them."""
    encoded = [text.encode() for text in texts]
    ends = np.fromiter(accumulate(map(len, encoded), initial=0), np.int32, len(encoded) + 1)
    return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


def repeated(text: str, count: int) -> Any:
    """Return an array of *count* times *text*."""
    encoded = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(encoded * count)])


def ints_of(array: Any) -> npt.NDArray[Any]:
    """Return the memory of an array of integers without NULL, shape (n,)."""
    kind = np.dtype(array.type.to_pandas_dtype())
    whole: npt.NDArray[Any] = np.frombuffer(array.buffers()[1], kind)
    return whole[array.offset : array.offset + len(array)]


def _bits(values: Bools) -> Any:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
