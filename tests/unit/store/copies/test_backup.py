"""Backups as directories: the cut, what is kept over interruptions, what is refused; and nodes that are restored from them."""

import random
from pathlib import Path

import pytest

from tern_store import CopyRefused, Genesis, VoteFile, WrongGroup
from tern_store.backup.backup_directory import BackupDirectory
from tern_store.backup.restore import require_targets, restore_node, verified_backup
from tern_store.backup_note import BACKUP, UNDER_WAY, BackupNote, read_backup, read_under_way
from tern_store.checks.finding import FindingKind
from tern_store.checks.verification import verify_directory
from tern_store.errors import BackupDamaged, BackupRefused, DirectoryInUse
from tern_store.state.vote_file import Standing
from tests.support.files.faulty_files import FaultyFiles, PowerCut
from tests.support.files.store_node import DIRECTORY, GROUP
from tests.support.raft.rebuilding import CHUNK_SIZE_BYTES, Leader, copy, require_equal

BACKUPS = Path("/backup")
LOG = BACKUPS / "commitlog"
INCARNATION = b"restored".ljust(16)


def opened(files: FaultyFiles) -> BackupDirectory:
    return BackupDirectory.open(BACKUPS, files, chunk_size_bytes=CHUNK_SIZE_BYTES)


def finish(backup: BackupDirectory) -> BackupNote:
    note, _ = backup.finish(cluster="c", broker_group="g", release="1.0", made_at=lambda: "2026-11-22T00:00:00+00:00")
    backup.close()
    return note


def made(leader: Leader, files: FaultyFiles) -> BackupNote:
    backup = opened(files)
    backup.begin(leader.manifest())
    copy(leader.source, backup)
    return finish(backup)


def restored(note: BackupNote, files: FaultyFiles, target: Path = DIRECTORY) -> None:
    restore_node(note, BACKUPS, target, incarnation=INCARNATION, files=files, source_files=files)


def damages(files: FaultyFiles) -> list[str]:
    """What an offline check finds; the entries of these tests are no commands, which it says of each."""
    return [found.reason for found in verify_directory(BACKUPS, files) if found.kind is not FindingKind.RECORD]


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_a_restored_node_has_the_log_at_the_cut_and_what_follows_from_it(is_trimmed: bool) -> None:
    """Goal: also of a log that begins late; the verification finds nothing, in the backup and in the node before its first start."""
    leader, files = Leader(7, is_trimmed=is_trimmed), FaultyFiles()
    note = made(leader, files)
    assert read_backup(BACKUPS, files) == note
    assert damages(files) == []
    restored(note, files)
    found = [one for one in verify_directory(DIRECTORY, files) if one.kind is not FindingKind.RECORD]
    assert found == []
    require_equal(leader, files)


