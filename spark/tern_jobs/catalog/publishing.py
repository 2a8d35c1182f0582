"""The tables of an archive as a whole: which there are, what brings them up to date, and whether
they are what the manifests say.

Law: a table that cannot be continued is told and left as it is. It holds up no other table, and
never the archive: rows that wait for a table would be lost to retention.
"""

from collections.abc import Iterable, Sequence

import msgspec

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import Manifest
from tern_jobs.catalog.changes import (
    TableChange,
    TableFault,
    TableState,
    differences,
    files_at,
    table_changes,
)
from tern_jobs.catalog.places import table_place
from tern_jobs.frame.outcome import Table
from tern_wire.extras import ExtraMissing, need_extra
from tern_wire.reasons import reason_of

# Faults of a table that are told; where one file differs, often all do.
_DIFFERENCES_MAX = 10


class TableFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is as the manifests say."""

    topic: str
    address: str
    version: int
    files: int
    rows: int


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that are right, a line for each fault, and how many were not looked at."""

    right: list[TableFacts] = []
    faults: list[str] = []
    not_compared: int = 0


def check_catalog(folder: ArchiveFolder, topics: Iterable[str]) -> None:
    """Raise ExtraMissing or JobFailed when tables of *topics* cannot be made here."""
    need_extra("ternmq[tables]", "The table of an archive", "deltalake")
    for topic in topics:
        table_place(folder, topic)


def publish_tables(folder: ArchiveFolder, manifests: Sequence[Manifest], wanted: Sequence[str] = ()) -> Tables:
    """Bring every table of the archive up to the newest manifest.

    Make those of the topics *wanted* that have none.
    """
    changes = table_changes(manifests)
    right: list[TableFacts] = []
    faults: list[str] = []
    for topic in sorted({*changes, *wanted}):
        try:
            if topic in wanted or _has_table(folder, topic):
                right.append(_publish(folder, topic, changes.get(topic, []), manifests))
        except (TableFault, ExtraMissing) as error:
            faults.append(_fault(topic, error))
    return Tables(right=right, faults=faults)


def compare_tables(folder: ArchiveFolder, manifests: Sequence[Manifest], topics: Iterable[str]) -> Tables:
    """Compare the tables of *topics* with the manifests; change nothing."""
    changes = table_changes(manifests)
    right: list[TableFacts] = []
    faults: list[str] = []
    not_compared = 0
    for topic in sorted(topics):
        try:
            if _has_table(folder, topic):
                right.append(_compare(folder, topic, changes.get(topic, []), len(manifests)))
        except ExtraMissing:
            not_compared += 1
        except TableFault as error:
            faults.append(_fault(topic, error))
    return Tables(right=right, faults=faults, not_compared=not_compared)


def tables_shown(tables: Tables) -> Table:
    """Return *tables* as a table of a job's outcome."""
    return Table(
        title="Delta tables",
        columns=("topic", "address", "version", "files", "rows"),
        rows=[(found.topic, found.address, found.version, found.files, found.rows) for found in tables.right],
    )


def _publish(
    folder: ArchiveFolder, topic: str, changes: list[TableChange], manifests: Sequence[Manifest]
) -> TableFacts:
    need_extra("ternmq[tables]", "The table of an archive", "deltalake")
    from tern_jobs.catalog.delta import TopicTable  # noqa: PLC0415 - only an archive with tables needs the library

    table = TopicTable(folder, topic)
    number = len(manifests)
    state = table.state()
    if state is None:
        files = list(files_at(changes, number).values())
        made_ms = manifests[-1].made_ms if manifests else 0
        table.create(TableChange(number=number, made_ms=made_ms, added=files))
        return _facts(topic, table.address, 0, changes, number)
    _check_state(state, changes, number)
    version = state.version
    for change in changes:
        if change.number > state.number:
            table.apply(change)
            version += 1
    return _facts(topic, table.address, version, changes, number)


def _compare(folder: ArchiveFolder, topic: str, changes: list[TableChange], number: int) -> TableFacts:
    need_extra("ternmq[tables]", "The table of an archive", "deltalake")
    from tern_jobs.catalog.delta import TopicTable  # noqa: PLC0415 - see _publish

    table = TopicTable(folder, topic)
    state = table.state()
    if state is None:
        raise TableFault("its log has no version")
    _check_state(state, changes, number)
    if any(change.number > state.number for change in changes):
        raise TableFault(f"it is of manifest {state.number}, the archive has {number}: run `archive` again")
    return _facts(topic, table.address, state.version, changes, number)


def _check_state(state: TableState, changes: list[TableChange], number: int) -> None:
    """Raise TableFault unless the table is what its manifest has made of it."""
    if state.number > number:
        raise TableFault(f"it is of manifest {state.number}, the archive has {number}")
    if lines := differences(files_at(changes, state.number), state.files):
        more = f" and {len(lines) - _DIFFERENCES_MAX} more" if len(lines) > _DIFFERENCES_MAX else ""
        raise TableFault(
            f"{'; '.join(lines[:_DIFFERENCES_MAX])}{more}. "
            "Remove its folder _delta_log, and run `archive` with --catalog"
        )


def _facts(topic: str, address: str, version: int, changes: list[TableChange], number: int) -> TableFacts:
    files = files_at(changes, number)
    rows = sum(found.rows for found in files.values())
    return TableFacts(topic=topic, address=address, version=version, files=len(files), rows=rows)


def _has_table(folder: ArchiveFolder, topic: str) -> bool:
    """Return whether the topic has a log with a version or a checkpoint in it."""
    try:
        names = folder.names(f"data/{topic}/_delta_log")
    except OSError as error:
        raise TableFault(reason_of(error)) from error
    return any(name[:20].isdigit() and name.endswith((".json", ".parquet")) for name in names)


def _fault(topic: str, error: Exception) -> str:
    text = error.detail if isinstance(error, ExtraMissing) else str(error)
    return f"table of '{topic}': {text}"
