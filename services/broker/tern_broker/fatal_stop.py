"""Ends a node that must not go on. The damage is noted first, so that the next start acts on it.

Called on the core loop, or for a disk that has failed on the disk thread; in both cases nothing
else of this node runs afterwards.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from tern_broker.start_checks import too_old
from tern_raft import EXIT_BROKEN, EXIT_FSYNC_FAILED, Disk, RaftNode, Runtime
from tern_store import DerivedDamage, LogRot, Store, SyncLost, VoteFile

log = logging.getLogger(__name__)
# An answer that meets one of these errors ends the node.
DAMAGE = (LogRot, DerivedDamage, SyncLost)
# Replies in progress have left after this time.
FAIL_AFTER_S = 0.05
# A leader that found damage in its files leads no longer than this.
HANDOVER_MAX_S = 1.0
# Same as for unusable settings: the supervisor does not restart the node.
EXIT_TOO_OLD = 78


class Ending:
    """Of one node."""

    def __init__(
        self, directory: Path, store: Store, votes: VoteFile, runtime: Runtime, *, raft: Callable[[], RaftNode]
    ) -> None:
        self._directory, self._store, self._votes, self._runtime, self._raft = directory, store, votes, runtime, raft
        self._is_failing = False

    def fail(self, error: Exception) -> None:
        """End the process; damage is noted. A mere refusal of the kernel is not noted: the next
        start replays the log, which is whole.
        """
        if isinstance(error, SyncLost):
            self.disk_failed(error)
        elif isinstance(error, LogRot | DerivedDamage):
            self._note(error)
        log.critical("this node ends after an error; the next start replays the log", exc_info=error)
        self._runtime.end(EXIT_BROKEN)

    def fail_soon(self, error: Exception) -> None:
        """Call `fail` after the replies in progress have left, and a leader has handed over, if a
        member can take over.
        """
        if not self._is_failing:
            self._is_failing = True
            until_s = self._runtime.monotonic() + HANDOVER_MAX_S
            self._runtime.call_later(FAIL_AFTER_S, self._hand_over, error, until_s)

    def _hand_over(self, error: Exception, until_s: float) -> None:
        raft = self._raft()
        is_over = not raft.is_leader or self._runtime.monotonic() > until_s
        if is_over or not (raft.is_yielding or raft.transfer(None) == ""):
            self.fail(error)
        else:
            self._runtime.call_later(FAIL_AFTER_S, self._hand_over, error, until_s)

    def require_known(self, version: int, known: int) -> None:
        """End this node if its release, which supports *known*, meets an entry or state of a newer
        *version*.

        It must neither apply nor keep it, and no restart would help.
        """
        if version > known:
            log.critical(too_old(version, known))
            self._runtime.end(EXIT_TOO_OLD)

    def disk_failed(self, error: SyncLost) -> None:
        """End the node after a failed sync, or a write that failed with an error of the disk
        itself.

        No other error condemns what was written before. The note keeps every later start from
        serving data that may not be on the disk; the node returns only when it is rebuilt.
        """
        self._store.log.fail(error)
        reason = f"a sync failed ({error.strerror}): what was written since the last one may be lost"
        self._note(self.rot(self._store.log.segment_bases[-1], reason))
        log.critical("the disk failed; this node must be rebuilt", extra={"error": str(error)})
        self._runtime.end(EXIT_FSYNC_FAILED)

    def rot(self, position: int, reason: str) -> LogRot:
        """Return the damage *reason* of the log at *position*."""
        size = self._store.log.segment_size_bytes
        return LogRot(self._directory / "commitlog" / f"{position // size * size:020d}", position, reason)

    def _note(self, damage: LogRot | DerivedDamage) -> None:
        try:
            self._store.note_damage(damage)
        except OSError:
            log.critical("the disk refuses the note of the damage", extra={"damage": str(damage)})
            if isinstance(damage, LogRot):
                self._note_in_votes()

    def _note_in_votes(self) -> None:
        """The slots for votes exist already, even on a full disk."""
        try:
            self._votes.forget(self._runtime.new_id(), needs_copy=True)
        except OSError:
            log.critical("the note could not be written to the vote file either")


class GuardedDisk:
    """A disk thread whose `done` callbacks end the node if they raise. Owner: the core loop.

    Otherwise the loop would go on without the callback's effect.
    """

    def __init__(self, disk: Disk, fail: Callable[[Exception], object]) -> None:
        """*fail* ends the node."""
        self._disk, self._fail = disk, fail
        self.stop = disk.stop

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* on the disk thread, then *done* on the loop."""
        self._disk.run_soon(job, lambda: guarded(done, self._fail))


def guarded(step: Callable[[], object], fail: Callable[[Exception], object]) -> None:
    """Run *step* of the node's own work; an error ends the node by *fail*, since a loop would go on
    with half a step.
    """
    try:
        step()
    except Exception as error:
        fail(error)
        raise
