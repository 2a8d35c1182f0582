r"""Rows as entries of a MessagePack batch, column by column: no Python object per row.

Each entry is a map. Lengths always take four bytes, so that a field's mark and length have one
width in every row, and Arrow joins the pieces:

    | 1 byte: map of n | idempotency_key and its 60 bytes | body, length | body | other fields |

The idempotency key is `task 32 | row 12 | fields 16` in hexadecimal: a digest that names the task's
part of the write, the number of the row in it, and a hash of the row's fields other than the body.
A repeated task whose rows come in another order has other keys, or other bodies, which the broker
refuses under a known key; the sender then repeats those rows with another first part.

Law: decoded, an entry equals what the SDK sends for the same message.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tern_spark.arrays import strings
from tern_spark.sink.columns import Rows

Octets = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

TASK_DIGITS, _ROW_DIGITS, _FIELDS_DIGITS = 32, 12, 16
_KEY_DIGITS = TASK_DIGITS + _ROW_DIGITS + _FIELDS_DIGITS
_KEY_MARK = b"\xafidempotency_key\xd9" + bytes((_KEY_DIGITS,))
_TASK_AT = 1 + len(_KEY_MARK)
_BODY_MARK = b"\xa4body\xc6"
_TEXT = b"\xdb"
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_NOTHING = b""
_NO_ROWS = np.zeros(0, np.int64)
# By the number of bytes that a text lacks to whole words of 8.
_PADDING = strings(["\0" * count for count in range(8)]).cast(pa.binary())


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """n entries, one behind the other in *data*; entry i is `data[ends[i] : ends[i + 1]]`.

    *rows*: the number of each entry's row in its task, for errors. *is_ordered*: some rows have a
    message group.
    """

    data: Octets
    ends: Ints
    rows: Ints
    is_ordered: bool

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def sizes(self) -> Ints:
        """The bytes of each entry."""
        sizes: Ints = np.diff(self.ends)
        return sizes

    def part(self, start: int, end: int) -> "Entries":
        """Return the entries *start* to *end* (exclusive), without a copy."""
        ends = self.ends[start : end + 1]
        return Entries(
            data=self.data[ends[0] : ends[-1]],
            ends=ends - ends[0],
            rows=self.rows[start:end],
            is_ordered=self.is_ordered,
        )

    def chosen(self, numbers: Ints) -> "Entries":
        """Return the entries with *numbers*, in that order."""
        taken = _as_binary(self.data, self.ends).take(pa.array(numbers))
        return _entries(taken, self.rows[numbers], is_ordered=self.is_ordered)

    def renamed(self, task: bytes, which: npt.NDArray[np.bool_]) -> "Entries":
        """Return the same entries with another first part of the idempotency keys of *which*."""
        data = self.data.copy()
        data[self.ends[:-1][which, None] + np.arange(_TASK_AT, _TASK_AT + TASK_DIGITS)] = np.frombuffer(task, np.uint8)
        return Entries(data=data, ends=self.ends, rows=self.rows, is_ordered=self.is_ordered)


def encode(rows: Rows, first_row: int, task: bytes) -> Entries:
    """Return *rows*, the first of which is the task's row *first_row*, as entries.

    *task*: TASK_DIGITS hexadecimal digits; b"" for entries without idempotency keys.
    """
    count = len(rows)
    numbers = np.arange(first_row, first_row + count)
    pieces = list(_fields(rows))
    fields: Octets = np.full(count, 1 + bool(task) + len(pieces), np.uint8)
    for piece in pieces:
        if piece.null_count:
            fields -= piece.is_null().to_numpy(zero_copy_only=False)
    others = _joined(*pieces) if pieces else None
    parts: list[Octets] = [(fields | np.uint8(0x80)).reshape(count, 1)]
    if task:
        parts += [_repeat(_KEY_MARK + task, count), _digits(numbers, _ROW_DIGITS)]
        parts.append(_digits(_hashes(others) if others is not None else np.zeros(count, np.uint64), _FIELDS_DIGITS))
    parts += [_repeat(_BODY_MARK, count), _length(pc.binary_length(rows.body))]
    head = _fixed(np.hstack(parts))
    whole = _joined(head, rows.body) if others is None else _joined(head, rows.body, others)
    return _entries(whole, numbers, is_ordered=rows.message_group is not None)


def _fields(rows: Rows) -> Iterator[Any]:
    """Yield the other fields that are there, as binary arrays with NULL where a row has none."""
    if rows.key is not None:
        yield _keys(rows.key)
    for name, column in (("tag", rows.tags), ("content_type", rows.content_type)):
        if column is not None:
            yield _labelled(_name(name) + _TEXT, column)
    if rows.properties is not None:
        yield _properties(rows.properties)
    if rows.message_group is not None:
        yield _labelled(_name("message_group") + _TEXT, rows.message_group)
    if rows.deliver_ms is not None:
        times = rows.deliver_ms.fill_null(0).to_numpy().astype(">i8").view(np.uint8).reshape(-1, 8)
        piece = _fixed(np.hstack([_repeat(_name("deliver_at") + b"\xd3", len(rows)), times]))
        yield pc.if_else(rows.deliver_ms.is_valid(), piece, None)


def _keys(column: Any) -> Any:
    words = pc.split_pattern(column, " ")
    flat = words.flatten()
    counts = pc.list_value_length(words).fill_null(0).to_numpy().astype(">u4").view(np.uint8).reshape(-1, 4)
    items = _lists(words, _labelled(_TEXT, flat))
    head = _fixed(np.hstack([_repeat(_name("keys") + b"\xdd", len(column)), counts]))
    return pc.if_else(column.is_valid(), _joined(head, items), None)


def _properties(column: Any) -> Any:
    items = _joined(_labelled(_TEXT, column.keys), _labelled(_TEXT, column.items))
    offsets = column.offsets
    sizes = np.diff(offsets.to_numpy())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, items), _NOTHING)
    counts = sizes.astype(">u4").view(np.uint8).reshape(-1, 4)
    head = _fixed(np.hstack([_repeat(_name("properties") + b"\xdf", len(column)), counts]))
    return pc.if_else(pa.array(sizes > 0), _joined(head, joined), None)


def _lists(words: Any, items: Any) -> Any:
    """Return *items*, one for each of the *words*, joined by row."""
    counts = pc.list_value_length(words).fill_null(0).to_numpy()
    offsets = pa.array(np.concatenate(([0], counts.cumsum())).astype(np.int32))
    return pc.binary_join(pa.ListArray.from_arrays(offsets, items), _NOTHING)


def _labelled(mark: bytes, column: Any) -> Any:
    """Return *mark*, the length in four bytes and the value of each row; NULL stays NULL."""
    binary = column.cast(pa.binary())
    sizes = pc.binary_length(binary).fill_null(0)
    head = _fixed(np.hstack([_repeat(mark, len(column)), _length(sizes)]))
    return pc.binary_join_element_wise(head, binary, _NOTHING, null_handling="emit_null")


def _name(field: str) -> bytes:
    return bytes((0xA0 | len(field),)) + field.encode()


def _length(sizes: Any) -> Octets:
    octets: Octets = sizes.to_numpy().astype(">u4").view(np.uint8).reshape(-1, 4)
    return octets


def _repeat(text: bytes, count: int) -> Octets:
    return np.broadcast_to(np.frombuffer(text, np.uint8), (count, len(text)))


def _digits(numbers: npt.NDArray[Any], count: int) -> Octets:
    """Return the last *count* hexadecimal digits of each number, shape (n, count)."""
    octets = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - count // 2 :]
    return _DIGITS[np.stack([octets >> 4, octets & 15], axis=2).reshape(len(numbers), count)]


def _hashes(fields: Any) -> npt.NDArray[np.uint64]:
    """Return a hash of each row of *fields* (binary): the sum of its size and of its words of 8
    bytes, each with a factor of its position.
    """
    sizes = pc.binary_length(fields).to_numpy().astype(np.uint64)
    padded = _entries(_joined(fields, _PADDING.take(pa.array(-sizes.view(np.int64) % 8))), _NO_ROWS, is_ordered=False)
    words = np.frombuffer(padded.data.tobytes(), "<u8")
    starts, counts = padded.ends[:-1] // 8, padded.sizes // 8
    places = np.arange(len(words)) - np.repeat(starts, counts)
    factors = _factors(int(counts.max(initial=0)) + 1)
    sums = np.zeros(len(words) + 1, np.uint64)
    np.cumsum((words ^ words >> np.uint64(29)) * factors[places + 1], out=sums[1:])
    hashes: npt.NDArray[np.uint64] = _mixed(sums[starts + counts] - sums[starts] + sizes * factors[0])
    return hashes


def _factors(count: int) -> npt.NDArray[np.uint64]:
    """Return *count* odd numbers without a pattern."""
    return _mixed(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    numbers = (numbers ^ numbers >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    return numbers ^ numbers >> np.uint64(27)


def _joined(*parts: Any) -> Any:
    """Return *parts* joined row by row; NULL is nothing."""
    return pc.binary_join_element_wise(*parts, _NOTHING, null_handling="replace", null_replacement=_NOTHING)


def _fixed(octets: Octets) -> Any:
    """Return a matrix of bytes as a binary array, a value for each row."""
    count, width = octets.shape
    return _as_binary(np.ascontiguousarray(octets).reshape(-1), np.arange(count + 1) * width)


def _as_binary(data: Octets, ends: Ints) -> Any:
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def _entries(values: Any, rows: Ints, *, is_ordered: bool) -> Entries:
    """Return a binary array without NULL as entries."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    octets = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.zeros(0, np.uint8)
    return Entries(data=octets, ends=ends - ends[0], rows=rows, is_ordered=is_ordered)
