"""Changes of operators' settings, one after the other; each takes effect once it is on disk.

Owner of the OperatorState: this object, in its event loop. Changes that arrive during a write are
written together by the next write, so that a thousand clients do not wait for a thousand syncs.

Law: a change is decided on top of all that were accepted before it. If a write fails, its changes
and all that were decided since are refused.
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
    """The state in effect (`state`), and its changes.

    Without *files* the state is in memory only.
    """

    def __init__(self, files: OperatorFiles | None = None) -> None:
        """Load the state. Raises FilesUnusable when the files on disk are unusable."""
        self.state = OperatorState() if files is None else files.read()
        # Called in the event loop with each state that takes effect.
        self.on_change: Callable[[OperatorState], None] = lambda _: None
        self._files = files
        # The content of the files. None: a write has failed, and they hold the old or the new
        # state.
        self._written: OperatorState | None = self.state
        self._wanted = self.state
        self._waiters: list[asyncio.Future[None]] = []
        self._saving: asyncio.Task[None] | None = None

    async def change(self, decide: Change) -> OperatorState:
        """Bring `decide(newest state)` into effect and return it.

        Raises the errors of *decide*, and ConfigurationNotSaved.
        """
        changed = self._wanted = decide(self._wanted)
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if self._saving is None:
            self._saving = asyncio.create_task(self._save())
        await waiter
        return changed

    def close(self) -> None:
        """Close the files, after the last request."""
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
                # Changes that arrived meanwhile were decided on top of the refused ones.
                waiters, self._waiters = [*waiters, *self._waiters], []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None) if error is None else waiter.set_exception(error)
        self._saving = None

    async def _write(self, wanted: OperatorState) -> TernError | None:
        """Write *wanted*; return the error, None when it is saved."""
        if self._files is None or wanted == self._written:
            return None
        try:
            await asyncio.to_thread(self._files.write, self._written, wanted)
        except OSError as failure:
            logger.error("settings of operators cannot be saved", extra={"error": str(failure)})
            return ConfigurationNotSaved(reason=f"The disk refused: {failure.strerror}")
        except Exception as bug:
            # The waiting requests get an error, and the next change is not blocked.
            logger.exception("a bug: settings of operators were not saved")
            return TernError(bug=type(bug).__name__)
        return None

    def _tell(self, state: OperatorState) -> TernError | None:
        """Call `on_change` with the saved state; return the error of a bug in a listener."""
        try:
            self.on_change(state)
        except Exception as bug:
            logger.exception("a bug: settings of operators are saved, but a listener failed")
            return TernError(bug=type(bug).__name__)
        return None


def open_store(data_dir: str) -> OperatorStore:
    """Return the store on *data_dir*; in memory only for "". Raises FilesUnusable."""
    if not data_dir:
        return OperatorStore()
    files = OperatorFiles(Path(data_dir))
    try:
        return OperatorStore(files)
    except BaseException:
        files.close()
        raise
