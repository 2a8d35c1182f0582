"""What `Worker.on` says about one subscription, checked once. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tern_client.calls.pulling import GroupOffsets, MemoryOffsets, OffsetStore
from tern_client.worker.arguments import Handler
from tern_client.worker.outcomes import duration_ms
from tern_wire.limits import INVISIBLE_MAX_MS, INVISIBLE_MIN_MS, RECEIVE_MESSAGES_MAX
from tern_wire.names import check_group, check_topic
from tern_wire.times import parse_time_ms

Duration = str | int | timedelta
Start = str | int | datetime | Mapping[str, int]
CONCURRENCY_MAX = 1_000
BATCH_WAIT_MAX_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionOptions:
    """One handler and what it subscribes to. Times are milliseconds; None: the group's own."""

    handler: Handler
    topic: str
    group: str
    concurrency: int
    is_ordered: bool = False
    is_broadcast: bool = False
    start: str = ""
    offsets: OffsetStore | GroupOffsets | None = None
    tags: str = ""
    sql: str = ""
    deadline_ms: int | None = None
    retry_in_ms: int | None = None
    lease_ms: int | None = None
    batch_max: int = 1
    batch_wait_ms: int = 0

    @property
    def name(self) -> str:
        """`topic/group` for logs and health."""
        return f"{self.topic}/{self.group}" if self.group else f"{self.topic}/broadcast"


def check_options(
    handler: Handler,
    topic: str,
    *,
    group: str,
    concurrency: int,
    ordered: bool,
    broadcast: bool,
    start: Start | None,
    offsets: OffsetStore | GroupOffsets | None,
    tags: str,
    sql: str,
    deadline: Duration | None,
    retry_in: Duration | None,
    lease: Duration | None,
    batch_max: int,
    batch_wait: Duration,
) -> SubscriptionOptions:
    """Return the options of one subscription. ValueError and TypeError name what is wrong;
    IllegalTopic, IllegalGroup.
    """
    check_topic(topic)
    if group:
        check_group(group)
    elif not broadcast:
        raise ValueError(f"on(): give the group that shares the messages of {topic}, or broadcast=True for all of them")
    _check_number("concurrency", concurrency, CONCURRENCY_MAX)
    if handler.is_batch:
        _check_number("batch_max", batch_max, RECEIVE_MESSAGES_MAX)
    if tags and sql:
        raise ValueError("on(): give tags or sql; TAGS is a property in SQL")
    if broadcast and (group or retry_in is not None or lease is not None):
        raise ValueError("on(): a broadcast has no group, and so no retries and no lease; leave these arguments out")
    if not broadcast and (start is not None or offsets is not None):
        raise ValueError(
            "on(): start and offsets belong to broadcast=True; a group continues where it was (`ternmq group seek` moves it)"
        )
    if ordered and handler.is_batch:
        raise ValueError("on(): ordered=True hands out one message of a message group at a time; take a single message")
    start_text, offset_store = _start(start, offsets)
    return SubscriptionOptions(
        handler=handler,
        topic=topic,
        group=group,
        concurrency=concurrency,
        is_ordered=ordered,
        is_broadcast=broadcast,
        start=start_text,
        offsets=offset_store,
        tags=tags,
        sql=sql,
        deadline_ms=None if deadline is None else duration_ms(deadline, "deadline", 1),
        retry_in_ms=None if retry_in is None else duration_ms(retry_in, "retry_in"),
        lease_ms=None if lease is None else duration_ms(lease, "lease", INVISIBLE_MIN_MS, INVISIBLE_MAX_MS),
        batch_max=batch_max if handler.is_batch else 1,
        batch_wait_ms=duration_ms(batch_wait, "batch_wait", 0, BATCH_WAIT_MAX_MS) if handler.is_batch else 0,
    )


def _check_number(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is a {type(value).__name__}; give a number from 1 to {most}")
    if not 1 <= value <= most:
        raise ValueError(f"{name} is {value}; use 1 to {most}")


def _start(
    start: Start | None, offsets: OffsetStore | GroupOffsets | None
) -> tuple[str, OffsetStore | GroupOffsets | None]:
    """Return where queues without a place begin, as a pull says it, and the store of places."""
    if start is None:
        return "latest", offsets
    if isinstance(start, Mapping):
        if offsets is not None:
            raise ValueError("on(): start holds offsets, and offsets is a store of them; give one of the two")
        places = MemoryOffsets()
        places.save(start)
        return "earliest", places
    if isinstance(start, datetime):
        return f"@{round(start.timestamp() * 1000)}", offsets
    if start in {"earliest", "latest"}:
        return str(start), offsets
    try:
        return f"@{parse_time_ms(start)}", offsets
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"start is {str(start)[:40]!r}; use 'earliest', 'latest', a time, or offsets by queue"
        ) from error
