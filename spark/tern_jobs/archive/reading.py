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
    options: ReadOptions,
    topic: str,
    queue: str,
    start: int,
    end: int,
    names: Sequence[str] = tuple(COLUMNS),
    created_ms: int | None = None,
) -> Iterator[Any]:
    """Return the rows of offsets *start* to below *end*, one batch for each page.

    *created_ms*: when the topic was made; TopicMadeAgain, behind the last row, when it was another
    time. OffsetExpired (field `min_offset`) when offsets of the range were deleted.
    """
    # A gap is never passed over here: its place decides what the archive records.
    strict = replace(options, fail_on_data_loss=True)
    ranges = [QueueRange(topic=topic, queue=queue, start=start, end=end)]
    made_ms = {} if created_ms is None else {topic: created_ms}
    return read_ranges(ranges, strict, tuple(names), created_ms=made_ms)


def file_batches(folder: ArchiveFolder, path: str, from_offset: int = 0, to_offset: int | None = None) -> Iterator[Any]:
    """Yield the rows of a Parquet file of the archive from *from_offset* on, to below *to_offset*.

    Only row groups with such rows are read. FileNotFoundError, or an ArrowException when it is no
    whole Parquet file.
    """
    with folder.open(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as parquet:
        groups = _groups_of(parquet.metadata, from_offset, to_offset)
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups):
            kept = batch
            if from_offset:
                kept = kept.filter(pc.greater_equal(kept.column("queue_offset"), from_offset))
            if to_offset is not None:
                kept = kept.filter(pc.less(kept.column("queue_offset"), to_offset))
            if kept.num_rows:
                yield kept


def _groups_of(metadata: Any, from_offset: int, to_offset: int | None) -> list[int]:
    """Return the row groups that may have such offsets; all of them where they have no figures."""
    if not from_offset and to_offset is None:
        return list(range(metadata.num_row_groups))
    leaf = [metadata.schema.column(at).path for at in range(metadata.num_columns)].index("queue_offset")
    chosen = []
    for number in range(metadata.num_row_groups):
        figures = metadata.row_group(number).column(leaf).statistics
        is_outside = (
            figures is not None
            and figures.has_min_max
            and (figures.max < from_offset or (to_offset is not None and figures.min >= to_offset))
        )
        if not is_outside:
            chosen.append(number)
    return chosen
