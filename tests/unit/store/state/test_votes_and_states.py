"""What a node must not forget: its vote, its saved state, and that the directory is its own."""

import contextlib
import errno
import hashlib
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tern_store import (
    CommitLog,
    DirectoryInUse,
    DirectoryLock,
    Genesis,
    LogMark,
    StateSave,
    StoreError,
    VoteCorrupt,
    VoteFile,
    WrongGroup,
    load_state,
    load_states,
)
from tern_store.state.vote_file import Standing
from tests.support.files.faulty_disk import Nothing
from tests.support.files.faulty_files import FaultyFiles, PowerCut

GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 65536)
DIRECTORY = Path("/data")
VOTES = DIRECTORY / "votes"


def votes(files: FaultyFiles, *, bootstrap: bool = False) -> VoteFile:
    return VoteFile.open(DIRECTORY, bootstrap=bootstrap, group=GROUP, files=files)


def test_a_vote_is_read_again_and_a_group_is_born_once() -> None:
    """Bootstrap, vote, reopen without bootstrap, and with it: the vote stays."""
    files = FaultyFiles()
    file = votes(files, bootstrap=True)
    assert (file.term, file.voted_for) == (0, None)
    for term, name in ((1, "a"), (2, None), (3, "b"), (4, "")):
        file.save(term, name)
        assert (votes(files).term, votes(files).voted_for) == (term, name)
    assert votes(files, bootstrap=True).term == 4


