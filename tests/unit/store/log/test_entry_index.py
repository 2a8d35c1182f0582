"""The entry index: O(1) rows, derived from the log whenever they are lost."""

import errno
from pathlib import Path

import pytest

from tern_store import CommitLog, EntryKind, Genesis, StoredEntry
from tern_store.log.entry_index import EntryIndex, IndexRow
from tests.support.files.faulty_files import FaultyFiles

GROUP = Genesis(b"g" * 16, ("a",), 65536)
DIRECTORY = Path("/data")
ROWS = DIRECTORY / "entryindex" / f"{1:020d}"


def row(index: int) -> IndexRow:
    return IndexRow(index, index * 100, index // 3, 60 + index, index * 7)


def put(rows: EntryIndex, index: int) -> None:
    facts = row(index)
    rows.put(index, facts.position, facts.term, facts.size, facts.crc)


def opened(files: FaultyFiles) -> EntryIndex:
    return EntryIndex(DIRECTORY, files, rows_per_file=1000)


def test_rows_are_found_in_memory_in_files_and_after_reopening() -> None:
    """5,000 rows over five files, a tail in memory."""
    files = FaultyFiles()
    rows = opened(files)
    for index in range(1, 5001):
        put(rows, index)
    assert all(rows.find(index) == row(index) for index in range(1, 5001))
    assert (rows.count, rows.find(5001)) == (5000, None)
    rows.close()
    again = opened(files)
    assert again.count == 5000
    assert files.listdir(DIRECTORY) == [f"{first:020d}" for first in range(1, 5001, 1000)]
    assert all(again.find(index) == row(index) for index in range(1, 5001))


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500, 4096, 4999])
def test_a_cut_leaves_no_row_behind_it(count: int) -> None:
    """Cut at and beside file ends, in files and in the tail; then go on."""
    files = FaultyFiles()
    rows = opened(files)
    for index in range(1, 5001):
        put(rows, index)
    rows.cut(count)
    assert (rows.count, rows.find(count + 1)) == (count, None)
    for index in range(count + 1, count + 4):
        put(rows, index)
    rows.close()
    again = opened(files)
    assert again.count == count + 3
    assert all(again.find(index) == row(index) for index in range(1, count + 4))


def test_a_row_of_zeros_or_of_another_index_is_not_a_row() -> None:
    """What a crash leaves: a hole, and bytes that belong elsewhere."""
    files = FaultyFiles()
    rows = opened(files)
    for index in range(1, 11):
        put(rows, index)
    rows.close()
    content = files.content(DIRECTORY / ROWS.name)
    content[32:64] = bytes(32)
    content[64:96] = content[96:128]
    again = opened(files)
    assert [again.find(index) is None for index in range(1, 5)] == [False, True, True, False]


def test_a_full_disk_keeps_rows_in_memory() -> None:
    """ENOSPC while a block is written: every row is still found, and is written later."""
    files = FaultyFiles()
    rows = EntryIndex(DIRECTORY, files)
    files.fail_next("pwrite", errno.ENOSPC)
    for index in range(1, 5001):
        put(rows, index)
    assert all(rows.find(index) == row(index) for index in range(1, 5001))
    rows.close()
    assert EntryIndex(DIRECTORY, files).count == 5000


def log_of(files: FaultyFiles, count: int) -> list[StoredEntry]:
    log = CommitLog.open(DIRECTORY, group=GROUP, files=files)
    entries = [log.append(EntryKind.COMMANDS, index, 1, (bytes(index % 50),), 1) for index in range(2, count + 2)]
    log.close()
    return entries


@pytest.mark.parametrize("damage", ["missing", "short", "holes", "zeros"])
def test_lost_rows_are_derived_from_the_log_again(damage: str) -> None:
    """Damage the rows before a saved point, open behind it, and ask for every entry, the last first."""
    files = FaultyFiles()
    entries = log_of(files, 3000)
    content = files.content(ROWS)
    if damage == "missing":
        files.unlink(ROWS)
    elif damage == "short":
        del content[5000:]
    elif damage == "holes":
        for at in range(0, len(content), 1536):
            content[at : at + 512] = bytes(len(content[at : at + 512]))
    else:
        content[:] = bytes(len(content))
    log = CommitLog.open(DIRECTORY, group=GROUP, start=entries[-5].mark, files=files)
    assert [log.entry(entry.index) for entry in reversed(entries)] == entries[::-1]
    log.close()
    rows = EntryIndex(DIRECTORY / "entryindex", files)
    assert all(rows.find(entry.index) is not None for entry in entries)
