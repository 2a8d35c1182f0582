"""What operators have told this name server: one change after the other, in effect once it is on disk.

Owner of the OperatorState: this object, in its event loop. Changes that come while a file is written are written together by the next
write, so that a thousand clients do not wait for a thousand syncs.
Law: a change is decided on top of all that were accepted before it; if a write fails, it and all that were decided since are refused.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from tern_namesrv.core import OperatorState
from tern_namesrv.operator_files import OperatorFiles
from tern_wire.errors import ConfigurationNotSaved, TernError

logger = logging.getLogger(__name__)
Change = Callable[[OperatorState], OperatorState]


class OperatorStore:
    """The state in effect (`state`), and how to change it. Without *files* it lives in memory only."""

    def __init__(self, files: OperatorFiles | None = None) -> None:
        """FilesUnusable when what is on disk cannot be used."""
        self.state = OperatorState() if files is None else files.read()
        # Called in the event loop with each state that comes into effect.
        self.on_change: Callable[[OperatorState], None] = lambda _: None
        self._files = files
        # What the files hold; None: a write has failed, and they hold the old or the new.
        self._written: OperatorState | None = self.state
        self._wanted = self.state
        self._waiters: list[asyncio.Future[None]] = []
        self._saving: asyncio.Task[None] | None = None

    async def change(self, decide: Change) -> OperatorState:
        """Bring `decide(newest state)` into effect; that state. Whatever *decide* raises; ConfigurationNotSaved."""
        changed = self._wanted = decide(self._wanted)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._saving is None:
            self._saving = asyncio.create_task(self._save())
        await waiter
        return changed

    def close(self) -> None:
        """Let go of the files. Requests have ended."""
        if self._files is not None:
            self._files.close()

    async def _save(self) -> None:
        while self._waiters:
            waiters, self._waiters = self._waiters, []
            wanted = self._wanted
            error = await self._write(wanted)
            if error is None:
                self._written = wanted
                if wanted != self.state:
                    self.state = wanted
                    error = self._tell(wanted)
            else:
                self._written, self._wanted = None, self.state
                # Those that came meanwhile were decided on top of what was refused.
                waiters, self._waiters = [*waiters, *self._waiters], []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None) if error is None else waiter.set_exception(error)
        self._saving = None

    async def _write(self, wanted: OperatorState) -> TernError | None:
        """Why it is not saved; None when it is."""
        if self._files is None or wanted == self._written:
            return None
        try:
            await asyncio.to_thread(self._files.write, self._written, wanted)
        except OSError as failure:
            logger.error("what operators tell cannot be saved", extra={"error": str(failure)})
            return ConfigurationNotSaved(reason=f"The disk refused: {failure.strerror}")
        except Exception as bug:
            # Whoever waits is answered, and the next change is not kept waiting for ever.
            logger.exception("a bug: what operators tell was not saved")
            return TernError(bug=type(bug).__name__)
        return None

    def _tell(self, state: OperatorState) -> TernError | None:
        """It is saved and in effect; whoever asked for it is told when not everybody has heard."""
        try:
            self.on_change(state)
        except Exception as bug:
            logger.exception("a bug: what operators tell is saved, but not heard by all")
            return TernError(bug=type(bug).__name__)
        return None


def open_store(data_dir: str) -> OperatorStore:
    """The store on *data_dir*, in memory only for "". FilesUnusable."""
    if not data_dir:
        return OperatorStore()
    files = OperatorFiles(Path(data_dir))
    try:
        return OperatorStore(files)
    except BaseException:
        files.close()
        raise
