"""Allocates space for the log in advance: the next segment, and the emergency segment of a full
disk.
"""

from tern_raft import Disk
from tern_store import CommitLog
from tern_store.files import is_done

# After an allocation that found no space. The roll itself tries once more.
AGAIN_AFTER_S = 2.0


class Allocator:
    """One allocation at a time, on the disk thread. Owner: the core loop."""

    def __init__(self, log: CommitLog, disk: Disk) -> None:
        self._log, self._disk = log, disk
        self._is_busy = False
        self._is_full = False
        self._not_before_s = 0.0

    def step(self, now_s: float) -> None:
        """Start an allocation if one is due. Called every few ms.

        The reserve comes first. The next segment is allocated while the second half of the current
        one is filled, so that a roll is a rename.
        """
        if self._is_full:
            self._is_full, self._not_before_s = False, now_s + AGAIN_AFTER_S
        if self._is_busy or now_s < self._not_before_s:
            return
        size = self._log.segment_size_bytes
        spare = self._log.preallocate_reserve()
        if spare is None and self._log.end_position % size >= size // 2:
            spare = self._log.preallocate_next()
        if spare is None:
            return
        self._is_busy = True
        made = False

        def job() -> None:
            nonlocal made
            made = is_done(spare.run)

        def done() -> None:
            self._is_busy, self._is_full = False, not made
            if made:
                self._log.mark_preallocated(spare)

        self._disk.run_soon(job, done)
