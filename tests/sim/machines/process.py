"""One life of a node's process in virtual time: the `Runtime` that a broker runs in, its disk thread, and its end.

Law: whatever a process does happens in one of its events. It does nothing while it is paused or busy (the events wait, in order), and
nothing at all once it has ended. Reading the clock costs it 2 us, so loops that are bounded by time end.
"""

import errno
import random
import sys
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import pysyncobj.node
import pysyncobj.syncobj

import tern_raft.links
from tern_raft import EXIT_BROKEN
from tern_raft.process import JOB_AGAIN_AFTER_S
from tern_store import StoreError, SyncLost
from tests.support.files.faulty_files import PowerCut

if TYPE_CHECKING:
    from tests.sim.machines.machine import Machine

READING_COST_S = 2e-6
# A process that owes this much time is busy: its next event waits.
BUSY_S = 5e-4


class ProcessEnded(BaseException):
    """The process is gone; nothing in it may catch this."""


class _Running:
    """The process whose event runs now: the clock of pysyncobj is a global, and so it is one for all nodes."""

    process: "Process"


RUNNING = _Running()


def read_clock() -> float:
    """As `monotonic` of the process that runs; without a call more, because every node reads it some thousand times a second."""
    process = RUNNING.process
    now_s, busy_s, clock = process._scheduler.now_s, process.busy_s, process.machine.clock
    process.busy_s = busy_s = (busy_s if busy_s > now_s else now_s) + READING_COST_S
    return clock.local_s + (busy_s - clock.world_s) * clock.rate


def install() -> None:
    """The clock of whichever node runs, and an order of nodes that does not hang on the hash of strings."""
    pysyncobj.syncobj.monotonicTime = read_clock
    for name, module in list(sys.modules.items()):
        # They read pysyncobj's clock, each under a name of its own.
        if name.startswith("tern_raft.") and hasattr(module, "monotonic"):
            module.monotonic = read_clock  # type: ignore[attr-defined]
    # PeerLinks asks the time module itself.
    vars(tern_raft.links)["time"] = SimpleNamespace(monotonic=read_clock)
    # pysyncobj walks over sets of nodes (syncobj.py:146, 642, 661); Python salts the hash of a string in every process.
    pysyncobj.node.Node.__hash__ = lambda node: ord(node._id[-1])
    # The same answer as its own, without two properties: asked whenever such a set is.
    pysyncobj.node.Node.__eq__ = lambda node, other: isinstance(other, pysyncobj.node.Node) and node._id == other._id


class Process:
    """Implements tern_raft.Runtime. Owner: its machine."""

    def __init__(self, machine: "Machine", pid: int) -> None:
        self.machine = machine
        self.pid = pid
        self.has_ended = False
        self.busy_s = machine.scheduler.now_s  # until when its loop is at work
        self._scheduler = machine.scheduler
        self._at = machine.scheduler.at
        self.after_event: Callable[[], None] | None = None
        self.on_end: list[Callable[[], None]] = []

    # The protocol ------------------------------------------------------------------------------------------------
    def monotonic(self) -> float:
        """Seconds by this machine's clock."""
        now_s, busy_s, clock = self._scheduler.now_s, self.busy_s, self.machine.clock
        self.busy_s = busy_s = (busy_s if busy_s > now_s else now_s) + READING_COST_S
        return clock.local_s + (busy_s - clock.world_s) * clock.rate

    def wall_ms(self) -> int:
        """ms since 1970, as this machine believes."""
        return self.machine.clock.wall_ms(self.monotonic())

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> object:
        """In the next turn of the loop."""
        self._at(self._scheduler.now_s, self.run, callback, *arguments)
        return None

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> object:
        """Not before *delay_s* of this machine's clock."""
        self._at(self._scheduler.now_s + delay_s / self.machine.clock.rate, self.run, callback, *arguments)
        return None

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> "DiskQueue":
        """The disk thread."""
        return DiskQueue(self, on_failure)

    def new_id(self) -> bytes:
        """16 random bytes."""
        return self.machine.rng.randbytes(16)

    def end(self, code: int) -> NoReturn:
        """`_exit`. A process that ends for a bug, and not for its files, counts as if nobody had caught it."""
        error = sys.exc_info()[1]
        if code == EXIT_BROKEN and isinstance(error, Exception) and not isinstance(error, OSError | StoreError):
            self.machine.unhandled(self, error)
        self.machine.process_ended(self, code)
        raise ProcessEnded

    # The world ---------------------------------------------------------------------------------------------------
    def run(self, callback: Callable[..., object], *arguments: object) -> None:
        """One event of this process, unless it is gone; a paused or busy one does it later."""
        if self.has_ended:
            return
        machine, now_s = self.machine, self._scheduler.now_s
        if machine.is_paused:
            machine.backlog.append((self, callback, arguments))
            return
        if self.busy_s > now_s + BUSY_S:
            self._at(self.busy_s, self.run, callback, *arguments)
            return
        RUNNING.process = self
        try:
            callback(*arguments)
        except ProcessEnded:
            return
        except PowerCut:
            machine.killed_at_work()
            return
        except Exception as error:
            # asyncio would write it to the log and go on; nothing of ours may rely on that.
            machine.unhandled(self, error)
        if machine.files.syncs:
            syncs = machine.files.take_syncs()
            # Each of them takes its own time: one that is rarely slow does not make all of a start's syncs slow.
            self.busy_s = max(self.busy_s, now_s) + sum(machine.disk_latency_s() for _ in range(syncs))
        if self.after_event is not None and not self.has_ended:
            self.after_event()

    def stop(self) -> None:
        """From now on nothing of it runs."""
        self.has_ended = True
        for tell in self.on_end:
            tell()


