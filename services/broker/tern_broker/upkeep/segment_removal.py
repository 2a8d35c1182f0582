"""Removes segments that retention has dropped from the disk, one job at a time, on the disk thread.
Owner: the core loop.
"""

import logging
from collections.abc import Callable

from tern_raft import Disk
from tern_store import Store, TrimJob
from tern_store.files import NO_ROOM, refusal

log = logging.getLogger(__name__)
AGAIN_AFTER_S = 1.0


class SegmentRemoval:
    """Of one store."""

    def __init__(self, store: Store, disk: Disk, *, call_later: Callable[..., object]) -> None:
        self._store, self._disk, self._call_later = store, disk, call_later
        self._is_busy = False
        self._is_stopped = False

    def step(self) -> None:
        """Start a job if there is one. Called every few ms."""
        if not self._is_busy and (job := self._store.wanted_trim()) is not None:
            log.info("retention drops segments", extra={"first_index": self._store.log.first_index})
            self._is_busy = True
            self._run(job)

    def stop(self) -> None:
        """Stop: the node ends, and a later trim removes the rest."""
        self._is_stopped = True

    def _run(self, job: TrimJob) -> None:
        refused: OSError | None = None

        def run() -> None:
            nonlocal refused
            refused = refusal(job.run)

        def done() -> None:
            if refused is None:
                self._store.trimmed(job)
                self._is_busy = False
            else:
                # A job that frees space must not fail for lack of space: the reserve is given up
                # first, and is allocated again later.
                delay_s = 0.0 if refused.errno in NO_ROOM and self._store.log.give_up_reserve() else AGAIN_AFTER_S
                self._call_later(delay_s, self._run, job)

        if not self._is_stopped:
            self._disk.run_soon(run, done)
