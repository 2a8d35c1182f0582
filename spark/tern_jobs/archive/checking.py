"""What `verify` looks for: gaps between ranges, files and rows that are not as their manifest says.

Each fault is one line that names the topic, queue and offsets, or the file.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise

import msgspec
import pyarrow as pa

from tern_jobs.archive.checksum import RowsChecksum
from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.hashing import file_hash
from tern_jobs.archive.manifests import ArchivedRange
from tern_jobs.archive.reading import broker_batches, file_batches
from tern_spark.options import ReadOptions
from tern_spark.ranges import QueueSpan
from tern_wire.errors import OffsetExpired

_NOT_COMPARED = -1


class CheckTask(msgspec.Struct, frozen=True, kw_only=True):
    """One range to check.

    *broker_from* is the first offset of it that the broker still has; -1: do not ask it.
    """

    range: ArchivedRange
    broker_from: int = _NOT_COMPARED


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a range, its rows in the file, and those that the broker has alike."""

    faults: list[str]
    rows: int = 0
    compared_rows: int = 0


def contiguity_faults(ranges: Iterable[ArchivedRange]) -> list[str]:
    """Return a line for each gap and overlap between the ranges of a queue, ordered by start."""
    faults = []
    for (topic, queue), found in groupby(ranges, key=lambda found: (found.topic, found.queue)):
        for one, two in pairwise(sorted(found, key=lambda each: (each.start, each.end))):
            where = f"{queue} of '{topic}'"
            if two.start > one.end:
                faults.append(f"{where}: offsets {one.end} to {two.start} are in no range")
            elif two.start < one.end:
                faults.append(f"{where}: offsets {two.start} to {min(one.end, two.end)} are in two ranges")
    return faults


def span_faults(ends: Mapping[tuple[str, str], int], spans: Sequence[QueueSpan]) -> list[str]:
    """Return a line for each archived queue that is absent at the broker, or shorter there."""
    faults = []
    there = {(span.topic, span.queue): span for span in spans}
    for (topic, queue), end in sorted(ends.items()):
        span = there.get((topic, queue))
        if span is None:
            faults.append(f"{queue} of '{topic}': in the archive, not at the broker")
        elif span.max_offset < end:
            faults.append(f"{queue} of '{topic}': the archive ends at {end}, the broker at {span.max_offset}")
    return faults


def compared_from(found: ArchivedRange, spans: Mapping[tuple[str, str], QueueSpan]) -> int:
    """Return the first offset of a range that the broker still has; -1 when it has none of them."""
    span = spans.get((found.topic, found.queue))
    if span is None or found.is_skipped or span.min_offset >= found.end or span.max_offset < found.end:
        return _NOT_COMPARED
    return max(found.start, span.min_offset)


def check_range(task: CheckTask, *, uri: str, options: ReadOptions | None) -> Checked:
    """Compare the file of a range with its manifest, and its rows with the broker's."""
    found, folder = task.range, ArchiveFolder(uri)
    where = f"{found.file or 'no file'} ({found.queue} of '{found.topic}', {found.start} to {found.end})"
    faults: list[str] = []
    checksum, kept = RowsChecksum(), RowsChecksum()
    if found.file:
        try:
            faults += _file_faults(folder, found, where)
            for batch in file_batches(folder, found.file):
                checksum.add(batch)
            if task.broker_from > found.start:
                for batch in file_batches(folder, found.file, task.broker_from):
                    kept.add(batch)
        except FileNotFoundError:
            return Checked(faults=[f"{where}: the file is absent"])
        except (pa.ArrowException, OSError, KeyError) as error:
            return Checked(faults=[*faults, f"{where}: not readable: {str(error).splitlines()[0]}"])
    if checksum.rows != found.rows:
        faults.append(f"{where}: {checksum.rows} rows, the manifest says {found.rows}")
    if checksum.hexdigest() != found.checksum:
        faults.append(f"{where}: the rows are not those that were archived")
    if task.broker_from == _NOT_COMPARED or options is None:
        return Checked(faults=faults, rows=checksum.rows)
    ours = checksum if task.broker_from <= found.start else kept
    theirs = RowsChecksum()
    try:
        for batch in broker_batches(options, found.topic, found.queue, task.broker_from, found.end):
            theirs.add(batch)
    except OffsetExpired:
        # Retention has reached the range since the offsets were read: nothing to compare with.
        return Checked(faults=faults, rows=checksum.rows)
    if theirs.rows != ours.rows:
        faults.append(f"{where}: {ours.rows} rows from {task.broker_from} on, the broker has {theirs.rows}")
    elif theirs.hexdigest() != ours.hexdigest():
        faults.append(f"{where}: the rows from {task.broker_from} on are not those of the broker")
    return Checked(faults=faults, rows=checksum.rows, compared_rows=theirs.rows)


def _file_faults(folder: ArchiveFolder, found: ArchivedRange, where: str) -> list[str]:
    size_bytes, sha256 = file_hash(folder, found.file)
    if size_bytes != found.file_bytes:
        return [f"{where}: {size_bytes} bytes, {found.file_bytes} were written"]
    return [f"{where}: its bytes are not those that were written"] if sha256 != found.file_sha256 else []
