"""The rows of a queue range as batches, from the proxies or from a file of the archive."""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tern_jobs.archive.folder import ArchiveFolder
from tern_spark.columns import record_batch
from tern_spark.options import ReadOptions
from tern_spark.pages import ProxyPages
from tern_spark.schema import COLUMNS
from tern_wire.names import parse_queue

_BATCH_ROWS = 16_384


def broker_batches(
    options: ReadOptions, topic: str, queue: str, start: int, end: int, names: Sequence[str] = tuple(COLUMNS)
) -> Iterator[Any]:
    """Yield the rows of offsets *start* to below *end*, one batch for each page.

    OffsetExpired (field `min_offset`) when offsets of the range were deleted.
    """
    place, offset = parse_queue(queue, topic), start
    first = zlib.crc32(f"{topic}/{queue}/{start}".encode())
    with ProxyPages.of(options, first) as pages:
        while offset < end:
            page = pages.page(topic, queue, offset, end, options.page_size_bytes)
            if page.records:
                yield record_batch(page.records, topic=topic, queue=place, names=names)
            offset = page.next_offset


def file_batches(folder: ArchiveFolder, path: str, from_offset: int = 0) -> Iterator[Any]:
    """Yield the rows of a Parquet file of the archive from *from_offset* on.

    FileNotFoundError, or an ArrowException when it is no whole Parquet file.
    """
    with folder.open(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as parquet:
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
            kept = batch
            if from_offset:
                kept = batch.filter(pc.greater_equal(batch.column("queue_offset"), from_offset))
            if kept.num_rows:
                yield kept
