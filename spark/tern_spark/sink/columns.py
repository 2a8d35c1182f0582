"""The columns that a write takes, checked in the driver, and their values as Arrow arrays.

| column        | type                | content                                                   |
|---------------|---------------------|-----------------------------------------------------------|
| body, value   | binary or string    | the message; one of the two, never NULL                   |
| key, keys     | string              | a key, or several separated by blanks                     |
| tags          | string              | the one tag                                               |
| properties    | map<string,string>  | the properties; one with a value of NULL is left out      |
| message_group | string              | rows of one group are delivered in their order            |
| deliver_at    | timestamp or bigint | delivery time; a bigint is in ms since 1970               |
| topic         | string              | the topic; NULL means the option `topic`                  |

NULL means none. Of `properties` that were read from a topic, the content type is passed on, and
the other names that TernMQ writes itself are left out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tern_spark.arrays import strings
from tern_wire.records.properties import CONTENT_TYPE, RESERVED_PROPERTIES

# Name of a column -> the field it fills, and the Spark types it may have.
WRITTEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "body": ("body", ("binary", "string")),
    "value": ("body", ("binary", "string")),
    "key": ("key", ("string",)),
    "keys": ("key", ("string",)),
    "tags": ("tags", ("string",)),
    "properties": ("properties", ("map<string,string>",)),
    "message_group": ("message_group", ("string",)),
    "deliver_at": ("deliver_at", ("timestamp", "bigint")),
    "topic": ("topic", ("string",)),
}
_RESERVED = strings(sorted(RESERVED_PROPERTIES))


class ColumnError(ValueError):
    """A column or a value of it cannot be written; the text has its name and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of a RecordBatch as arrays of one length, None for a column that is not there.

    *body*: binary, no NULL; *properties*: maps without NULL, whole (no slice); *deliver_ms*: int64;
    the others: string, not empty.
    """

    body: Any
    key: Any = None
    tags: Any = None
    properties: Any = None
    content_type: Any = None
    message_group: Any = None
    deliver_ms: Any = None
    topic: Any = None

    def __len__(self) -> int:
        return len(self.body)


def check_written(columns: Iterable[tuple[str, str]], topic: str) -> None:
    """Raise ColumnError for the first of the (name, Spark type) pairs that a write does not take,
    and when a needed one is missing. *topic*: the option.
    """
    fields: dict[str, str] = {}
    for name, kind in columns:
        known = WRITTEN.get(name)
        if known is None:
            near = get_close_matches(name, WRITTEN, n=1, cutoff=0.0)[0]
            raise ColumnError(
                f"column '{name}' cannot be written; the nearest name is '{near}'. All: {', '.join(WRITTEN)}."
            )
        field, kinds = known
        if kind not in kinds:
            raise ColumnError(f"column '{name}' is {kind}; write it as {' or '.join(kinds)}.")
        if field in fields:
            raise ColumnError(f"columns '{fields[field]}' and '{name}' are the same; write one of them.")
        fields[field] = name
    if "body" not in fields:
        raise ColumnError("a write needs the column 'body' (or 'value'): the message, binary or string.")
    if "topic" not in fields and not topic:
        raise ColumnError("a write needs a topic: .option('topic', 'orders'), or the column 'topic'.")


def rows_of(batch: Any, first_row: int) -> Rows:
    """Return the rows of a RecordBatch whose columns are checked. *first_row*: its number in the
    task, for errors.
    """
    found = {WRITTEN[name][0]: column for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    body = found["body"].cast(pa.binary())
    if body.null_count:
        row = first_row + pc.index(body.is_null(), value=True).as_py()
        raise ColumnError(f"row {row} of the partition has no body; leave out rows whose body is NULL.")
    properties, content_type = _properties(found.get("properties"))
    return Rows(
        body=body,
        key=_text(found.get("key")),
        tags=_text(found.get("tags")),
        properties=properties,
        content_type=content_type,
        message_group=_text(found.get("message_group")),
        deliver_ms=_milliseconds(found.get("deliver_at")),
        topic=found["topic"].cast(pa.string()) if "topic" in found else None,
    )


def _text(column: Any) -> Any:
    """Return *column* as strings, with NULL for empty ones."""
    if column is None or column.null_count == len(column):
        return None
    column = column.cast(pa.string())
    is_empty = pc.equal(column, "")
    return pc.if_else(is_empty, None, column) if pc.any(is_empty).as_py() else column


def _milliseconds(column: Any) -> Any:
    if column is None or column.null_count == len(column):
        return None
    if not pa.types.is_timestamp(column.type):
        return column
    times_us = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).fill_null(0).to_numpy()
    # Rounded down, to the precision of the mesh.
    return pa.array(times_us // 1_000, mask=column.is_null().to_numpy(zero_copy_only=False))


def _properties(column: Any) -> tuple[Any, Any]:
    """Return the producer's properties, and the content types among the others."""
    if column is None or column.null_count == len(column):
        return None, None
    column = column.cast(pa.map_(pa.string(), pa.string()))
    ends = column.offsets.to_numpy()
    keys, values = column.keys[ends[0] : ends[-1]], column.items[ends[0] : ends[-1]]
    is_reserved = pc.is_in(keys, value_set=_RESERVED)
    has_reserved = pc.any(is_reserved).as_py()
    content_type = _text(pc.map_lookup(column, CONTENT_TYPE, "first")) if has_reserved else None
    rows = np.repeat(np.arange(len(column)), np.diff(ends))
    is_kept = pc.and_not(values.is_valid(), is_reserved).to_numpy(zero_copy_only=False)
    if column.null_count:
        is_kept &= column.is_valid().to_numpy(zero_copy_only=False)[rows]
    counts = np.bincount(rows[is_kept], minlength=len(column))
    offsets = pa.array(np.concatenate(([0], counts.cumsum())).astype(np.int32))
    if not is_kept.all():
        keys, values = keys.filter(pa.array(is_kept)), values.filter(pa.array(is_kept))
    return pa.MapArray.from_arrays(offsets, keys, values), content_type