def test_the_cut_is_where_the_log_ended_when_the_backup_began() -> None:
    """Goal: whatever is written meanwhile, and however often the leader is asked again, also by another process."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    backup = opened(files)
    backup.begin(leader.manifest())
    cut = leader.node.log.mark(leader.node.log.end_index)
    leader.grow(5)
    backup.begin(leader.manifest())
    assert backup.cut == cut
    backup.close()
    files.end_process()
    leader.grow(5)
    backup = opened(files)
    backup.begin(leader.manifest())
    copy(leader.source, backup)
    assert finish(backup).cut == cut
    assert damages(files) == []


def test_an_interrupted_backup_is_none_and_goes_on_where_it_was() -> None:
    """Goal: the same directory, no byte of the log twice."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    backup = opened(files)
    backup.begin(leader.manifest())
    while backup.copied_bytes < backup.total_bytes * 2 // 3:
        piece = backup.wanted()
        assert piece is not None
        backup.write(piece.name, piece.position, leader.source.read(*piece))
    copied = backup.copied_bytes
    files.end_process()
    with pytest.raises(BackupRefused, match="is no backup"):
        read_backup(BACKUPS, files)
    backup = opened(files)
    backup.begin(leader.manifest())
    # A filler is zeros: all of it is there as soon as its header is.
    assert copied - 4096 < backup.copied_bytes <= -(-copied // 4096) * 4096
    assert copy(leader.source, backup) < backup.total_bytes // 2
    finish(backup)
    assert damages(files) == []


def test_a_trim_under_way_keeps_the_cut_and_what_was_copied() -> None:
    """Goal: the beginning goes, with the state that stands for it; the cut moves only when it goes itself, and then forward."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    backup = opened(files)
    backup.begin(leader.manifest())
    cut = backup.cut
    assert cut is not None
    copy(leader.source, backup)
    leader.trim()
    backup.begin(leader.manifest())
    if leader.node.log.start.index < cut.index:
        assert backup.cut == cut
        assert backup.copied_bytes > 0
    while leader.node.log.start.index < cut.index:
        leader.trim()
    backup.begin(leader.manifest())
    assert backup.cut is not None
    assert backup.cut.index > leader.node.log.start.index >= cut.index
    copy(leader.source, backup)
    note = finish(backup)
    assert note.manifest.start == leader.node.log.start
    assert damages(files) == []


def test_a_leader_that_is_behind_the_cut_is_not_copied_from() -> None:
    """Goal: one that was deposed and does not know it never moves the cut backward."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    older = leader.manifest()
    leader.grow(5)
    backup = opened(files)
    backup.begin(leader.manifest())
    cut = backup.cut
    with pytest.raises(CopyRefused):
        backup.begin(older)
    assert backup.cut == cut


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_an_older_backup_is_brought_up_to_date_and_only_what_is_new_is_copied(is_trimmed: bool) -> None:
    """Goal: it stays a backup until the newer copy is complete, and the newer one is a backup like any other."""
    leader, files = Leader(7, is_trimmed=is_trimmed), FaultyFiles()
    older = made(leader, files)
    leader.grow(10)
    backup = opened(files)
    assert backup.is_update
    backup.begin(leader.manifest())
    new_bytes = leader.node.log.end_position - older.cut.position
    assert copy(leader.source, backup) == new_bytes
    assert (read_backup(BACKUPS, files), damages(files)) == (older, [])
    note = finish(backup)
    assert note.cut.index == leader.node.log.end_index
    assert damages(files) == []
    restored(note, files)
    require_equal(leader, files)


def test_a_power_cut_during_an_update_leaves_a_backup_or_what_goes_on_to_one() -> None:
    """Goal: after any of its operations there is a whole backup, or the same command completes one."""
    cut_at, is_over, kept = 0, False, 0
    while not is_over:
        cut_at += 3
        leader, files = Leader(7, is_trimmed=False, entries=8), FaultyFiles()
        older = made(leader, files)
        leader.grow(6)
        newest = leader.node.log.end_index
        files.operations, files.cut_at = 0, cut_at
        try:
            made(leader, files)
            is_over = True
        except PowerCut:
            files.crash(random.Random(cut_at))
        if BACKUP in files.listdir(BACKUPS):
            kept += 1
            assert read_backup(BACKUPS, files).cut.index in {older.cut.index, newest}
            assert damages(files) == []
        files.cut_at = None
        assert made(leader, files).cut.index == newest
        assert damages(files) == []
        assert UNDER_WAY not in files.listdir(BACKUPS)
        assert not [path for path in files.paths(BACKUPS) if path.suffix == ".incoming"]
    assert cut_at > 60
    assert kept > 8, "the older one stays while the newer is copied"


def test_a_directory_with_anything_else_in_it_is_refused_and_left_as_it_was() -> None:
    """Goal: a node's directory, a file of somebody's, an empty note."""
    for name in ("votes", "letter.txt"):
        files = FaultyFiles()
        files.makedirs(BACKUPS)
        files.close(files.open(BACKUPS / name, create=True))
        with pytest.raises(BackupRefused, match="is not empty"):
            opened(files)
        assert files.listdir(BACKUPS) == [name]


def test_two_commands_never_share_a_directory() -> None:
    """Goal: the second one is told that the first goes on."""
    files = FaultyFiles()
    backup = opened(files)
    with pytest.raises(DirectoryInUse):
        opened(files)
    backup.close()
    opened(files).close()


def test_another_group_s_log_never_comes_into_a_backup() -> None:
    """Goal: neither into one that is complete nor into one under way."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    stranger = leader.manifest()
    entry = Genesis(b"h" * 16, GROUP.members, GROUP.segment_size_bytes).entry()
    stranger["genesis"] = bytes(entry.raw).hex()
    backup = opened(files)
    backup.begin(leader.manifest())
    with pytest.raises(WrongGroup):
        backup.begin(stranger)
    copy(leader.source, backup)
    finish(backup)
    backup = opened(files)
    with pytest.raises(WrongGroup):
        backup.begin(stranger)


def test_a_piece_that_does_not_continue_the_log_is_asked_for_again() -> None:
    """Goal: nothing of it stays."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    backup = opened(files)
    backup.begin(leader.manifest())
    piece = backup.wanted()
    assert piece is not None
    bad = bytearray(leader.source.read(*piece))
    bad[60] ^= 1
    with pytest.raises(CopyRefused):
        backup.write(piece.name, piece.position, bad)
    backup.begin(leader.manifest())
    copy(leader.source, backup)
    finish(backup)
    assert damages(files) == []


def test_a_copy_that_the_verification_finds_damaged_is_no_backup() -> None:
    """Goal: a byte in a filler, which no entry's checksum covers, is found at the end."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    backup = opened(files)
    backup.begin(leader.manifest())
    while (piece := backup.wanted()) is not None:
        data = bytearray(leader.source.read(*piece))
        at = piece.position + len(data)
        if at == GROUP.segment_size_bytes and not any(data[-4:]):
            data[-1] ^= 1
        backup.write(piece.name, piece.position, data)
    with pytest.raises(BackupDamaged, match="filler"):
        finish(backup)
    backup.close()
    with pytest.raises(BackupRefused):
        read_backup(BACKUPS, files)


@pytest.mark.parametrize("where", ["log", "cut", "note", "state"])
def test_a_damaged_backup_is_refused_before_anything_is_restored(where: str) -> None:
    """Goal: a bit in the log, an end that is missing, a bit in the note, a bit in the state at the log's start."""
    leader, files = Leader(7, is_trimmed=where == "state"), FaultyFiles()
    note = made(leader, files)
    if where == "log":
        files.flip(next(path for path in files.paths(LOG)), 70, 3)
    elif where == "state":
        files.flip(next(path for path in files.paths(BACKUPS / "state")), 90, 3)
    elif where == "note":
        content = files.content(BACKUPS / BACKUP)
        content[:] = content.replace(b'"size_bytes": ', b'"size_bytes": 1')
    else:
        last = files.content(LOG / f"{note.cut.position // 4096 * 4096:020d}")
        size = len(leader.node.log.entry(note.cut.index).raw)
        end = note.cut.position % 4096
        last[end - size : end] = bytes(size)
    with pytest.raises(BackupDamaged):
        verified_backup(BACKUPS, files)
    if where in {"log", "cut"}:
        with pytest.raises(CopyRefused):
            restored(note, files)
        assert "votes" not in files.listdir(DIRECTORY)


def test_targets_are_members_and_empty() -> None:
    """Goal: nothing is overwritten, and no stranger is made."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    note = made(leader, files)
    require_targets(note, [("a", Path("/a")), ("b", Path("/b"))], files)
    with pytest.raises(BackupRefused, match="no member"):
        require_targets(note, [("d", Path("/d"))], files)
    files.makedirs(Path("/a"))
    require_targets(note, [("a", Path("/a"))], files)
    files.close(files.open(Path("/a/votes"), create=True))
    with pytest.raises(BackupRefused, match="is not empty"):
        require_targets(note, [("a", Path("/a"))], files)


def test_a_restored_node_has_promised_nothing_and_votes_above_the_cut_s_term() -> None:
    """Goal: unborn, as it was before its group was founded; alone in its group, a member at once."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    note = made(leader, files)
    restored(note, files)
    votes = VoteFile.open(DIRECTORY, bootstrap=False, group=note.group, files=files)
    assert (votes.standing, votes.voted_for, votes.births) == (Standing.UNBORN, None, {})
    assert votes.term == votes.floor_term == note.cut.term + 1
    assert votes.incarnation == INCARNATION
    alone = Genesis(b"g" * 16, ("a",), 4096)
    VoteFile.restore(BACKUPS, group=alone, incarnation=INCARNATION, term=5, files=files)
    assert VoteFile.open(BACKUPS, bootstrap=False, group=alone, files=files).standing is Standing.MEMBER
    with pytest.raises(WrongGroup):
        VoteFile.restore(BACKUPS, group=alone, incarnation=INCARNATION, term=5, files=files)


def test_what_was_begun_is_read_again() -> None:
    """Goal: the note of a backup under way survives the process, and a damaged one is not taken for another."""
    leader, files = Leader(7, is_trimmed=False), FaultyFiles()
    backup = opened(files)
    backup.begin(leader.manifest())
    begun = read_under_way(BACKUPS, files)
    assert begun is not None
    assert (begun.cut, begun.group.group_id) == (backup.cut, GROUP.group_id)
    backup.close()
    files.flip(BACKUPS / UNDER_WAY, 4, 7)
    with pytest.raises(BackupDamaged):
        opened(files)
