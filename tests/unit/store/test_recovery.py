"""Torn or rotten: what recovery cuts, and what it refuses to touch."""

import random
from pathlib import Path

import pytest

from tern_store import CommitLog, EntryKind, Genesis, LogRot, StoredEntry
from tests.support.faulty_files import FaultyFiles

GROUP = Genesis(b"g" * 16, ("a",), 8192)
DIRECTORY = Path("/data")
FIRST = DIRECTORY / "commitlog" / f"{0:020d}"
SECTOR = 512


def filled(sizes: list[int]) -> tuple[FaultyFiles, list[StoredEntry]]:
    """A closed log with entries of these body sizes behind its genesis; no body byte is zero."""
    files = FaultyFiles()
    log = CommitLog.open(DIRECTORY, group=GROUP, files=files)
    entries = [log.append(EntryKind.COMMANDS, log.end_index + 1, 1, (b"\xab" * size,), 1) for size in sizes]
    log.close()
    return files, entries


def recovered(files: FaultyFiles) -> CommitLog:
    return CommitLog.open(DIRECTORY, group=GROUP, files=files)


def test_a_file_that_ends_anywhere_in_the_last_entries_loses_only_them() -> None:
    """Cut the file at every byte of the last two entries; reopening keeps exactly what lies before, and goes on."""
    _, entries = filled([300, 700, 40])
    for size in range(entries[1].position, entries[2].mark.position):
        files, _ = filled([300, 700, 40])
        del files.content(FIRST)[size:]
        log = recovered(files)
        whole = [entry for entry in entries if entry.mark.position <= size]
        assert log.end_index == whole[-1].index
        assert log.was_torn == (size > entries[len(whole)].position)
        again = log.append(EntryKind.COMMANDS, log.end_index + 1, 2, (b"again",), 1)
        log.close()
        assert recovered(files).mark(again.index).crc == again.crc