def test_a_vote_whose_sync_failed_in_a_process_that_died_unnoted_is_written_again_when_it_is_read() -> None:
    """Fail the sync of a vote, kill the process before it can note that, open, lose power: the vote that was read is there."""
    files = FaultyFiles()
    file = votes(files, bootstrap=True)
    file.save(1, "a")
    files.fail_next("fdatasync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.save(2, "b")
    files.end_process()
    assert votes(files).voted_for == "b"
    after = votes(files.after_crash(Nothing()))
    assert (after.term, after.voted_for) == (2, "b")


def test_an_empty_directory_never_becomes_a_member_by_itself() -> None:
    """Without bootstrap, and with it where a log is, the node is one to be rebuilt: it may have voted and forgotten it."""
    for begin, bootstrap in ((lambda _: None, False), (_begin_log, True), (_begin_log, False)):
        files = FaultyFiles()
        begin(files)
        file = votes(files, bootstrap=bootstrap)
        assert (file.standing, file.term, file.voted_for) == (Standing.REBUILDING, 0, None)
        assert file.replaced


def test_a_group_of_one_has_nobody_to_be_rebuilt_from() -> None:
    """Without bootstrap, with it where a log is, and with a bad slot: an error says what to do."""
    alone, files = Genesis(b"g" * 16, ("a",), 65536), FaultyFiles()
    with pytest.raises(WrongGroup, match="is empty, but this group was born already"):
        VoteFile.open(DIRECTORY, bootstrap=False, group=alone, files=files)
    assert VoteFile.open(DIRECTORY, bootstrap=True, group=alone, files=files).standing is Standing.MEMBER
    files.content(VOTES)[40] ^= 1
    with pytest.raises(VoteCorrupt, match="no peer"):
        VoteFile.open(DIRECTORY, bootstrap=True, group=alone, files=files)
    files = FaultyFiles()
    CommitLog.open(DIRECTORY, group=alone, files=files).close()
    with pytest.raises(WrongGroup, match="has a log"):
        VoteFile.open(DIRECTORY, bootstrap=True, group=alone, files=files)


def test_what_a_node_is_and_was_is_read_again() -> None:
    """Unborn, born with the incarnations of all, doubtful, settled, forgotten, readmitted; the vote stays beside it."""
    files = FaultyFiles()
    births = {name: name.encode() * 16 for name in GROUP.members}
    steps: list[tuple[Callable[[VoteFile], None], tuple[Standing, bytes, int]]] = [
        (lambda _: None, (Standing.UNBORN, b"a" * 16, 0)),
        (lambda file: file.be_born(births), (Standing.MEMBER, b"a" * 16, 0)),
        (VoteFile.doubt, (Standing.DOUBTFUL, b"a" * 16, 0)),
        (VoteFile.be_settled, (Standing.MEMBER, b"a" * 16, 0)),
        (lambda file: file.forget(b"z" * 16), (Standing.REBUILDING, b"z" * 16, 0)),
        (VoteFile.doubt, (Standing.REBUILDING, b"z" * 16, 0)),
        (VoteFile.be_settled, (Standing.REBUILDING, b"z" * 16, 0)),
        (lambda file: file.be_readmitted(7), (Standing.MEMBER, b"z" * 16, 7)),
        (lambda file: file.be_readmitted(5), (Standing.MEMBER, b"z" * 16, 7)),
    ]
    file = VoteFile.open(DIRECTORY, bootstrap=True, group=GROUP, incarnation=b"a" * 16, files=files)
    for number, (step, expected) in enumerate(steps):
        step(file)
        file.save(number, "b")
        again = votes(files)
        assert (again.standing, again.incarnation, again.floor_term) == expected
        assert (again.term, again.voted_for, again.births) == (number, "b", births if number else {})


def test_the_votes_of_an_early_release_are_those_of_a_member() -> None:
    """Format 1 had no standing: whoever had votes was a member."""
    files = FaultyFiles()
    votes(files, bootstrap=True).close()
    members = hashlib.sha256(b"a\nb\nc").digest()
    for number in (0, 1):
        head = struct.pack(">4sHHQQ16s32s", b"TRNV", 1, 1, number, 3 + number, GROUP.group_id, members) + b"b"
        slot = head.ljust(508, b"\0")
        files.content(VOTES)[512 * number : 512 * number + 512] = slot + zlib.crc32(slot).to_bytes(4, "big")
    file = votes(files)
    assert (file.term, file.voted_for, file.standing, file.floor_term) == (4, "b", Standing.MEMBER, 0)
    assert file.births == {}
    file.save(5, None)
    assert (votes(files).term, votes(files).standing) == (5, Standing.MEMBER)


def _begin_log(files: FaultyFiles) -> None:
    CommitLog.open(DIRECTORY, group=GROUP, files=files).close()


def test_the_votes_of_another_group_are_refused() -> None:
    """Other id, other members."""
    files = FaultyFiles()
    votes(files, bootstrap=True)
    for group in (Genesis(b"h" * 16, GROUP.members, 65536), Genesis(GROUP.group_id, ("a", "b"), 65536)):
        with pytest.raises(WrongGroup, match="configured for"):
            VoteFile.open(DIRECTORY, bootstrap=True, group=group, files=files)
    assert (
        VoteFile.open(DIRECTORY, bootstrap=False, group=Genesis(b"g" * 16, ("c", "b", "a"), 8192), files=files).term
        == 0
    )


@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("at", [0, 8, 16, 80, 300, 511])
def test_a_bad_slot_may_have_held_the_newest_vote(slot: int, at: int) -> None:
    """A crash never leaves one, so it is rot, and the node does not vote as if the other slot were all it ever said."""
    files = FaultyFiles()
    file = votes(files, bootstrap=True)
    file.save(5, "a")  # sequence 1: the second slot
    file.save(6, "b")  # sequence 2: the first
    content = files.content(VOTES)
    content[512 * slot + at] ^= 1
    damaged = bytes(content)
    assert votes(files).standing is Standing.REBUILDING
    files.content(VOTES)[:] = damaged
    files.content(VOTES)[512 * slot + at] ^= 1
    assert (votes(files).term, votes(files).voted_for, votes(files).standing) == (6, "b", Standing.UNBORN)


def test_a_slot_that_went_back_to_an_older_vote_is_noticed() -> None:
    """A write that the disk lost: the sequences do not follow each other."""
    files = FaultyFiles()
    file = votes(files, bootstrap=True)
    file.save(5, "a")
    old = bytes(files.content(VOTES)[512:])
    for term in (6, 7, 8):
        file.save(term, "b")
    files.content(VOTES)[512:] = old
    assert votes(files).standing is Standing.REBUILDING


def test_a_vote_survives_a_power_cut_at_every_operation() -> None:
    """A vote whose save returned is there; one whose save did not may be there."""
    for seed in range(300):
        rng, files = random.Random(seed), FaultyFiles()
        files.cut_at = 1 + seed % 16
        saved = tried = 0
        try:
            file = votes(files, bootstrap=True)
            for term in range(1, 20):
                tried = term
                file.save(term, f"node-{term}")
                saved = term
        except PowerCut:
            files.crash(rng)
        found = votes(files, bootstrap=True)
        assert found.term in (saved, tried)
        assert found.voted_for == (f"node-{found.term}" if found.term else None)


def test_a_name_that_does_not_fit_its_slot_is_refused() -> None:
    """433 bytes are too many; the vote before stays."""
    file = votes(FaultyFiles(), bootstrap=True)
    with pytest.raises(StoreError, match="433"):
        file.save(1, "x" * 433)
    assert (file.term, file.voted_for) == (0, None)


def save(files: FaultyFiles, index: int, payload: bytes) -> LogMark:
    mark = LogMark(index, index * 100, index * 7, index // 10)
    StateSave(DIRECTORY, mark, [payload[:3], memoryview(payload)[3:]], files).run()
    return mark


def test_two_generations_of_the_state_are_kept() -> None:
    """Save five times; the newest two are there, newest first."""
    files = FaultyFiles()
    marks = [save(files, index, b"state %d" % index) for index in (10, 20, 30, 40, 50)]
    assert [(state.mark, state.payload) for state in load_states(DIRECTORY, files)] == [
        (marks[4], b"state 50"),
        (marks[3], b"state 40"),
    ]
    newest, older = load_state(DIRECTORY, None, files), load_state(DIRECTORY, 49, files)
    assert newest is not None and newest.mark == marks[4]
    assert older is not None and older.mark == marks[3]
    assert load_state(DIRECTORY, 39, files) is None
    StateSave(DIRECTORY, marks[4], b"whole", files).run()
    assert [state.payload for state in load_states(DIRECTORY, files)] == [b"whole", b"state 40"]


def test_a_state_of_a_future_that_was_lost_does_not_outlive_the_next_save() -> None:
    """The log ended before 50: state 40 was loaded, 45 is saved; what is kept is 45 and 40."""
    files = FaultyFiles()
    for index in (40, 50, 45):
        save(files, index, b"state")
    assert [state.mark.index for state in load_states(DIRECTORY, files)] == [45, 40]


def test_a_damaged_state_is_skipped() -> None:
    """Flip a bit of every byte, and cut at every byte, of the newer of two."""
    files = FaultyFiles()
    save(files, 10, b"old")
    save(files, 20, b"new")
    path = DIRECTORY / "state" / f"state-{20:020d}.bin"
    whole = bytes(files.content(path))
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]):
            files.content(path)[:] = damaged
            found = load_state(DIRECTORY, None, files)
            assert found is not None and found.payload == b"old"


def test_a_saved_state_survives_a_power_cut_at_every_operation() -> None:
    """A save that returned is there; whatever is there is whole."""
    for seed in range(200):
        rng, files = random.Random(seed), FaultyFiles()
        files.cut_at = 1 + seed % 40
        saved = 0
        with contextlib.suppress(PowerCut):
            for index in range(1, 9):
                save(files, index, bytes([index]) * 2000)
                saved = index
        files.crash(rng)
        found = load_state(DIRECTORY, None, files)
        assert (found.mark.index if found is not None else 0) in (saved, saved + 1)
        assert found is None or found.payload == bytes([found.mark.index]) * 2000


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    """The second is told who the first is; after release the directory is free."""
    lock = DirectoryLock.acquire(tmp_path / "node")
    with pytest.raises(DirectoryInUse, match=f"node is in use by process {os.getpid()}"):
        DirectoryLock.acquire(tmp_path / "node")
    lock.release()
    DirectoryLock.acquire(tmp_path / "node").release()
