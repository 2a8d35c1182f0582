"""How a node ends when it must not go on: what was found is noted first, so that the next start deals with it.

Called on the core loop, or for a disk that has failed on the disk thread; in both cases nothing else of this node runs afterwards.
"""

import errno
import logging
from pathlib import Path

from tern_raft import EXIT_BROKEN, EXIT_FSYNC_FAILED, Runtime
from tern_store import DerivedDamage, LogRot, Store, VoteFile

log = logging.getLogger(__name__)
# Whoever meets one of these while it answers somebody ends the node.
DAMAGE = (LogRot, DerivedDamage)


class Ending:
    """Of one node."""

    def __init__(self, directory: Path, store: Store, votes: VoteFile, runtime: Runtime) -> None:
        self._directory, self._store, self._votes, self._runtime = directory, store, votes, runtime

    def fail(self, error: Exception) -> None:
        """End the process; damage is noted."""
        if isinstance(error, DAMAGE):
            self._note(error)
        elif isinstance(error, OSError) and error.errno != errno.ENOSPC:
            self.disk_failed(error)
        log.critical("this node cannot go on; it ends, and replays the log when it is started again", exc_info=error)
        self._runtime.end(EXIT_BROKEN)

    def disk_failed(self, error: OSError) -> None:
        """A sync failed: the kernel has marked what it lost clean, so trying again would lie.

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
