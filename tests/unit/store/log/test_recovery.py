"""Torn or rotten: what recovery cuts, and what it refuses to touch."""

import contextlib
import random
from pathlib import Path

import pytest

from tern_store import HEADER_SIZE_BYTES, CommitLog, EntryKind, Genesis, LogRot, StoredEntry, encode_entry
from tests.support.files.faulty_files import FaultyFiles, PowerCut

GROUP = Genesis(b"g" * 16, ("a",), 8192)
# Whose log does not wait for its disk.
PIPELINED = Genesis(b"g" * 16, ("a", "b", "c"), 8192)
DIRECTORY = Path("/data")
FIRST = DIRECTORY / "commitlog" / f"{0:020d}"
SECTOR = 512


def filled(sizes: list[int], *, zeros: int = 0, group: Genesis = GROUP) -> tuple[FaultyFiles, list[StoredEntry]]:
    """A closed log with entries of these body sizes behind its genesis; no body byte is zero but for *zeros* at the end of each."""
    files = FaultyFiles()
    log = CommitLog.open(DIRECTORY, group=group, files=files)
    bodies = [b"\xab" * size + bytes(zeros) for size in sizes]
    entries = [log.append(EntryKind.COMMANDS, log.end_index + 1, 1, (body,), 1) for body in bodies]
    log.close()
    return files, entries


