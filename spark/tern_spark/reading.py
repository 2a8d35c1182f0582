"""What a task does: reads its ranges page by page, as RecordBatches.

Batch and stream share it. Everything comes with the arguments, since a task runs in another
process than its plan.
"""

import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any

from tern_client import BlockingAdmin
from tern_client.transport.clock import epoch_ms
from tern_spark.columns import Part, heads_batch, records_batch
from tern_spark.leases import LeaseCalls, ReadLease, Renewal
from tern_spark.options import ReadOptions
from tern_spark.pages import Page, ProxyPages
from tern_spark.ranges import QueueRange, TopicMadeAgain
from tern_spark.read_ahead import ReadAhead
from tern_spark.schema import HEAD_COLUMNS
from tern_spark.worker_process import spare_modules
from tern_wire.errors import LinkBodyMalformed, OffsetExpired
from tern_wire.names import parse_queue

_log = logging.getLogger("tern_spark")

# Larger batches cost no less a row; a task holds one more of them.
JOIN_SIZE_MAX_BYTES = 1 << 20
Fetched = tuple[QueueRange, Page]


def read_ranges(
    ranges: Sequence[QueueRange],
    options: ReadOptions,
    columns: tuple[str, ...],
    lease: ReadLease | None = None,
    created_ms: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Any]:
    """Yield RecordBatches of *ranges*, one for each large page or several small ones, while a
    thread fetches the next pages.
    *lease* is renewed meanwhile. *created_ms*: when topics were made. Behind the last page they
    have to be the same still, or the task fails: TopicMadeAgain.

    Rows that were deleted meanwhile fail the task, or with `failOnDataLoss=false` are counted and
    said in one warning.
    """
    spare_modules()
    if not ranges:
        return
    # A stable hash, so that a retried task begins at the same proxy and the tasks spread evenly.
    first = zlib.crc32(f"{ranges[0].topic}/{ranges[0].queue}/{ranges[0].start}".encode())
    skipped: dict[str, int] = {}
    renewal = Renewal(lease, partial(_admin, options), epoch_ms)
    with ProxyPages.of(options, first, heads_only=HEAD_COLUMNS.issuperset(columns)) as pages:
        source = (found for one in ranges for found in _read_range(one, options, pages, skipped))
        depth = options.prefetch_pages
        with ReadAhead(source, depth, pages.abort) if depth else nullcontext(source) as fetched:
            for joined in join_pages(fetched):
                renewal.keep()
                yield _batch_of(joined, columns)
        for topic, made_ms in created_ms.items():
            if pages.created_ms(topic) != made_ms:
                _made_again(topic, options)
    if skipped:
        _log.warning(
            "failOnDataLoss=false: %d messages were deleted before they were read, and are skipped: %s",
            sum(skipped.values()),
            ", ".join(f"{rows} in {where}" for where, rows in skipped.items()),
        )


def join_pages(pages: Iterable[Fetched]) -> Iterator[list[Fetched]]:
    """Yield *pages* in their order; small ones that end their ranges together.

    A RecordBatch costs this task 1.3 ms of CPU, however few rows it has. A page of a range that
    goes on is not held back, so a reader that wants few rows need not scan for more of them.
    An error comes behind all pages before it.
    """
    joined: list[Fetched] = []
    size_bytes = 0
    try:
        for found, page in pages:
            more_bytes = len(page.records)
            if joined and (size_bytes + more_bytes > JOIN_SIZE_MAX_BYTES or joined[0][1].is_heads != page.is_heads):
                yield joined
                joined, size_bytes = [], 0
            joined.append((found, page))
            size_bytes += more_bytes
            if page.next_offset < found.end:
                yield joined
                joined, size_bytes = [], 0
    except Exception:
        if joined:
            yield joined
        raise
    if joined:
        yield joined


def _batch_of(joined: Sequence[Fetched], columns: tuple[str, ...]) -> Any:
    parts = [Part(found.topic, parse_queue(found.queue, found.topic), len(page.records)) for found, page in joined]
    pages = [page.records for _, page in joined]
    build = heads_batch if joined[0][1].is_heads else records_batch
    return build(pages[0] if len(pages) == 1 else b"".join(pages), parts, columns)


def _made_again(topic: str, options: ReadOptions) -> None:
    text = f"Topic '{topic}' was deleted and made again while it was read"
    if options.fail_on_data_loss:
        raise TopicMadeAgain(f"{text}: some of its rows are not those that were planned. Run the query again.")
    _log.warning("failOnDataLoss=false: %s; some rows are those of the new topic", text)


def _admin(options: ReadOptions) -> AbstractContextManager[LeaseCalls]:
    """Return the calls about leases for a task; few tasks ever need them."""
    return BlockingAdmin(
        options.endpoints, namespace=options.namespace, key_file=options.key_file, ca_file=options.ca_file
    )


def _read_range(
    found: QueueRange, options: ReadOptions, pages: ProxyPages, skipped: dict[str, int]
) -> Iterator[Fetched]:
    """Yield the pages of *found* that have records."""
    offset = found.start
    while offset < found.end:
        try:
            page = pages.page(found.topic, found.queue, offset, found.end, options.page_size_bytes)
        except OffsetExpired as error:
            if options.fail_on_data_loss:
                error.add_note(
                    f"Queue {found.queue} of topic '{found.topic}': offset {offset} of the planned range "
                    f"{found.start} to {found.end} was deleted. With failOnDataLoss=false the read goes on "
                    f"at {error.fields['min_offset']}."
                )
                raise
            kept = max(int(error.fields["min_offset"]), offset + 1)
            where = f"queue {found.queue} of '{found.topic}'"
            skipped[where] = skipped.get(where, 0) + min(kept, found.end) - offset
            offset = kept
            continue
        if page.next_offset > found.end:
            raise LinkBodyMalformed(reason=f"a page of {found} goes on to {page.next_offset}")
        if page.records:
            yield found, page
        offset = page.next_offset
