"""How a node ends: what was found is on the disk before the process is gone."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tern_broker.fatal_stop import FAIL_AFTER_S, HANDOVER_MAX_S, Ending, GuardedDisk
from tern_raft import EXIT_BROKEN, EXIT_FSYNC_FAILED
from tern_store import DerivedDamage, Genesis, LogRot, Store, SyncLost, VoteFile
from tern_store.state.vote_file import Standing
from tests.support.files.faulty_files import FaultyFiles

DIRECTORY = Path("/data")
REFUSALS = (
    errno.ENOSPC,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EDQUOT,
    errno.EINTR,
    errno.EACCES,
    errno.EROFS,
)
GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 1 << 16)


class Gone(BaseException):
    """The process has ended."""


class EndingRuntime:
    """A process that ends by an exception; nothing else of it is used."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.now_s = 0.0
        self.later: list[tuple[float, Callable[..., object], tuple[object, ...]]] = []

    def new_id(self) -> bytes:
        return b"n" * 16

    def monotonic(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> None:
        self.later.append((self.now_s + delay_s, callback, arguments))

    def go_on(self) -> None:
        """The next of what was to be called later."""
        self.now_s, callback, arguments = self.later.pop(0)
        callback(*arguments)

    def end(self, code: int) -> NoReturn:
        self.codes.append(code)
        raise Gone


class Leadership:
    """Of a node that leads, or not, and has somebody to hand over to, or not."""

    def __init__(self, *, is_leader: bool = True, has_heir: bool = True) -> None:
        self.is_leader, self._has_heir, self.is_yielding = is_leader, has_heir, False

    def transfer(self, to: str | None) -> str:
        """Begin it, or say why not."""
        assert to is None
        self.is_yielding = self._has_heir
        return "" if self._has_heir else "nobody can take it"


def opened(files: FaultyFiles, raft: Leadership | None = None) -> tuple[Ending, EndingRuntime, VoteFile]:
    """A node's ending, its process, its votes."""
    votes = VoteFile.open(DIRECTORY, bootstrap=True, group=GROUP, files=files)
    votes.be_born(dict.fromkeys(GROUP.members, bytes(16)))
    store = Store.open(DIRECTORY, group=GROUP, files=files)
    runtime = EndingRuntime()
    return Ending(DIRECTORY, store, votes, runtime, raft=lambda: raft), runtime, votes  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("error", "code", "note"),
    [
        (LogRot(DIRECTORY / "x", 7, "bad"), EXIT_BROKEN, "quarantine"),
        (DerivedDamage(DIRECTORY / "x", 7, "bad"), EXIT_BROKEN, "rebuild"),
        (SyncLost(errno.EIO, "Input/output error"), EXIT_FSYNC_FAILED, "quarantine"),
        (SyncLost(errno.ENOSPC, "No space left on device"), EXIT_FSYNC_FAILED, "quarantine"),
        *((OSError(number, "refused"), EXIT_BROKEN, "") for number in REFUSALS),
        (ValueError("a bug"), EXIT_BROKEN, ""),
    ],
)
def test_what_was_found_is_noted_before_the_end(error: Exception, code: int, note: str) -> None:
    """Damage and failed syncs forbid the next start what they must; what the kernel refuses and a bug forbid nothing."""
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
        ending.fail(SyncLost(errno.EIO, "Input/output error"))
    assert runtime.codes == [EXIT_FSYNC_FAILED]
    assert "quarantine" not in files.listdir(DIRECTORY)
    again = VoteFile.open(DIRECTORY, bootstrap=False, group=GROUP, files=files)
    assert (again.standing, again.needs_copy, again.incarnation) == (Standing.REBUILDING, True, b"n" * 16)
    again.forget(b"m" * 16)
    assert not VoteFile.open(DIRECTORY, bootstrap=False, group=GROUP, files=files).needs_copy


def test_a_leader_that_found_damage_hands_over_first() -> None:
    """Replies leave, then leadership goes; it ends when another leads, or after a second."""
    for steps, leads_on in ((3, False), (30, True)):
        raft = Leadership()
        ending, runtime, _ = opened(FaultyFiles(), raft)
        ending.fail_soon(LogRot(DIRECTORY / "x", 7, "bad"))
        ending.fail_soon(LogRot(DIRECTORY / "y", 8, "bad, too"))
        for _ in range(steps):
            if runtime.codes or len(runtime.later) != 1:
                break
            try:
                runtime.go_on()
            except Gone:
                break
            raft.is_leader = leads_on
        assert raft.is_yielding
        assert runtime.codes == [EXIT_BROKEN]
        assert runtime.now_s <= HANDOVER_MAX_S + 3 * FAIL_AFTER_S


@pytest.mark.parametrize("raft", [Leadership(is_leader=False), Leadership(has_heir=False)])
def test_who_has_nothing_to_hand_over_ends_at_once(raft: Leadership) -> None:
    """A follower, and a leader whom nobody can follow."""
    ending, runtime, _ = opened(FaultyFiles(), raft)
    ending.fail_soon(LogRot(DIRECTORY / "x", 7, "bad"))
    with pytest.raises(Gone):
        runtime.go_on()
    assert (runtime.codes, runtime.now_s) == ([EXIT_BROKEN], FAIL_AFTER_S)


def test_the_end_of_a_disk_job_that_raises_ends_the_node() -> None:
    """Else nothing would ever be saved again, and nobody would know."""
    failures: list[Exception] = []

    class AtOnce:
        def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
            job()
            done()

        def stop(self) -> None:
            """Nothing waits."""

    def bad() -> None:
        raise OSError(errno.EMFILE, "refused")

    done: list[str] = []
    disk = GuardedDisk(AtOnce(), failures.append)
    disk.run_soon(lambda: done.append("job"), lambda: done.append("end"))
    with pytest.raises(OSError, match="refused"):
        disk.run_soon(lambda: done.append("job"), bad)
    assert done == ["job", "end", "job"]
    assert [type(failure) for failure in failures] == [OSError]
