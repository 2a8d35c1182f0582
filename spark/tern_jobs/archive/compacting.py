"""The task and the plan of `compact`: adjacent small files of a queue and day become one.

Law: the rows, their order and their offsets stay. Each old file is checked against its manifest
while it is read, so that a compaction never gives a damaged row a new, right checksum.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from tern_jobs.archive.checksum import RowsChecksum
from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import ArchivedRange, Manifest
from tern_jobs.archive.reading import file_batches
from tern_jobs.archive.writing import Totals, write_groups
from tern_jobs.frame.outcome import JobFailed
from tern_spark.schema import COLUMNS


class CompactTask(msgspec.Struct, frozen=True, kw_only=True):
    """Files to join, in order. *attempt* makes the name of the unfinished file unique."""

    parts: list[ArchivedRange]
    attempt: str


def plan_compaction(ranges: Iterable[ArchivedRange], *, size_max_bytes: int) -> list[list[ArchivedRange]]:
    """Return runs of two or more adjacent files that together have at most *size_max_bytes*.

    *ranges* are ordered by topic, queue and start. A run has one queue and one day.
    """
    runs: list[list[ArchivedRange]] = []
    for found in ranges:
        if not found.file:
            continue
        run = runs[-1] if runs else []
        joins = run and run[-1].end == found.start and _place(run[-1]) == _place(found)
        if joins and sum(part.file_bytes for part in run) + found.file_bytes <= size_max_bytes:
            run.append(found)
        else:
            runs.append([found])
    return [run for run in runs if len(run) > 1]


def compact_files(task: CompactTask, *, uri: str) -> ArchivedRange:
    """Write the file that takes the place of *task.parts*; return its range.

    JobFailed when a part is not as its manifest says.
    """
    folder, first, last = ArchiveFolder(uri), task.parts[0], task.parts[-1]
    stem = first.file.rpartition("-")[0]
    checksum, totals = RowsChecksum(), Totals()
    with folder.sink(f"{stem}-{last.end:020}.parquet", task.attempt) as sink:
        write_groups(sink, _checked(folder, task.parts), checksum, totals)
    return ArchivedRange(
        topic=first.topic,
        queue=first.queue,
        start=first.start,
        end=last.end,
        rows=checksum.rows,
        stored_bytes=totals.stored_bytes,
        stored_min_ms=totals.min_us // 1_000,
        stored_max_ms=totals.max_us // 1_000,
        checksum=checksum.hexdigest(),
        file=sink.path,
        file_bytes=sink.size_bytes,
        file_sha256=sink.sha256(),
    )


def dead_files(manifests: Iterable[Manifest], live: Iterable[ArchivedRange]) -> list[str]:
    """Return the files that manifests have replaced and that are no part of the archive now."""
    kept = {found.file for found in live}
    return sorted({path for manifest in manifests for path in manifest.replaced} - kept)


def _checked(folder: ArchiveFolder, parts: Iterable[ArchivedRange]) -> Iterator[Any]:
    for part in parts:
        checksum = RowsChecksum()
        for batch in file_batches(folder, part.file):
            checksum.add(batch)
            # Parquet names the parts of a map otherwise; the rows are the same.
            yield batch.select(list(COLUMNS))
        if checksum.hexdigest() != part.checksum:
            raise JobFailed("The archive is damaged", f"{part.file} is not as its manifest says; run verify.")


def _place(found: ArchivedRange) -> tuple[str, str, str]:
    return found.topic, found.queue, found.file.rpartition("/")[0]
