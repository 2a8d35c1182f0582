"""A node in a process of its own: asyncio's loop, the machine's clocks, one thread for the disk, `_exit` for the end.

The disk thread: so that heartbeats, votes and reads never wait for the disk. A job that raises SyncLost ends the process: trying again
would report success for data that is gone. One that the kernel refused for any other reason (no descriptors, memory, quota, permission)
has lost nothing: it is run again until it succeeds, in its place before those that wait.
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
# A saved state and a few syncs; more waiting means that the disk has stalled, and callers must see it.
JOBS_MAX = 64
# Between the runs of a job that the kernel refuses: soon enough that nobody waits much longer than the lack lasts.
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
        """ms since 1970, as the host says."""
        return int(time.time() * 1000)

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> Disk:
        """A thread of its own."""
        return DiskThread(self._loop, on_failure=on_failure)

    def new_id(self) -> bytes:
        """Never the same twice, on any machine."""
        return os.urandom(16)

    def end(self, code: int) -> NoReturn:
        """`_exit`: no other thread gets a word in."""
        os._exit(code)


class DiskThread:
    """Runs jobs on one thread and reports back into the loop that made it. Owner: the core loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_failure: Callable[[SyncLost], None]) -> None:
        self._loop = loop
        self._on_failure = on_failure
        self._jobs: queue.SimpleQueue[tuple[Callable[[], None], Callable[[], None]] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="disk", daemon=True)
        self._thread.start()

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* on the disk thread, then *done* in the loop. Jobs are few: every caller keeps one in flight."""
        assert self._jobs.qsize() < JOBS_MAX
        self._jobs.put((job, done))

    def stop(self) -> None:
        """Finish what is waiting, then end the thread; what is refused now stays undone."""
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
            except RuntimeError:  # the loop is closed: nobody is left to be told
                return

    def _run(self, job: Callable[[], None]) -> bool:
        """Whether the job was done; False only when the thread is to end. SyncLost."""
        while True:
            if (error := refusal(job)) is None:
                return True
            log.warning("the disk refuses a job, which is run again", extra={"error": str(error)})
            if self._stopping.wait(JOB_AGAIN_AFTER_S):
                return False
