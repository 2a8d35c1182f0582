"""A node in its own process: asyncio's loop, the machine's clocks, a disk thread, `_exit`.

The disk thread keeps heartbeats, votes and reads from waiting for the disk. A job that raises
SyncLost ends the process: a repeated sync would report success for lost data. A job that the kernel
refused for another reason (descriptors, memory, quota, permission) has lost nothing: it is repeated
until it succeeds, before the jobs that wait.
"""

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from tern_raft.runtime import Disk
from tern_store import SyncLost
from tern_store.files import refusal

log = logging.getLogger(__name__)
# A saved state and a few syncs; more waiting jobs mean a stalled disk, which callers must notice.
JOBS_MAX = 64
# Pause before a refused job is repeated: waits last little longer than the lack.
JOB_AGAIN_AFTER_S = 0.25


class ProcessRuntime:
    """The running loop's process. Owner: the core loop, whose thread makes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.monotonic = time.monotonic
        self.call_soon = self._loop.call_soon
        self.call_later = self._loop.call_later
        self.pid = os.getpid()

    def wall_ms(self) -> int:
        """The host's time, ms since 1970."""
        return int(time.time() * 1000)

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> Disk:
        """A new disk thread."""
        return DiskThread(self._loop, on_failure=on_failure)

    def new_id(self) -> bytes:
        """16 random bytes, unique on every machine."""
        return os.urandom(16)

    def end(self, code: int) -> NoReturn:
        """End with `_exit`: no other thread runs again."""
        os._exit(code)


class DiskThread:
    """Runs jobs on one thread and reports to the loop that made it. Owner: the core loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_failure: Callable[[SyncLost], None]) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
        self._thread.start()

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* on the disk thread, then *done* in the loop.
        Every caller keeps one job in flight.
        """
        assert self._jobs.qsize() < JOBS_MAX
        self._jobs.put((job, done))

    def stop(self) -> None:
        """Finish the waiting jobs and end the thread; jobs refused now stay undone."""
        self._stopping.set()
        self._jobs.put(None)
        self._thread.join(timeout=30)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            try:
                is_done = self._run(job)
            except SyncLost as error:
                self._on_failure(error)
                return
            if not is_done:
                continue
            try:
                self._loop.call_soon_threadsafe(done)
            except RuntimeError:  # the loop is closed: there is nothing to report to
                return

    def _run(self, job: Callable[[], None]) -> bool:
        """Whether the job was done; False only when the thread is to end. SyncLost."""
        while True:
            if (error := refusal(job)) is None:
                return True
            log.warning("the disk refuses a job, which is run again", extra={"error": str(error)})
            if self._stopping.wait(JOB_AGAIN_AFTER_S):
                return False