def recovered(files: FaultyFiles, group: Genesis = GROUP) -> CommitLog:
    return CommitLog.open(DIRECTORY, group=group, files=files)


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
    """Lose each set of sectors of what a pipelined log had not synced (zero as before); entries before the first lost one stay."""
    _, entries = filled([300, 100, 900, 30, 700], group=PIPELINED)
    synced = entries[0].mark.position
    first, last = synced // SECTOR, (entries[-1].mark.position - 1) // SECTOR
    for lost in range(1, 1 << (last - first + 1)):
        files, _ = filled([300, 100, 900, 30, 700], group=PIPELINED)
        content = files.content(FIRST)
        starts = [max(synced, sector * SECTOR) for sector in range(first, last + 1) if lost >> (sector - first) & 1]
        for start in starts:
            stop = (start // SECTOR + 1) * SECTOR
            content[start:stop] = bytes(stop - start)
        log = recovered(files, PIPELINED)
        kept = [entry for entry in entries if entry.mark.position <= starts[0]]
        assert log.end_index == kept[-1].index
        assert not any(content[log.end_position :])


def test_what_lies_behind_a_torn_entry_never_comes_back() -> None:
    """Lose one sector of an entry, recover, write an entry of the same size there: the entry behind stays gone."""
    files, entries = filled([300, 900, 300], group=PIPELINED)
    content = files.content(FIRST)
    content[SECTOR : 2 * SECTOR] = bytes(SECTOR)
    log = recovered(files, PIPELINED)
    assert (log.end_index, log.was_torn) == (2, True)
    entry = log.append(EntryKind.COMMANDS, 3, 1, (b"\xab" * 900,), 1)
    assert entry.crc == entries[1].crc
    log.close()
    assert recovered(files, PIPELINED).end_index == 3


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
    """The first entry of a segment is torn: the log ends in the segment before, and the other file is gone."""
    files, entries = filled([3000] * 3)
    second = DIRECTORY / "commitlog" / f"{8192:020d}"
    assert entries[2].position == 8192
    content = files.content(second)
    content[SECTOR : 2 * SECTOR] = bytes(SECTOR)
    log = recovered(files)
    assert (log.end_index, log.was_torn, files.listdir(DIRECTORY / "commitlog")) == (3, True, [FIRST.name])


def test_whatever_lies_in_a_later_segment_makes_it_rot() -> None:
    """Lose a sector of an entry, and one of the filler behind it; a pipelined log knows, too, what was synced when a segment began."""
    for group in (GROUP, PIPELINED):
        for number in (0, 1):
            files, entries = filled([3000] * 3, group=group)
            content = files.content(FIRST)
            at = (entries[number].position, entries[number].mark.position)[number] // SECTOR * SECTOR + SECTOR
            content[at - number * SECTOR : at + SECTOR] = bytes((1 + number) * SECTOR)
            with pytest.raises(LogRot, match="was written when it was durable"):
                recovered(files, group)


@pytest.mark.parametrize("members", [("a",), ("a", "b", "c")])
def test_a_flipped_bit_in_an_entry_that_holds_zero_sectors_is_rot_if_an_entry_follows(members: tuple[str, ...]) -> None:
    """Flip a bit of each byte of an entry that is not zero, with bodies that end in zero sectors; nothing is cut."""
    group = Genesis(b"g" * 16, members, 8192)
    files, entries = filled([40] * 4, zeros=2000, group=group)
    content, middle = files.content(FIRST), entries[1]
    for at in [at for at in range(middle.position, middle.mark.position) if content[at]]:
        content[at] ^= 0x10
        before = bytes(content)
        with pytest.raises(LogRot):
            CommitLog.open(DIRECTORY, group=group, files=files)
        assert bytes(files.content(FIRST)) == before
        content = files.content(FIRST)
        content[at] ^= 0x10
    assert CommitLog.open(DIRECTORY, group=group, files=files).end_index == 5


def test_a_size_that_has_rotted_beyond_the_entries_behind_is_rot() -> None:
    """Several bits of the size change, so that it spans all the rest of the log with its zeros."""
    files, entries = filled([40, 40, 40], zeros=700)
    content, first = files.content(FIRST), entries[0].position
    content[first + 4 : first + 8] = (8192 - first).to_bytes(4, "big")
    with pytest.raises(LogRot):
        recovered(files)


def test_a_lost_first_sector_with_a_good_entry_behind_is_rot() -> None:
    """The header of a synced entry is zeros: that is not the end of the log."""
    files, entries = filled([600, 600, 600])
    content = files.content(FIRST)
    start = entries[1].position
    content[start : (start // SECTOR + 1) * SECTOR] = bytes((start // SECTOR + 1) * SECTOR - start)
    with pytest.raises(LogRot, match="zeros where it should begin"):
        recovered(files)


def test_a_pipelined_entry_convicts_only_of_what_was_synced_when_it_was_written() -> None:
    """Entries 2 to 4 are unsynced together; a sync; 5 and 6. Damage in 3 is rot, in 5 it is a tear: 6 did not wait for it."""
    for damaged, is_rot in ((3, True), (5, False)):
        files = FaultyFiles()
        log = CommitLog.open(DIRECTORY, group=PIPELINED, files=files)
        for index in range(2, 5):
            log.append(EntryKind.COMMANDS, index, 1, (b"\xab" * 40 + bytes(1200),), 1)
        job = log.take_sync()
        assert job is not None
        job.run()
        log.mark_synced(job)
        for index in range(5, 7):
            log.append(EntryKind.COMMANDS, index, 1, (b"\xab" * 40 + bytes(1200),), 1)
        position = log.mark(damaged - 1).position
        log.close()
        files.content(FIRST)[position + 60] ^= 1
        if is_rot:
            with pytest.raises(LogRot, match="entry 5 was written when it was durable"):
                recovered(files, PIPELINED)
        else:
            log = recovered(files, PIPELINED)
            assert (log.end_index, log.was_torn) == (4, True)


def test_a_message_that_looks_like_the_next_entry_convicts_nobody() -> None:
    """The torn last entry carries, in its own body, the bytes of an entry that would stand there."""
    files = FaultyFiles()
    log = CommitLog.open(DIRECTORY, group=GROUP, files=files)
    position = log.end_position + HEADER_SIZE_BYTES + 1000
    forged = encode_entry(EntryKind.COMMANDS, 3, 1, (b"x" * 40,), 1, position=position, previous_crc=7).raw
    log.append(EntryKind.COMMANDS, 2, 1, (b"\xab" * 1000 + forged + b"\xab" * 900,), 1)
    log.close()
    files.content(FIRST)[SECTOR : 2 * SECTOR] = bytes(SECTOR)
    log = recovered(files)
    assert (log.end_index, log.was_torn) == (1, True)


def test_a_cut_that_is_interrupted_anywhere_leaves_no_rot() -> None:
    """Cut four of eight synced entries and lose power at every operation of it, by chance: the log opens, its first half is there."""
    for cut_at in range(1, 40):
        files = FaultyFiles()
        log = CommitLog.open(DIRECTORY, group=PIPELINED, files=files)
        for index in range(2, 10):
            log.append(EntryKind.COMMANDS, index, 1, (b"\xab" * 1200,), 1)
        job = log.take_sync()
        assert job is not None
        job.run()
        log.mark_synced(job)
        files.cut_at = files.operations + cut_at
        with contextlib.suppress(PowerCut):
            log.truncate_from(6)
        files.crash(random.Random(cut_at))
        assert recovered(files, PIPELINED).end_index >= 5


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
    """200 seeded logs lose power with what is unsynced in them, half of them with zero sectors in every entry."""
    for seed in range(200):
        rng = random.Random(seed)
        sizes = [rng.choice([0, 5, 400, 450, 512, 1300, 4000]) for _ in range(rng.randint(1, 12))]
        group = PIPELINED if seed % 4 < 2 else GROUP
        files, _ = filled(sizes, group=group, zeros=seed % 2 * 1100)
        print(f"seed {seed}")
        files.crash(rng)
        log = recovered(files, group)
        assert [log.entry(index).index for index in range(1, log.end_index + 1)] == list(range(1, log.end_index + 1))
