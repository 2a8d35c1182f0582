"""Retention at the log: whole segments go from its beginning, durably, and the log knows where it begins."""

import contextlib
import errno
import random
from itertools import pairwise
from pathlib import Path

import pytest

from tern_store import CommitLog, EntryKind, Genesis, LogRot, StateCorrupt, StoredEntry, StoreError, WrongGroup
from tests.support.files.faulty_files import FaultyFiles, PowerCut

GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 4096)
DIRECTORY = Path("/data")
FOLDER = DIRECTORY / "commitlog"


def opened(files: FaultyFiles, **options: object) -> CommitLog:
    return CommitLog.open(DIRECTORY, group=GROUP, recent_max_bytes=0, files=files, **options)  # type: ignore[arg-type]


def filled(files: FaultyFiles) -> tuple[CommitLog, list[StoredEntry]]:
    log = opened(files)
    entries = [
        log.append(EntryKind.COMMANDS, log.end_index + 1, number // 10, (bytes([number]) * 700,), 1)
        for number in range(40)
    ]
    job = log.take_sync()
    assert job is not None
    job.run()
    log.mark_synced(job)
    return log, entries


def boundary(entries: list[StoredEntry], number: int) -> tuple[StoredEntry, StoredEntry]:
    """The last entry before segment *number*, and the first in it."""
    return next((a, b) for a, b in pairwise(entries) if b.position == number * 4096)


def trim(log: CommitLog, entry: StoredEntry) -> None:
    job = log.trim(entry.mark)
    assert job is not None
    job.run()
    log.mark_trimmed(job)


def test_dropped_segments_are_gone_and_the_rest_is_as_before() -> None:
    """Names, entries, terms, the term before the first; also after opening again, with and without the entry index."""
    files = FaultyFiles()
    log, entries = filled(files)
    last, first = boundary(entries, 3)
    trim(log, last)
    for turn in range(3):
        assert files.listdir(FOLDER)[:2] == [f"{3 * 4096:020d}", f"{4 * 4096:020d}"]
        assert (log.first_index, log.start.index, log.start.position) == (first.index, last.index, 3 * 4096)
        kept = [entry for entry in entries if entry.index >= first.index]
        assert [log.entry(entry.index) for entry in kept] == kept
        assert log.term_at(last.index) == last.term
        for index in (1, last.index):
            with pytest.raises(IndexError):
                log.entry(index)
        log.append(EntryKind.COMMANDS, log.end_index + 1, 9, (b"more",), 1)
        log.close()
        if turn:
            for name in files.listdir(DIRECTORY / "entryindex"):
                files.unlink(DIRECTORY / "entryindex" / name)
        log = opened(files, start=entries[-1].mark if turn else None)


def test_a_trim_needs_the_end_of_a_segment_and_something_behind_it() -> None:
    """In the middle of a segment nothing goes; the last entry cannot go; a mark of another log is refused."""
    log, entries = filled(FaultyFiles())
    assert log.trim(entries[1].mark) is None
    with pytest.raises(StoreError, match="cannot begin behind"):
        log.trim(entries[-1].mark)
    last, _ = boundary(entries, 2)
    trim(log, last)
    with pytest.raises((StoreError, IndexError)):
        log.trim(boundary(entries, 1)[0].mark)


def test_states_from_before_the_start_are_refused() -> None:
    """One of the very start is good; an older one is not."""
    files = FaultyFiles()
    log, entries = filled(files)
    last, _ = boundary(entries, 3)
    trim(log, last)
    log.close()
    opened(files, start=last.mark).close()
    with pytest.raises(StateCorrupt, match="older than the log"):
        opened(files, start=entries[2].mark)


def test_a_trimmed_log_still_knows_its_group_and_misses_its_first_segment() -> None:
    """The genesis is repeated in `start`; a missing first segment, or a damaged `start`, is rot."""
    files = FaultyFiles()
    log, entries = filled(files)
    trim(log, boundary(entries, 3)[0])
    log.close()
    with pytest.raises(WrongGroup):
        CommitLog.open(DIRECTORY, group=Genesis(b"h" * 16, ("a", "b", "c"), 4096), files=files)
    saved = bytes(files.content(FOLDER / "start"))
    for at in range(len(saved)):
        files.content(FOLDER / "start")[at] ^= 0x10
        with pytest.raises(LogRot, match="start"):
            opened(files)
        files.content(FOLDER / "start")[at] ^= 0x10
    files.unlink(FOLDER / f"{3 * 4096:020d}")
    with pytest.raises(LogRot, match="missing"):
        opened(files)


@pytest.mark.parametrize("cut_at", range(1, 12))
@pytest.mark.parametrize("seed", range(4))
def test_power_may_go_at_any_step_of_a_trim(cut_at: int, seed: int) -> None:
    """Afterwards the log begins where it did, or where it was to; nothing in between, nothing lost."""
    files = FaultyFiles()
    log, entries = filled(files)
    last, first = boundary(entries, 4)
    files.operations, files.cut_at = 0, cut_at
    with contextlib.suppress(PowerCut):
        trim(log, last)
    files.crash(random.Random(seed))
    log = opened(files)
    assert log.first_index in {1, first.index}
    assert log.end_index == entries[-1].index
    kept = [entry for entry in entries if entry.index >= log.first_index]
    assert [log.entry(entry.index) for entry in kept] == kept


@pytest.mark.parametrize("by_roll", [True, False])
def test_a_full_disk_takes_what_is_urgent_until_there_is_space_again(by_roll: bool) -> None:
    """Messages are refused at the roll; acks use the reserve; with space again everything goes on, and a new reserve is made."""
    files = FaultyFiles()
    log, _ = filled(files)
    job = log.preallocate_reserve()
    assert job is not None
    job.run()
    log.mark_preallocated(job)
    assert log.preallocate_reserve() is None
    capacity = files.used_bytes
    files.capacity_bytes = capacity

    def add(size: int, *, urgent: bool) -> StoredEntry:
        return log.append(EntryKind.COMMANDS, log.end_index + 1, 9, (bytes(size),), 1, urgent=urgent)

    with pytest.raises(OSError, match=rf"Errno {errno.ENOSPC}"):
        for _ in range(6):
            add(700, urgent=False)
    kept = log.end_index
    acks = [add(600, urgent=True)]
    assert log.is_on_reserve
    with pytest.raises(OSError, match=rf"Errno {errno.ENOSPC}"):
        add(10, urgent=False)
    acks += [add(40, urgent=True) for _ in range(5)]
    log.close()
    log = opened(files)
    assert log.is_on_reserve
    assert [log.entry(ack.index) for ack in acks] == acks
    assert log.end_index == kept + len(acks)
    rest = log.preallocate_reserve()
    assert rest is not None
    with pytest.raises(OSError, match=rf"Errno {errno.ENOSPC}"):
        rest.run()
    files.capacity_bytes = None
    if by_roll:
        add(700, urgent=False)  # asks for the space itself
    else:
        rest.run()
        log.mark_preallocated(rest)
    assert not log.is_on_reserve
    add(700, urgent=False)
    assert log.preallocate_reserve() is not None
