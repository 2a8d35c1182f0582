"""The row of the source: column names, Spark types, and the Arrow types that Spark accepts.

Every column is nullable and times are UTC microseconds, because Spark compares the schema of a
RecordBatch literally with its own.

| column            | content                                                                 |
|-------------------|-------------------------------------------------------------------------|
| topic, broker     | topic and broker group of the read                                      |
| queue_id          | number of the queue in its broker group                                 |
| queue_offset      | index of the message in its queue                                       |
| message_id        | id in the answer of the send                                            |
| keys, tags        | keys joined by a blank; the one tag; NULL for none                      |
| properties        | all other properties, the user's and the system's, in RocketMQ's names  |
| body              | the message                                                             |
| born_ts, store_ts | times of arrival at the producer's proxy and at the broker group's      |
|                   | leader                                                                  |
| reconsume_times   | earlier deliveries, for messages in a retry or dead-letter topic        |
| store_size        | bytes of the whole record in the log                                    |
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

COLUMNS: dict[str, tuple[str, Any]] = {
    "topic": ("string", pa.string()),
    "queue_id": ("int", pa.int32()),
    "queue_offset": ("bigint", pa.int64()),
    "message_id": ("string", pa.string()),
    "keys": ("string", pa.string()),
    "tags": ("string", pa.string()),
    "properties": ("map<string,string>", pa.map_(pa.string(), pa.string())),
    "body": ("binary", pa.binary()),
    "born_ts": ("timestamp", pa.timestamp("us", tz="UTC")),
    "store_ts": ("timestamp", pa.timestamp("us", tz="UTC")),
    "broker": ("string", pa.string()),
    "reconsume_times": ("int", pa.int32()),
    "store_size": ("int", pa.int32()),
}
# Columns from the properties of a record, which are parsed only for these columns.
IN_PROPERTIES = frozenset({"message_id", "keys", "tags", "properties"})
# Columns that need the head of a record and nothing else of it.
HEAD_COLUMNS = frozenset(COLUMNS) - IN_PROPERTIES - {"body"}


def row_schema() -> str:
    """Return the whole row as Spark DDL."""
    return ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())


def arrow_schema(names: Iterable[str]) -> Any:
    """Return the Arrow schema of the columns *names*, in that order."""
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in names])


def check_columns(
    columns: Iterable[tuple[str, str]], table: Mapping[str, tuple[str, Any]] = COLUMNS, what: str = "a topic"
) -> tuple[str, ...]:
    """Return the names of (name, Spark type) pairs from `.schema(...)`, columns of *table*.

    ValueError with the first name that does not fit.
    """
    names: list[str] = []
    for name, kind in columns:
        known = table.get(name)
        if known is None:
            near = get_close_matches(name, table, n=1, cutoff=0.0)[0]
            raise ValueError(f"'{name}' is not a column of {what}; the nearest is '{near}'. All: {', '.join(table)}.")
        if kind != known[0]:
            raise ValueError(f"column '{name}' is {known[0]}, .schema(...) says {kind}. Read it as it is and cast it.")
        names.append(name)
    if not names:
        raise ValueError("the schema is empty; name at least one column.")
    return tuple(names)