def test_every_loss_of_whole_sectors_cuts_the_log_before_the_first_entry_touched() -> None:
    """Lose each set of sectors behind the synced part (as they were before: zero there); entries before it stay."""
    _, entries = filled([300, 100, 900, 30, 700])
    synced = entries[0].mark.position
    first, last = synced // SECTOR, (entries[-1].mark.position - 1) // SECTOR
    for lost in range(1, 1 << (last - first + 1)):
        files, _ = filled([300, 100, 900, 30, 700])
        content = files.content(FIRST)
        starts = [max(synced, sector * SECTOR) for sector in range(first, last + 1) if lost >> (sector - first) & 1]
        for start in starts:
            stop = (start // SECTOR + 1) * SECTOR
            content[start:stop] = bytes(stop - start)
        log = recovered(files)
        kept = [entry for entry in entries if entry.mark.position <= starts[0]]
        assert log.end_index == kept[-1].index
        assert not any(content[log.end_position :])


def test_what_lies_behind_a_torn_entry_never_comes_back() -> None:
    """Lose one sector of an entry, recover, write an entry of the same size there: the entry behind stays gone."""
    files, entries = filled([300, 900, 300])
    content = files.content(FIRST)
    content[SECTOR : 2 * SECTOR] = bytes(SECTOR)
    log = recovered(files)
    assert (log.end_index, log.was_torn) == (2, True)
    entry = log.append(EntryKind.COMMANDS, 3, 1, (b"\xab" * 900,), 1)
    assert entry.raw == entries[1].raw
    log.close()
    assert recovered(files).end_index == 3


def test_a_flipped_bit_anywhere_is_rot_and_nothing_is_cut() -> None:
    """Flip one bit in every byte of three entries, sizes included; the log refuses and leaves the bytes alone."""
    files, entries = filled([30, 700, 30])
    content = files.content(FIRST)
    for at in range(entries[2].mark.position):
        content[at] ^= 0x10
        before = bytes(content)
        with pytest.raises(LogRot) as caught:
            recovered(files)
        assert "Rebuild" in str(caught.value)
        assert caught.value.position <= at
        assert bytes(files.content(FIRST)) == before
        content = files.content(FIRST)
        content[at] ^= 0x10
    assert recovered(files).end_index == 4


def test_a_bad_entry_whose_own_bytes_are_zeros_but_whose_sectors_are_not_is_rot() -> None:
    """The last sector of an entry holds only its zeros, and the next entry behind them: it did arrive."""
    files = FaultyFiles()
    log = CommitLog.open(DIRECTORY, group=GROUP, files=files)
    first = log.append(EntryKind.COMMANDS, 2, 1, (b"\xab" * 300 + bytes(300),), 1)
    log.append(EntryKind.COMMANDS, 3, 1, (b"\xab" * 100,), 1)
    log.close()
    assert first.mark.position > SECTOR
    files.content(FIRST)[first.position + 60] ^= 1
    with pytest.raises(LogRot):
        recovered(files)


def test_a_whole_entry_that_does_not_follow_the_one_before_is_rot() -> None:
    """Put the entry of another history, checksum and all, in an entry's place."""
    files, entries = filled([100, 100])
    other = FaultyFiles()
    log = CommitLog.open(DIRECTORY, group=GROUP, files=other)
    log.append(EntryKind.COMMANDS, 2, 1, (b"\xcd" * 100,), 1)
    stranger = log.append(EntryKind.COMMANDS, 3, 1, (b"\xab" * 100,), 1)
    assert stranger.position == entries[1].position
    files.content(FIRST)[stranger.position : stranger.mark.position] = stranger.raw
    with pytest.raises(LogRot, match="does not follow"):
        recovered(files)


def test_a_missing_segment_is_rot_wherever_it_is_missing() -> None:
    """Remove the first, a middle and the last segment of four."""
    for number in range(4):
        files, _ = filled([3000] * 7)
        files.unlink(DIRECTORY / "commitlog" / f"{number * 8192:020d}")
        with pytest.raises(LogRot, match="missing"):
            recovered(files)
        assert files.open_count() == 0


def test_a_short_segment_in_the_middle_is_rot() -> None:
    """No crash of ours shortens a segment that has a successor."""
    files, _ = filled([3000] * 7)
    del files.content(DIRECTORY / "commitlog" / f"{8192:020d}")[6000:]
    with pytest.raises(LogRot, match="6000 bytes"):
        recovered(files)


def test_segments_behind_a_torn_tail_go_with_it() -> None:
    """Unsynced segments may arrive without what lies before them."""
    files, entries = filled([3000] * 7)
    content = files.content(FIRST)
    at = entries[1].position // SECTOR * SECTOR + SECTOR
    content[at : at + SECTOR] = bytes(SECTOR)
    log = recovered(files)
    assert (log.end_index, files.listdir(DIRECTORY / "commitlog")) == (2, [FIRST.name])


def test_a_damaged_or_absent_genesis_is_never_written_again() -> None:
    """Zero the genesis of a log with entries: a new log must not be begun over them."""
    files, entries = filled([100])
    files.content(FIRST)[: entries[0].position] = bytes(entries[0].position)
    with pytest.raises(LogRot):
        recovered(files)


def test_rot_found_while_reading_is_reported_not_returned() -> None:
    """Damage an entry of an open log behind the memory's back."""
    files, entries = filled([100, 100])
    log = CommitLog.open(DIRECTORY, group=GROUP, files=files)
    files.content(FIRST)[entries[0].position + 60] ^= 1
    with pytest.raises(LogRot, match="checksum"):
        log.entry(2)
    assert log.entry(3) == entries[1]


def test_random_tears_of_random_logs_are_never_called_rot() -> None:
    """200 seeded logs lose power with everything unsynced."""
    for seed in range(200):
        rng = random.Random(seed)
        files, _ = filled([rng.choice([0, 5, 400, 450, 512, 1300, 4000]) for _ in range(rng.randint(1, 12))])
        print(f"seed {seed}")
        files.crash(rng)
        log = recovered(files)
        assert [log.entry(index).index for index in range(1, log.end_index + 1)] == list(range(1, log.end_index + 1))
