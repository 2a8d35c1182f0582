"""The rows of a queue range as batches, from the proxies or from a file of the archive."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tern_jobs.archive.folder import ArchiveFolder
from tern_spark.options import ReadOptions
from tern_spark.ranges import QueueRange
from tern_spark.reading import read_ranges
from tern_spark.schema import COLUMNS

_BATCH_ROWS = 16_384


def broker_batches(
    options: ReadOptions, topic: str, queue: str, start: int, end: int, names: Sequence[str] = tuple(COLUMNS)
) -> Iterator[Any]:
    """Return the rows of offsets *start* to below *end*, one batch for each page.

    OffsetExpired (field `min_offset`) when offsets of the range were deleted.
    """
    # A gap is never passed over here: its place decides what the archive records.
    strict = replace(options, fail_on_data_loss=True)
    return read_ranges([QueueRange(topic=topic, queue=queue, start=start, end=end)], strict, tuple(names))


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
