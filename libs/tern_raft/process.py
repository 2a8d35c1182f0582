"""A node in a process of its own: asyncio's loop, the machine's clocks, one thread for the disk, `_exit` for the end.

The disk thread: so that heartbeats, votes and reads never wait for the disk. A job that raises ends the process: after a failed
fdatasync the kernel has marked the lost pages clean, so trying again would report success for data that is gone. Reference: "Can
applications recover from fsync failures?", USENIX ATC 2020.
"""

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tern_raft.runtime import Disk

# A saved state and a few syncs; more waiting means that the disk has stalled, and callers must see it.
JOBS_MAX = 64


class ProcessRuntime:
    """The running loop's process. Owner: the core loop, whose thread makes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.monotonic = time.monotonic
        self.call_soon = self._loop.call_soon
        self.call_later = self._loop.call_later
        self.pid = os.getpid()
        self.boot_id = _read_boot_id()

    def wall_ms(self) -> int:
        """ms since 1970, as the host says."""
        return int(time.time() * 1000)

    def open_disk(self, on_failure: Callable[[OSError], None]) -> Disk:
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

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_failure: Callable[[OSError], None]) -> None:
        self._loop = loop
        self._on_failure = on_failure
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


def _read_boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
