"""What each manifest changes of a topic's table, as values.

Law: a version of a table is the state of one manifest. So a table that lags behind is brought up
to date manifest by manifest: only so does each version tell which rows are new, and which files
are others with the same rows.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from tern_jobs.archive.manifests import ArchivedRange, Manifest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TableFault(Exception):
    """A table cannot be read or written, or is not what manifests make of it; the text says why."""


class TableChange(msgspec.Struct, frozen=True, kw_only=True):
    """What the manifest *number* changes of one topic's table.

    *is_rewrite*: the added files have rows that the table has already, in those that are removed.
    """

    number: int
    made_ms: int
    added: list[ArchivedRange]
    removed: list[ArchivedRange] = []
    is_rewrite: bool = False


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as the table's log knows it; *rows* -1: it does not say."""

    size_bytes: int
    rows: int


class TableState(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it is: its version, the manifest of that, its files by path below the table."""

    version: int
    number: int
    files: dict[str, TableFile]


class Statistics(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The statistics of a file, as the log of a Delta table has them."""

    num_records: int
    min_values: dict[str, str | int]
    max_values: dict[str, str | int]
    null_count: dict[str, int]


def table_path(found: ArchivedRange) -> str:
    """Return the path of a range's file below the table of its topic."""
    return found.file.split("/", 2)[2]


def table_changes(manifests: Iterable[Manifest]) -> dict[str, list[TableChange]]:
    """Return the changes of each topic's table, in the order of the manifests."""
    changes: dict[str, list[TableChange]] = {}
    live: dict[str, ArchivedRange] = {}
    for manifest in manifests:
        removed: dict[str, list[ArchivedRange]] = {}
        added: dict[str, list[ArchivedRange]] = {}
        for path in manifest.replaced:
            if (old := live.pop(path, None)) is not None:
                removed.setdefault(old.topic, []).append(old)
        for found in manifest.ranges:
            if found.file and found.file not in live:
                live[found.file] = found
                added.setdefault(found.topic, []).append(found)
        for topic in added | removed:
            change = TableChange(
                number=manifest.number,
                made_ms=manifest.made_ms,
                added=added.get(topic, []),
                removed=removed.get(topic, []),
                is_rewrite=topic in removed,
            )
            changes.setdefault(topic, []).append(change)
    return changes


def files_at(changes: Iterable[TableChange], number: int) -> dict[str, ArchivedRange]:
    """Return the files that a table has behind the manifest *number*, by path below the table."""
    files: dict[str, ArchivedRange] = {}
    for change in changes:
        if change.number <= number:
            for old in change.removed:
                files.pop(table_path(old), None)
            files |= {table_path(found): found for found in change.added}
    return files


def differences(wanted: Mapping[str, ArchivedRange], found: Mapping[str, TableFile]) -> list[str]:
    """Return a line for each file by which a table differs from the manifests."""
    lines = [f"{path} is in the table and in no manifest" for path in sorted(found.keys() - wanted.keys())]
    lines += [f"{path} is in the archive and not in the table" for path in sorted(wanted.keys() - found.keys())]
    for path in sorted(wanted.keys() & found.keys()):
        ours, theirs = wanted[path], found[path]
        if (theirs.size_bytes, theirs.rows) != (ours.file_bytes, ours.rows):
            lines.append(
                f"{path} has {ours.rows} rows and {ours.file_bytes} bytes, "
                f"the table says {theirs.rows} and {theirs.size_bytes}"
            )
    return lines


def statistics(found: ArchivedRange) -> Statistics:
    """Return the statistics of a range's file.

    Readers skip files by them, and may answer the least, the greatest and the number of rows from
    them alone. So they are exact, and what the manifest does not know exactly is left out: offsets
    where some of the range have no row.
    """
    broker, _, queue = found.queue.rpartition(":")
    least: dict[str, str | int] = {"topic": found.topic, "broker": broker, "queue_id": int(queue)}
    most = dict(least)
    if found.rows == found.end - found.start:
        least["queue_offset"], most["queue_offset"] = found.start, found.end - 1
    least["store_ts"], most["store_ts"] = _time_text(found.stored_min_ms), _time_text(found.stored_max_ms)
    return Statistics(
        num_records=found.rows, min_values=least, max_values=most, null_count=dict.fromkeys((*least, "queue_offset"), 0)
    )


def _time_text(time_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
