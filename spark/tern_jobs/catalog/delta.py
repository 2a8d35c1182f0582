"""The table of one topic: its log, read and written by the library for Delta tables.

    add, remove     files of one manifest, with their statistics
    txn             the number of that manifest

Law: a version appears whole or not at all, and of two runs that write one the second is refused:
both name the manifest in `txn`, so the library does not let one pass the other.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, Transaction, create_table_with_add_actions

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import ArchivedRange
from tern_jobs.catalog.changes import (
    TableChange,
    TableFault,
    TableFile,
    TableState,
    statistics,
    table_path,
)
from tern_jobs.catalog.places import table_place
from tern_spark.schema import COLUMNS, arrow_schema

_OWNER = "ternmq-archive"
_REMEDY = "Remove its folder _delta_log, and run `archive` with --catalog"
CONFIGURATION = {
    # Rows are only added: DELETE, UPDATE and MERGE are refused.
    "delta.appendOnly": "true",
    # VACUUM removes what the table does not name. Files of a run that was killed in front of the
    # table are such, and part of the archive; `compact --delete` knows which ones are not.
    "delta.deletedFileRetentionDuration": "interval 36500 days",
}
# Colours, and the arrows of indented causes.
_MARKS = re.compile(r"\x1b\[[0-9;]*m|\u21b3")
_FRAME = re.compile(r"\d+: ")
_TOLD_MAX = 300


class TopicTable:
    """The table of *topic* in the archive."""

    def __init__(self, folder: ArchiveFolder, topic: str) -> None:
        self._folder, self._topic = folder, topic
        self._place = table_place(folder, topic)
        self._table: Any = None
        self._schema = Schema.from_arrow(arrow_schema(COLUMNS))

    @property
    def address(self) -> str:
        """What a reader opens."""
        return self._place.address

    def state(self) -> TableState | None:
        """Return the table as it is now; None when there is none.

        TableFault when it cannot be read, or is not ours.
        """
        with _told(is_reading=True):
            try:
                self._table = DeltaTable(self.address, storage_options=self._place.options or None)
            except TableNotFoundError:
                return None
            number = self._table.transaction_version(_OWNER)
            rows = pa.table(self._table.get_add_actions()).select(["path", "size_bytes", "num_records"]).to_pylist()
        if number is None:
            raise TableFault(f"another program has made it. {_REMEDY}")
        files = {
            unquote(row["path"]): TableFile(
                size_bytes=row["size_bytes"], rows=-1 if row["num_records"] is None else row["num_records"]
            )
            for row in rows
        }
        return TableState(version=self._table.version(), number=number, files=files)

    def create(self, change: TableChange) -> None:
        """Make the table, with the files of *change* as its first version."""
        with _told():
            create_table_with_add_actions(
                self.address,
                self._schema,
                [_added(found, change) for found in change.added],
                name=self._topic,
                configuration=CONFIGURATION,
                storage_options=self._place.options or None,
                commit_properties=_properties(change),
            )
        self._sync(0)

    def apply(self, change: TableChange) -> None:
        """Write *change* as the version behind the one that state() has returned."""
        version = self._table.version() + 1
        removed = [_removed(old, change) for old in change.removed]
        with _told():
            self._table.create_write_transaction(
                [*removed, *(_added(found, change) for found in change.added)],
                "append",
                self._schema,
                commit_properties=_properties(change),
            )
            self._table.update_incremental()
        self._sync(version)

    def _sync(self, version: int) -> None:
        """Sync the version, which the library leaves to the operating system."""
        self._folder.sync(f"data/{self._topic}/_delta_log/{version:020}.json")
        if version == 0:
            self._folder.sync(f"data/{self._topic}/_delta_log")


def _properties(change: TableChange) -> CommitProperties:
    # No retries: another run's version is never passed, whatever it has changed.
    return CommitProperties(
        custom_metadata={"ternmq.manifest": f"{change.number:08}.json"},
        max_commit_retries=0,
        app_transactions=[Transaction(_OWNER, change.number)],
    )


def _added(found: ArchivedRange, change: TableChange) -> AddAction:
    stats = msgspec.json.encode(statistics(found)).decode()
    return AddAction(table_path(found), found.file_bytes, {}, change.made_ms, not change.is_rewrite, stats)


def _removed(old: ArchivedRange, change: TableChange) -> RemoveAction:
    return RemoveAction(
        path=table_path(old),
        data_change=False,
        deletion_timestamp=change.made_ms,
        size=old.file_bytes,
        partition_values={},
    )


@contextmanager
def _told(*, is_reading: bool = False) -> Iterator[None]:
    """Raise TableFault with one line of what the library says."""
    try:
        yield
    except CommitFailedError as error:
        raise TableFault(f"another run was faster; run again, one run at a time ({_line(error)})") from error
    except TableNotFoundError:
        raise
    except DeltaError as error:
        raise TableFault(f"{_line(error)}. {_REMEDY}" if is_reading else _line(error)) from error
    except OSError as error:
        raise TableFault(_line(error)) from error


def _line(error: Exception) -> str:
    """Return the text without marks, line ends and the frames of a backtrace."""
    lines = [line.strip() for line in _MARKS.sub("", str(error)).splitlines()]
    ends = [at for at, line in enumerate(lines) if _FRAME.match(line)]
    return " ".join(line for line in lines[: ends[0] if ends else len(lines)] if line)[:_TOLD_MAX].rstrip(". ")
