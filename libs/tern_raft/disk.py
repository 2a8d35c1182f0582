"""The one thread that waits for the disk, so that heartbeats, votes and reads never do.

Jobs run in the order given. A job that raises ends the process: after a failed fdatasync the kernel has marked the lost pages
clean, so trying again would report success for data that is gone. Reference: "Can applications recover from fsync failures?",
USENIX ATC 2020.
"""

import asyncio
import logging
import os
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

# Exit code that our supervisor does not restart: the node comes back only through a rebuild.
EXIT_FSYNC_FAILED = 74
# A saved state and a few syncs; more waiting means that the disk has stalled, and callers must see it.
JOBS_MAX = 64


class DiskThread:
    """Runs jobs on one thread and reports back into the loop that made it. Owner: the core loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_failure: Callable[[OSError], None] | None = None) -> None:
        self._loop = loop
        self._on_failure = on_failure or end_after_failed_sync
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
        self._thread.start()

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* on the disk thread, then *done* in the loop. Jobs are few: every caller keeps one in flight."""
        assert self._jobs.qsize() < JOBS_MAX
        self._jobs.put((job, done))

    def stop(self) -> None:
        """Finish what is waiting, then end the thread."""
        self._jobs.put(None)
        self._thread.join(timeout=30)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                job()
            except OSError as error:
                self._on_failure(error)
                return
            try:
                self._loop.call_soon_threadsafe(done)
            except RuntimeError:  # the loop is closed: nobody is left to be told
                return


def end_after_failed_sync(error: OSError) -> None:
    """The end of a node whose disk has failed."""
    log.critical("the disk failed; this node must be rebuilt", extra={"error": str(error)})
    os._exit(EXIT_FSYNC_FAILED)
