"""The commit log in order: place, roll, read, cut, sync. Real files, segments of 4 KiB."""

import errno
from pathlib import Path

import pytest

from tern_store import (
    CommitLog,
    EntryKind,
    EntryRefused,
    Genesis,
    LogMark,
    LogRot,
    StoredEntry,
    StoreError,
    SyncLost,
    WrongGroup,
)
from tests.support.files import faulty_files
from tests.support.files.faulty_files import FaultyFiles

GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 4096)


def opened(directory: Path, **options: object) -> CommitLog:
    return CommitLog.open(directory, group=GROUP, **options)  # type: ignore[arg-type]


def add(log: CommitLog, body: bytes, term: int = 1) -> StoredEntry:
    return log.append(EntryKind.COMMANDS, log.end_index + 1, term, (body,), 1)


def synced(log: CommitLog) -> CommitLog:
    job = log.take_sync()
    assert job is not None
    job.run()
    log.mark_synced(job)
    return log


def test_a_new_log_begins_with_its_durable_genesis(tmp_path: Path) -> None:
    """Open an empty directory, and again."""
    log = opened(tmp_path)
    assert (log.first_index, log.end_index, log.end_term, log.synced_index) == (1, 1, 0, 1)
    assert log.entry(1) == GROUP.entry()
    assert log.take_sync() is None
    log.close()


