"""Entries as the bodies of batch sends and of staged chunks, within the limits of a proxy.

Rows with a message group go in requests so small that the proxy passes each on in one piece to each
broker group. Then all rows of a group in one request are stored, or none is, and a repeat keeps
their order. The same rule as in tern_client.calls.batching.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tern_client.calls.batching import RECORD_OVERHEAD_SIZE_BYTES
from tern_client.transport.exchange import Request
from tern_spark.sink.columns import ColumnError, Rows
from tern_spark.sink.entries import Entries, Ints
from tern_spark.sink.options import WriteOptions
from tern_wire.limits import BATCH_MESSAGES_MAX, BATCH_SIZE_MAX_BYTES, LANE_SIZE_MAX_BYTES
from tern_wire.names import check_topic
from tern_wire.paths import MSGPACK, batch_path, staged_path

_HEADERS = (("Content-Type", MSGPACK), ("Accept", MSGPACK))
# A map of one field, which is a list whose length takes four bytes.
_BATCH_MARK = b"\x81\xa8messages\xdd"
_HEAD_SIZE_BYTES = len(_BATCH_MARK) + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Entries of one topic that are sent in one request."""

    topic: str
    entries: Entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A stage: what one attempt at one partition of a batch of a query writes."""

    query: str
    batch: int
    partition: int
    attempt: int


def batches(rows: Rows, entries: Entries, topic: str) -> Iterator[Batch]:
    """Yield *entries* by topic, cut to requests; the order of a topic's rows is kept. *topic*: of
    rows without one; ColumnError when it is "".
    """
    for name, chosen in _by_topic(rows, entries, topic):
        for start, end in cuts(chosen.sizes, is_ordered=chosen.is_ordered):
            yield Batch(topic=name, entries=chosen.part(start, end))


def request_of(batch: Batch) -> Request:
    """Return the request that sends *batch*. It may be repeated: at least once allows it."""
    return Request("POST", batch_path(batch.topic), _HEADERS, _body_of(batch), repeatable=True)


def stage_request(batch: Batch, place: Place, chunk: int, options: WriteOptions) -> Request:
    """Return the request that stages *batch* as *chunk* of its stage. It may be repeated: a chunk
    is staged once.
    """
    numbers = (place.batch, place.partition, place.attempt, chunk)
    path = staged_path(batch.topic, quote(place.query, safe=""), *map(str, numbers))
    lost = "&accept_lost_history=true" if options.accepts_lost_history else ""
    return Request("PUT", f"{path}?life={options.stage_life_ms}ms{lost}", _HEADERS, _body_of(batch), repeatable=True)


def _body_of(batch: Batch) -> bytes:
    head = _BATCH_MARK + len(batch.entries).to_bytes(4, "big")
    return b"".join((head, batch.entries.data.data))


def cuts(sizes: Ints, *, is_ordered: bool) -> Iterator[tuple[int, int]]:
    """Yield the ranges of entries for one request each. An entry beyond the limit has a request of
    its own, which the proxy refuses.
    """
    each, most = 0, BATCH_SIZE_MAX_BYTES - _HEAD_SIZE_BYTES
    if is_ordered:
        each, most = RECORD_OVERHEAD_SIZE_BYTES, LANE_SIZE_MAX_BYTES
    ends = np.concatenate(([0], (sizes + each).cumsum()))
    start = 0
    while start < len(sizes):
        fitting = int(np.searchsorted(ends, ends[start] + most, side="right")) - 1
        end = min(max(fitting, start + 1), start + BATCH_MESSAGES_MAX, len(sizes))
        yield start, end
        start = end


def _by_topic(rows: Rows, entries: Entries, topic: str) -> Iterator[tuple[str, Entries]]:
    if rows.topic is None:
        yield topic, entries
        return
    column = rows.topic
    if column.null_count:
        if not topic:
            row = entries.rows[pc.index(column.is_null(), value=True).as_py()]
            raise ColumnError(f"row {row} of the partition has no topic; set .option('topic', 'orders') for such rows.")
        column = column.fill_null(topic)
    names = pc.unique(column).to_pylist()
    if len(names) == 1:
        yield check_topic(names[0]), entries
        return
    for name in names:
        numbers = np.flatnonzero(pc.equal(column, pa.scalar(name)).to_numpy(zero_copy_only=False))
        yield check_topic(name), entries.chosen(numbers)
