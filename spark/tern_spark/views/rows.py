"""The rows of each view, from the HTTP API as it answers now, page by page.

A row has the values of its view's columns, in their order; see `tables.py`. Times are microseconds.
"""

from collections.abc import Iterator
from typing import Any

from tern_spark.planning.catalog import Catalog
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX, LISTED_MAX, SCHEDULED_LISTED_MAX
from tern_wire.names import parse_queue

Row = tuple[Any, ...]


def queue_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield one row for each queue."""
    for topic in catalog.topics():
        for span in catalog.spans(topic):
            count = span.max_offset - span.min_offset
            yield topic, *_queue(span.queue, topic), span.min_offset, span.max_offset, count


def topic_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield one row for each topic."""
    wanted = set(catalog.topics())
    for row in catalog.admin.topics():
        if row["topic"] in wanted:
            yield row["topic"], row["type"], row["permission"], row["queues"], row["broker_groups"]


def group_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield one row for each consumer group."""
    for row in [catalog.admin.group(catalog.group)] if catalog.group else catalog.admin.groups():
        named = (row["group"], str(row["start"]), row["invisible_ms"], row["max_attempts"])
        yield *named, row["fifo"], row["broadcast"], row["consume"]


def lag_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield one row for each queue that a group reads."""
    wanted = set(catalog.topics())
    for group in _groups(catalog):
        for topic in catalog.admin.lag(group)["topics"]:
            for row in topic["queues"] if topic["topic"] in wanted else ():
                place = (group, topic["topic"], *_queue(row["queue"], topic["topic"]))
                yield *place, row["committed"], row["max_offset"], row["lag"], row["lag_ms"], row["leased"]


def dead_letter_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield one row for each dead letter."""
    wanted = set(catalog.topics())
    for group in _groups(catalog):
        cursor = ""
        while True:
            page = catalog.admin.dead_letters(group, limit=DEAD_LETTERS_PAGE_MAX, cursor=cursor)
            for row in page["messages"]:
                death = row["dlq"]
                origin = death["origin"]
                if origin["topic"] in wanted:
                    place = (origin["topic"], *_queue(origin["queue"], origin["topic"]), origin["offset"])
                    told = (death["attempts"], death["cause"], death["reason"], death["dead_at"] * 1_000)
                    yield group, death["offset"], *place, *told, row["message_id"], row.get("tag"), row.get("body")
            cursor = page.get("next_cursor", "")
            if not cursor:
                break


def scheduled_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield one row for each message that waits for its delivery time."""
    for topic in catalog.topics():
        cursor = ""
        while True:
            page = catalog.admin.scheduled(topic, limit=SCHEDULED_LISTED_MAX, cursor=cursor)
            for row in page.messages:
                times = (row.born_at * 1_000, row.deliver_at * 1_000)
                yield topic, *_queue(row.queue, topic), row.message_id, row.tag or None, *times, row.body_size
            cursor = page.next_cursor
            if not cursor:
                break


def transaction_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield one row for each transaction that has not ended."""
    cursor = ""
    while True:
        page = catalog.admin.transactions(limit=LISTED_MAX, cursor=cursor)
        for row in page.transactions:
            times = (row.begun_at * 1_000, row.check_at * 1_000 if row.check_at else None)
            yield row.transaction_id, row.producer_group, row.state, *times, row.attempts, row.message_count
        cursor = page.next_cursor
        if not cursor:
            break


def _groups(catalog: Catalog) -> list[str]:
    return [catalog.group] if catalog.group else [row["group"] for row in catalog.admin.groups()]


def _queue(name: str, topic: str) -> tuple[str, int]:
    found = parse_queue(name, topic)
    return found.broker_group, found.queue
