"""Saves the state beside the log's disk thread, never ahead of the synced log. Owner: the core
loop.

Acks wait for the log's syncs only: a save's own syncs, some tens of ms, run on another thread. The
log itself is synced on one thread only: after a failed sync the kernel reports success to the next
caller.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tern_broker.core import saving
from tern_broker.core.machine import StateMachine
from tern_raft import Disk
from tern_store import LogMark, StateSave, Store, StoredEntry
from tern_store.files import is_done, is_lack
from tern_store.small_files import Checkpoint, write_checkpoint, write_config

log = logging.getLogger(__name__)
# A restart replays at most about this much: 64 MiB are read and applied in well under a second.
SAVE_AFTER_BYTES = 64 << 20
SAVE_AFTER_S = 30.0
# A stopping node gives up its last save after this time, if the kernel refuses it: the next start
# replays the log.
FINISH_MAX_S = 15.0
# After a save for which the machine had no room, descriptors or memory.
AGAIN_AFTER_S = 2.0


class Saver:
    """Saves of one node, one at a time."""

    def __init__(
        self,
        store: Store,
        log_disk: Disk,
        disk: Disk,
        *,
        state: Callable[[], StateMachine],
        applied: Callable[[], int],
        is_short: Callable[[], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """*is_short*: whether a file could not be opened, for want of a descriptor, since its last
        call.
        """
        self._is_short = is_short
        self._store, self._log_disk, self._disk = store, log_disk, disk
        self._state, self._applied, self._monotonic = state, applied, monotonic
        self._saved_at_s = monotonic()
        self._not_before_s = 0.0
        self._is_busy = False
        # Runs after the save in progress.
        self._then: Callable[[], None] | None = None
        # Contents of config/*.json that this process has written. Owner: the disk thread.
        self._told: dict[str, dict[str, Any]] = {}
        # True while the state at a segment's start is being written.
        self._keeping = False
        self._boundaries = {boundary.position for boundary in store.boundaries()} | {store.log.start.position}

    @property
    def _mark(self) -> LogMark | None:
        return self._store.applied

    def save_if_due(self) -> None:
        """Save after a number of bytes, or a time after the last save. Called every few ms."""
        if self._is_short():
            # They are opened again when they are needed; a save needs some at once.
            for part in (self._store.queues, self._store.keys, self._store.timers):
                part.close_files()
        applied = self._mark
        if self._is_busy or self._applied() <= (applied.index if applied is not None else 1):
            return
        if self._monotonic() < self._not_before_s:
            return
        grown = self._store.log.end_position - (applied.position if applied is not None else 0)
        if grown > SAVE_AFTER_BYTES or self._monotonic() - self._saved_at_s > SAVE_AFTER_S:
            self.save()

    def finish(self, done: Callable[[bool], None], call_later: Callable[..., object]) -> None:
        """Save everything applied for the last time; call *done* once with whether all of it is
        saved.
        """
        is_told = False

        def tell(is_saved: bool) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                done(is_saved)

        def saved() -> None:
            tell(self._mark is None or self._mark.index >= self._applied())

        def last() -> None:
            self.save()
            self._when_idle(saved)

        self._when_idle(last)
        call_later(FINISH_MAX_S, tell, False)

    def _when_idle(self, then: Callable[[], None]) -> None:
        if self._is_busy:
            self._then = then
        else:
            then()

    def save(self) -> None:
        """Save the state with its applied index. The log is synced first, so that a save is never
        ahead of it.
        """
        applied, before = self._applied(), self._mark
        if applied <= (before.index if before is not None else 1):
            return
        state = self._state()
        snapshot = saving.take(state)
        try:
            save = self._store.save(self._store.log.mark(applied), lambda: saving.encode(snapshot))
        except OSError as error:
            if not is_lack(error):
                raise
            # The saved state stays as it was; the log has everything.
            self._not_before_s = self._monotonic() + AGAIN_AFTER_S
            return
        self._is_busy = True
        documents = saving.documents(state)
        checkpoint = Checkpoint(newest_ms=state.now_ms, position=save.mark.position)
        is_saved = False

        def job() -> None:
            nonlocal is_saved
            is_saved = save.run_behind_log()
            if is_saved:
                self._write_for_people(documents, checkpoint)

        def done() -> None:
            self._store.saved(save, is_saved=is_saved)
            if is_saved:
                self._saved_at_s = self._monotonic()
            else:
                self._not_before_s = self._monotonic() + AGAIN_AFTER_S
            self._is_busy = False
            if (then := self._then) is not None:
                self._then = None
                then()

        if save.log_sync is None:
            self._disk.run_soon(job, done)
        else:
            self._log_disk.run_soon(save.log_sync.run, lambda: self._disk.run_soon(job, done))

    def before_apply(self, entry: StoredEntry) -> None:
        """Keep the state at the begin of a segment: the log may begin there later."""
        if entry.position % self._store.log.segment_size_bytes or entry.position in self._boundaries:
            return
        if self._keeping:
            # The disk is slower than the log grows. The log cannot begin here then; copies of the
            # state must not pile up.
            return
        self._keeping = True
        self._boundaries.add(entry.position)
        state = self._state()
        snapshot = saving.take(state)
        ends = [[topic.topic_id, list(topic.ends)] for topic in state.names.topics_by_id.values()]
        save = self._store.save_boundary(
            self._store.log.mark(entry.index - 1),
            lambda: saving.encode(snapshot),
            position=entry.position,
            now_ms=state.now_ms,
            ends=ends,
        )
        self._disk.run_soon(lambda: self._keep(save, entry.position), self._kept)

    def _kept(self) -> None:
        self._keeping = False

    def _keep(self, save: StateSave, position: int) -> None:
        if not is_done(save.run):
            # The log cannot begin there; retention uses the place before or behind it.
            log.warning("no space to keep the state at a segment's start", extra={"position": position})

    def _write_for_people(self, documents: dict[str, dict[str, Any]], checkpoint: Checkpoint) -> None:
        """Write config/*.json and checkpoint, for tools and operators; nothing of ours depends on
        them.

        The log's syncs compete for the same disk, so unchanged documents are not written again.
        """
        directory, files = self._store.directory, self._store.files
        for name, document in documents.items():
            if self._told.get(name) != document and is_done(partial(write_config, directory, name, document, files)):
                self._told[name] = document
        is_done(lambda: write_checkpoint(directory, checkpoint, files))
