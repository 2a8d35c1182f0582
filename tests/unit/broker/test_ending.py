"""How a node ends: what was found is on the disk before the process is gone."""

import errno
from pathlib import Path
from typing import NoReturn

import pytest

from tern_broker.ending import Ending
from tern_raft import EXIT_BROKEN, EXIT_FSYNC_FAILED
from tern_store import DerivedDamage, Genesis, LogRot, Store, VoteFile
from tern_store.vote_file import Standing
from tests.support.faulty_files import FaultyFiles

DIRECTORY = Path("/data")
GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 1 << 16)


class Gone(BaseException):
    """The process has ended."""


class EndingRuntime:
    """A process that ends by an exception; nothing else of it is used."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def new_id(self) -> bytes:
        return b"n" * 16

    def end(self, code: int) -> NoReturn:
        self.codes.append(code)
        raise Gone


def opened(files: FaultyFiles) -> tuple[Ending, EndingRuntime, VoteFile]:
    """A node's ending, its process, its votes."""
    votes = VoteFile.open(DIRECTORY, bootstrap=True, group=GROUP, files=files)
    votes.be_born(dict.fromkeys(GROUP.members, bytes(16)))
    store = Store.open(DIRECTORY, group=GROUP, files=files)
    runtime = EndingRuntime()
    return Ending(DIRECTORY, store, votes, runtime), runtime, votes  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "code", "note"),
    [
        (LogRot(DIRECTORY / "x", 7, "bad"), EXIT_BROKEN, "quarantine"),
        (DerivedDamage(DIRECTORY / "x", 7, "bad"), EXIT_BROKEN, "rebuild"),
        (OSError(errno.EIO, "Input/output error"), EXIT_FSYNC_FAILED, "quarantine"),
        (OSError(errno.ENOSPC, "No space left on device"), EXIT_BROKEN, ""),
        (ValueError("a bug"), EXIT_BROKEN, ""),
    ],
)
def test_what_was_found_is_noted_before_the_end(error: Exception, code: int, note: str) -> None:
    """Damage and failed syncs forbid the next start what they must; a full disk and a bug forbid nothing."""
    files = FaultyFiles()
    ending, runtime, _ = opened(files)
    with pytest.raises(Gone):
        ending.fail(error)
    assert runtime.codes == [code]
    notes = {name for name in files.listdir(DIRECTORY) if name in {"quarantine", "rebuild"}}
    assert notes == ({note} if note else set())


def test_a_disk_without_room_for_the_note_has_it_among_the_votes() -> None:
    """A sync failed and the disk is full: the next start must not take the node for a member, nor its log for whole."""
    files = FaultyFiles()
    ending, runtime, _ = opened(files)
    files.capacity_bytes = files.used_bytes
    with pytest.raises(Gone):
        ending.fail(OSError(errno.EIO, "Input/output error"))
    assert runtime.codes == [EXIT_FSYNC_FAILED]
    assert "quarantine" not in files.listdir(DIRECTORY)
    again = VoteFile.open(DIRECTORY, bootstrap=False, group=GROUP, files=files)
    assert (again.standing, again.needs_copy, again.incarnation) == (Standing.REBUILDING, True, b"n" * 16)
    again.forget(b"m" * 16)
    assert not VoteFile.open(DIRECTORY, bootstrap=False, group=GROUP, files=files).needs_copy
