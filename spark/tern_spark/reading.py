"""What a task does: reads its ranges page by page, as RecordBatches.

Batch and stream share it. Everything comes with the arguments, since a task runs in another
process than its plan.
"""

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import Any

from tern_client import BlockingAdmin
from tern_client.transport.clock import epoch_ms
from tern_spark.columns import heads_batch, record_batch
from tern_spark.leases import LeaseCalls, ReadLease, Renewal
from tern_spark.options import ReadOptions
from tern_spark.pages import Page, ProxyPages
from tern_spark.ranges import QueueRange, TopicMadeAgain
from tern_spark.read_ahead import ReadAhead
from tern_spark.schema import HEAD_COLUMNS
from tern_wire.errors import LinkBodyMalformed, OffsetExpired
from tern_wire.names import parse_queue

_log = logging.getLogger("tern_spark")


def read_ranges(
    ranges: Sequence[QueueRange],
    options: ReadOptions,
    columns: tuple[str, ...],
    lease: ReadLease | None = None,
    created_ms: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Any]:
    """Yield RecordBatches of *ranges*, one for each page, while a thread fetches the next pages.
    *lease* is renewed meanwhile. *created_ms*: when topics were made. Behind the last page they
    have to be the same still, or the task fails: TopicMadeAgain.

    Rows that were deleted meanwhile fail the task, or with `failOnDataLoss=false` are counted and
    said in one warning.
    """
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
            for found, page in fetched:
                renewal.keep()
                queue = parse_queue(found.queue, found.topic)
                build = heads_batch if page.is_heads else record_batch
                yield build(page.records, topic=found.topic, queue=queue, names=columns)
        for topic, made_ms in created_ms.items():
            if pages.created_ms(topic) != made_ms:
                _made_again(topic, options)
    if skipped:
        _log.warning(
            "failOnDataLoss=false: %d messages were deleted before they were read, and are skipped: %s",
            sum(skipped.values()),
            ", ".join(f"{rows} in {where}" for where, rows in skipped.items()),
        )


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
) -> Iterator[tuple[QueueRange, Page]]:
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