def test_entries_survive_closing_and_are_read_by_index(tmp_path: Path) -> None:
    """Append over several segments, reopen, read everything back from the files."""
    log = opened(tmp_path, recent_max_bytes=0)
    entries = [add(log, bytes([number]) * (number * 37 % 900), term=number // 10) for number in range(60)]
    assert [log.entry(entry.index) for entry in entries] == entries
    log.close()
    again = opened(tmp_path)
    assert [again.entry(entry.index) for entry in entries] == entries
    assert [again.term_at(entry.index) for entry in entries] == [entry.term for entry in entries]
    assert again.mark(entries[-1].index) == entries[-1].mark
    assert (again.mark(again.end_index).crc, again.end_position) == (
        entries[-1].crc,
        entries[-1].position + len(entries[-1]),
    )
    assert len(list((tmp_path / "commitlog").iterdir())) > 3


def test_an_entry_that_does_not_fit_begins_the_next_segment_behind_a_filler(tmp_path: Path) -> None:
    """Leave 7, 8 and 9 bytes more than needed: the filler's own 8 bytes decide."""
    for spare, position in ((7, 4096), (8, None), (9, None)):
        log = opened(tmp_path / str(spare))
        end = log.end_position
        entry = add(log, bytes(4096 - end - 48 - spare))
        assert entry.position == (position or end)
        following = add(log, b"x" * 100)
        if position is None:
            assert following.position == 4096
            assert log._segments.read(end + len(entry), 8) == b"TRNB" + spare.to_bytes(4, "big")
        log.close()
        assert opened(tmp_path / str(spare)).entry(3) == following


def test_a_follower_writes_the_same_bytes_at_the_same_places(tmp_path: Path) -> None:
    """Copy a leader's entries; the segment files are identical."""
    leader, follower = opened(tmp_path / "a"), opened(tmp_path / "b")
    for number in range(40):
        assert follower.append_stored(add(leader, bytes([number]) * (number * 91 % 1500)).raw).index == number + 2
    for path in sorted((tmp_path / "a" / "commitlog").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / "commitlog" / path.name).read_bytes()


def test_a_follower_refuses_what_does_not_continue_its_log(tmp_path: Path) -> None:
    """Offer a gap, a damaged entry, another history, a falling term, a wrong place; the log stays as it is."""
    leader, other, follower = opened(tmp_path / "a"), opened(tmp_path / "b"), opened(tmp_path / "c")
    first, second = add(leader, b"1", term=5), add(leader, b"2", term=5)
    foreign = [add(other, b"one", term=1), add(other, b"two", term=1)]
    with pytest.raises(EntryRefused, match="does not follow"):
        follower.append_stored(second.raw)
    with pytest.raises(EntryRefused, match="checksum"):
        follower.append_stored(first.raw[:-1] + b"?")
    follower.append_stored(first.raw)
    with pytest.raises(EntryRefused, match="of term"):
        follower.append_stored(foreign[1].raw)
    with pytest.raises(EntryRefused, match="ours has"):
        follower.append_stored(add(opened_at(tmp_path / "d", [b"other"]), b"x", term=9).raw)
    assert (follower.end_index, follower.mark(follower.end_index).crc) == (2, first.crc)
    follower.append_stored(second.raw)


def opened_at(directory: Path, bodies: list[bytes]) -> CommitLog:
    log = opened(directory)
    for body in bodies:
        add(log, body)
    return log


def test_a_leader_cannot_append_out_of_order_or_too_much(tmp_path: Path) -> None:
    """Wrong index, falling term, an entry larger than allowed: refused, nothing written."""
    log = opened(tmp_path, entry_size_max_bytes=200)
    add(log, b"x", term=4)
    for index, term, body in ((2, 4, b""), (4, 4, b""), (3, 3, b""), (3, 4, bytes(153))):
        with pytest.raises(EntryRefused):
            log.append(EntryKind.COMMANDS, index, term, (body,), 1)
    assert log.append(EntryKind.COMMANDS, 3, 4, (bytes(152),), 1).index == 3


def test_a_cut_is_final_and_the_log_goes_on_from_there(tmp_path: Path) -> None:
    """Cut over a segment boundary, append other entries, reopen: only the new history is there."""
    log = opened(tmp_path)
    old = [add(log, b"old" * 200) for _ in range(20)]
    log.truncate_from(old[3].index)
    assert (log.end_index, log.synced_index, log.mark(log.end_index).crc) == (old[2].index, old[2].index, old[2].crc)
    assert not any(log._segments.read(log.end_position, 4096 - log.end_position % 4096))
    new = [add(log, b"new" * 10, term=2) for _ in range(3)]
    log.close()
    again = opened(tmp_path)
    assert again.end_index == new[-1].index
    assert [again.entry(entry.index) for entry in old[:3] + new] == old[:3] + new
    with pytest.raises(IndexError):
        again.term_at(new[-1].index + 1)


def test_the_genesis_cannot_be_cut_and_a_cut_behind_the_end_is_nothing(tmp_path: Path) -> None:
    """Index 1 is refused, end + 1 changes nothing."""
    log = opened(tmp_path)
    add(log, b"x")
    log.truncate_from(3)
    assert log.end_index == 2
    with pytest.raises(StoreError, match="is the first of the log"):
        log.truncate_from(1)


def test_a_sync_covers_what_was_written_before_it_was_taken(tmp_path: Path) -> None:
    """Append between take and mark; overlapping jobs; nothing left at the end."""
    log = opened(tmp_path)
    add(log, b"1")
    job = log.take_sync()
    assert job is not None
    add(log, b"2")
    overlapping = log.take_sync()
    assert overlapping is not None
    job.run()
    log.mark_synced(job)
    assert log.synced_index == 2
    overlapping.run()
    log.mark_synced(overlapping)
    assert log.synced_index == 3
    assert log.take_sync() is None


def test_a_sync_taken_before_a_cut_promises_nothing_behind_it(tmp_path: Path) -> None:
    """Take, cut, append others at the same indexes, mark: the others are not called synced."""
    log = opened(tmp_path)
    for _ in range(30):
        add(log, bytes(500))
    job = log.take_sync()
    assert job is not None
    log.truncate_from(3)
    add(log, b"other", term=2)
    job.run()  # its descriptors are still open, although their files are gone
    log.mark_synced(job)
    assert log.synced_index == 2
    assert synced(log).synced_index == 3


def test_the_next_segment_is_taken_from_the_spare(tmp_path: Path) -> None:
    """Preallocate, roll: the spare has become the segment."""
    log = opened(tmp_path)
    job = log.preallocate_next()
    assert job is not None
    job.run()
    log.mark_preallocated(job)
    assert log.preallocate_next() is None
    spare = (tmp_path / "commitlog" / "spare").stat().st_ino
    while add(log, bytes(1000)).position < 4096:
        pass
    assert (tmp_path / "commitlog" / f"{4096:020d}").stat().st_ino == spare
    assert log.preallocate_next() is not None


def test_a_full_disk_refuses_the_roll_and_leaves_the_log_as_it_was() -> None:
    """ENOSPC from the allocation of a segment: nothing is written, and the same append works once there is room."""
    files, directory = FaultyFiles(), Path("/data")
    log = opened(directory, files=files)
    add(log, bytes(3000))
    before = (log.end_index, log.end_position)
    files.fail_next("fallocate", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        add(log, bytes(1500))
    assert (log.end_index, log.end_position) == before
    assert add(log, bytes(1500)).position == 4096


@pytest.mark.parametrize("body_size", [3000, 500])
def test_half_a_write_that_failed_is_erased(body_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write of an entry (or of the filler before it) fails half-way; a shorter entry follows; recovery sees only that."""
    monkeypatch.setattr(faulty_files, "PAGE_SIZE_BYTES", 64)  # segments are 4 KiB here
    files, directory = FaultyFiles(), Path("/data")
    log = opened(directory, files=files)
    add(log, bytes(2500))
    files.fail_next("pwrite", errno.ENOMEM)
    with pytest.raises(OSError, match="memory"):
        add(log, b"x" * body_size)
    entry = add(log, b"y")
    log.close()
    again = opened(directory, files=files)
    assert (again.end_index, again.mark(again.end_index).crc) == (3, entry.crc)


@pytest.mark.parametrize("lost", ["the write", "the sync of its erasure", "the sync of a cut"])
def test_a_log_that_has_lost_something_takes_no_more(lost: str) -> None:
    """Every later append says so, and that the node must be rebuilt."""
    files, directory = FaultyFiles(), Path("/data")
    log = opened(directory, files=files)
    add(log, b"w")
    files.fail_next("pwrite", errno.EIO if lost == "the write" else errno.ENOMEM)
    if lost == "the sync of a cut":
        files.fail_next("fdatasync", errno.EIO)
        with pytest.raises(OSError, match="memory"):
            log.truncate_from(log.end_index)  # its zeros are refused: what is left to do comes first
    elif lost == "the sync of its erasure":
        files.fail_next("fdatasync", errno.EIO)
    with pytest.raises(SyncLost):
        add(log, b"x")
    with pytest.raises(StoreError, match="must be rebuilt"):
        add(log, b"x")


def test_another_groups_log_is_not_opened(tmp_path: Path) -> None:
    """Other id, other members: WrongGroup names both. The segment size is that of the log."""
    opened(tmp_path).close()
    for group in (Genesis(b"h" * 16, GROUP.members, 4096), Genesis(GROUP.group_id, ("a", "b"), 4096)):
        with pytest.raises(WrongGroup, match="configured for"):
            CommitLog.open(tmp_path, group=group)
    log = CommitLog.open(tmp_path, group=Genesis(GROUP.group_id, ("c", "b", "a"), 8192))
    assert log.segment_size_bytes == 4096


def test_recovery_begins_behind_a_saved_point(tmp_path: Path) -> None:
    """Start from every mark: the end is the same. A mark that is not of this log is refused."""
    log = opened(tmp_path)
    entries = [add(log, bytes(700)) for _ in range(20)]
    log.close()
    for entry in entries:
        again = opened(tmp_path, start=entry.mark)
        assert (again.end_index, again.mark(again.end_index).crc) == (21, entries[-1].crc)
        again.close()
    mark = entries[5].mark
    behind = LogMark(22, entries[-1].mark.position + 48, 1, 1)
    for wrong in (LogMark(mark.index, mark.position, mark.crc ^ 1, mark.term), behind):
        with pytest.raises(LogRot):
            opened(tmp_path, start=wrong)
    with pytest.raises(LogRot, match="no log"):
        opened(tmp_path / "empty", start=mark)


def test_no_descriptor_is_left_open_by_a_log_that_was_closed_or_refused() -> None:
    """Open, roll, cut with a job outstanding, close; then refuse a mark."""
    files, directory = FaultyFiles(), Path("/data")
    log = opened(directory, files=files)
    entries = [add(log, bytes(900)) for _ in range(20)]
    job = log.take_sync()
    assert job is not None
    log.truncate_from(4)
    log.close()
    with pytest.raises(LogRot):
        opened(directory, files=files, start=entries[-1].mark)
    assert files.open_count() == 0
