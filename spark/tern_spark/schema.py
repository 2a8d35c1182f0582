"""The row that Spark sees: column names, Spark types and the Arrow types that Spark accepts for them, once.

Everything is nullable and times are UTC microseconds, because Spark compares a RecordBatch's schema with its own literally.

| column            | what                                                                          |
|-------------------|-------------------------------------------------------------------------------|
| topic, broker     | topic and broker group that were read                                          |
| queue_id          | number of the queue in its broker group                                        |
| queue_offset      | index of the message in its queue                                              |
| message_id        | the id that the send was answered with                                         |
| keys, tags        | keys joined by a blank; the one tag; NULL when there is none                   |
| properties        | all other properties, the user's and the system's under RocketMQ's names       |
| body              | the message                                                                    |
| born_ts, store_ts | when the producer's proxy and the broker's leader saw it                       |
| reconsume_times   | deliveries before this one, for messages in a retry or dead-letter topic       |
| store_size        | bytes of the whole record in the log                                           |
"""

from collections.abc import Iterable
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
# These live in the properties of a record, which are parsed only when one of them is asked for.
IN_PROPERTIES = frozenset({"message_id", "keys", "tags", "properties"})


def row_schema() -> str:
    """The whole row as Spark DDL."""
    return ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())


def arrow_schema(names: Iterable[str]) -> Any:
    """The Arrow schema of the columns *names*, in that order."""
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in names])


def check_columns(columns: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The names of (name, Spark type) pairs from `.schema(...)`; ValueError names the first one that does not fit."""
    names: list[str] = []
    for name, kind in columns:
        known = COLUMNS.get(name)
        if known is None:
            near = get_close_matches(name, COLUMNS, n=1, cutoff=0.0)[0]
            raise ValueError(
                f"'{name}' is not a column of a topic; the nearest is '{near}'. All: {', '.join(COLUMNS)}."
            )
        if kind != known[0]:
            raise ValueError(f"column '{name}' is {known[0]}, .schema(...) says {kind}. Read it as it is and cast it.")
        names.append(name)
    if not names:
        raise ValueError("the schema is empty; name at least one column.")
    return tuple(names)
