"""How a node ends when it must not go on: what was found is noted first, so that the next start deals with it.

Called on the core loop, or for a disk that has failed on the disk thread; in both cases nothing else of this node runs afterwards.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from tern_broker.start_checks import too_old
from tern_raft import EXIT_BROKEN, EXIT_FSYNC_FAILED, Disk, RaftNode, Runtime
from tern_store import DerivedDamage, LogRot, Store, SyncLost, VoteFile

log = logging.getLogger(__name__)
# Whoever meets one of these while it answers somebody ends the node.
DAMAGE = (LogRot, DerivedDamage, SyncLost)
# Replies on their way have left after this long.
FAIL_AFTER_S = 0.05
# A leader that found damage in its files leads no longer than this.
HANDOVER_MAX_S = 1.0
# As for settings that cannot be used: the supervisor does not start it again.
EXIT_TOO_OLD = 78


class Ending:
    """Of one node."""

    def __init__(
        self, directory: Path, store: Store, votes: VoteFile, runtime: Runtime, *, raft: Callable[[], RaftNode]
    ) -> None:
        self._directory, self._store, self._votes, self._runtime, self._raft = directory, store, votes, runtime, raft
        self._is_failing = False

    def fail(self, error: Exception) -> None:
        """End the process; damage is noted. What the kernel merely refused is not: the next start replays the log, which is whole."""
        if isinstance(error, SyncLost):
            self.disk_failed(error)
        elif isinstance(error, LogRot | DerivedDamage):
            self._note(error)
        log.critical("this node cannot go on; it ends, and replays the log when it is started again", exc_info=error)
        self._runtime.end(EXIT_BROKEN)

    def fail_soon(self, error: Exception) -> None:
        """As `fail`, when the replies that are on their way have left, and a leader has handed over, if somebody can take it."""
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
        """End this node, whose release knows *known*, before it applies or keeps what is of a newer *version*: no restart would help."""
        if version > known:
            log.critical(too_old(version, known))
            self._runtime.end(EXIT_TOO_OLD)

    def disk_failed(self, error: SyncLost) -> None:
        """A sync failed, or a write did for an error of the disk itself. Nothing else condemns what was written before.

        The note keeps every later start from serving what may not be on the disk; the node comes back only when it is rebuilt.
        """
        self._store.log.fail(error)
        reason = f"a sync failed ({error.strerror}): what was written since the last one may be lost"
        self._note(self.rot(self._store.log.segment_bases[-1], reason))
        log.critical("the disk failed; this node must be rebuilt", extra={"error": str(error)})
        self._runtime.end(EXIT_FSYNC_FAILED)

    def rot(self, position: int, reason: str) -> LogRot:
        """What *reason* says of the log at *position*."""
        size = self._store.log.segment_size_bytes
        return LogRot(self._directory / "commitlog" / f"{position // size * size:020d}", position, reason)

    def _note(self, damage: LogRot | DerivedDamage) -> None:
        try:
            self._store.note_damage(damage)
        except OSError:
            log.critical("the disk does not take the note of what was found", extra={"damage": str(damage)})
            if isinstance(damage, LogRot):
                self._note_in_votes()

    def _note_in_votes(self) -> None:
        """Their place on a full disk is there already."""
        try:
            self._votes.forget(self._runtime.new_id(), needs_copy=True)
        except OSError:
            log.critical("nor does it take it among the votes")


class GuardedDisk:
    """A disk thread whose jobs' ends may not fail unseen: a loop would go on without what the end was to do. Owner: the core loop."""

    def __init__(self, disk: Disk, fail: Callable[[Exception], object]) -> None:
        """*fail* ends the node."""
        self._disk, self._fail = disk, fail
        self.stop = disk.stop

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """As Disk."""
        self._disk.run_soon(job, lambda: guarded(done, self._fail))


def guarded(step: Callable[[], object], fail: Callable[[Exception], object]) -> None:
    """Run *step* of the node's own work; what it raises ends the node by *fail*, since a loop would go on with half a step."""
    try:
        step()
    except Exception as error:
        fail(error)
        raise