class DiskQueue:
    """The disk thread of one process: one job at a time, each takes as long as the machine's disk does."""

    def __init__(self, process: Process, on_failure: Callable[[SyncLost], None]) -> None:
        self._process, self._on_failure = process, on_failure
        self._free_s = 0.0
        self._rng: random.Random = process.machine.rng
        self._stopped = False
        # The job that the kernel refused, and those behind it.
        self._refused: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """Run *job* beside the loop, then *done* in it."""
        assert not self._stopped, "a job for a disk thread that was stopped"
        process = self._process
        scheduler = process.machine.scheduler
        begin_s = max(scheduler.now_s, self._free_s)
        self._free_s = end_s = begin_s + process.machine.disk_latency_s()
        # What a sync makes durable is what was written before it began, at least; and it may be so long before its end.
        work_s = begin_s if self._rng.random() < 0.5 else end_s
        scheduler.at(work_s, self._work, job, done, end_s)

    def stop(self) -> None:
        """Finish what is waiting; in virtual time nothing can wait for it, so its files must not be closed before."""
        self._stopped = True

    def _work(self, job: Callable[[], None], done: Callable[[], None], end_s: float) -> None:
        process = self._process
        machine = process.machine
        if process.has_ended:
            return
        if machine.is_paused:
            machine.backlog.append((process, self._work_in_process, (job, done, end_s)))
            return
        self._do(job, done, end_s)

    def _work_in_process(self, *arguments: Any) -> None:
        self._do(*arguments)

    def _do(self, job: Callable[[], None], done: Callable[[], None], end_s: float) -> None:
        if self._refused:
            self._refused.append((job, done))
        elif self._attempt(job, done, end_s):
            self._refused.append((job, done))
            self._again_later()

    def _again_later(self) -> None:
        scheduler = self._process.machine.scheduler
        scheduler.at(scheduler.now_s + JOB_AGAIN_AFTER_S, self._again)

    def _again(self) -> None:
        process, machine = self._process, self._process.machine
        if process.has_ended:
            return
        if machine.is_paused:
            machine.backlog.append((process, self._again, ()))
            return
        while self._refused and not process.has_ended:
            if self._attempt(*self._refused[0], machine.scheduler.now_s):
                if self._stopped:
                    self._refused.clear()
                else:
                    self._again_later()
                return
            self._refused.popleft()

    def _attempt(self, job: Callable[[], None], done: Callable[[], None], end_s: float) -> bool:
        """Whether *job* was refused and is to be run again, before those that wait; the process may be over behind this."""
        process, machine = self._process, self._process.machine
        RUNNING.process = process
        try:
            machine.before_job()
            try:
                job()
            except SyncLost as error:
                self._on_failure(error)
                raise AssertionError("on_failure came back") from error
            except OSError as error:
                if not machine.files.is_refusing and error.errno != errno.ENOSPC:
                    raise
                return True
        except ProcessEnded:
            return False
        except PowerCut:
            machine.killed_at_work()
            return False
        except Exception as error:
            machine.unhandled(process, error)  # the thread would be dead, and every later job with it
            return False
        machine.files.take_syncs()
        process._at(end_s, process.run, done)
        return False
