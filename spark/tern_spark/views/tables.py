"""The views: their columns, as Spark and Arrow write them, and their rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tern_spark.planning.catalog import Catalog
from tern_spark.views.rows import (
    Row,
    dead_letter_rows,
    group_rows,
    lag_rows,
    queue_rows,
    scheduled_rows,
    topic_rows,
    transaction_rows,
)

_KINDS: dict[str, Any] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.string()),
}
_QUEUE = "topic string, broker string, queue_id int"


@dataclass(frozen=True, slots=True)
class View:
    """A table: *ddl* are its columns for Spark."""

    ddl: str
    rows: Callable[[Catalog], Iterator[Row]]

    @property
    def columns(self) -> dict[str, tuple[str, Any]]:
        """Name to type, Spark's and Arrow's, of each column."""
        pairs = (each.split(" ") for each in self.ddl.split(", "))
        return {name: (kind, _KINDS[kind]) for name, kind in pairs}


VIEWS = {
    "queues": View(f"{_QUEUE}, min_offset bigint, max_offset bigint, messages bigint", queue_rows),
    "topics": View("topic string, type string, permission string, queues int, broker_groups array<string>", topic_rows),
    "groups": View(
        "group string, start string, invisible_ms bigint, max_attempts int, fifo boolean, broadcast boolean, "
        "consume boolean",
        group_rows,
    ),
    "lag": View(
        f"group string, {_QUEUE}, committed bigint, max_offset bigint, lag bigint, lag_ms bigint, leased bigint",
        lag_rows,
    ),
    "dlq": View(
        f"group string, dlq_offset string, {_QUEUE}, queue_offset bigint, attempts int, cause string, reason string, "
        "dead_at timestamp, message_id string, tag string, body binary",
        dead_letter_rows,
    ),
    "scheduled": View(
        f"{_QUEUE}, message_id string, tag string, born_at timestamp, deliver_at timestamp, body_size bigint",
        scheduled_rows,
    ),
    "transactions": View(
        "transaction_id string, producer_group string, state string, begun_at timestamp, check_at timestamp, "
        "attempts int, messages int",
        transaction_rows,
    ),
}
