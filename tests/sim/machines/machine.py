"""One machine: files that may fail, clocks that may jump, a disk that may be slow, and at most one process, which may die.

Owner: the world. Faults come from the nemesis, restarts from `supervise`, as our supervisor would: a process that is gone comes back.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sim.machines.process import Process
from tests.sim.machines.scheduler import Scheduler
from tests.support.files.faulty_files import FaultyFiles, PowerCut

DIRECTORY = Path("/data")
EPOCH_MS = 1_700_000_000_000


class MachineFiles(FaultyFiles):
    """Files of one machine; counts syncs, because each of them takes time."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0  # for which the disk was waited since `take_syncs`
        self.has_failed = False  # a sync, ever
        self._rotten: list[tuple[Path, int, int]] = []
        self._unreadable: list[tuple[Path, int, int]] = []
        # The name of a directory: the power goes right after its next sync. Whoever asks for it hears of it by `on_killed_at_work`.
        self.cut_behind: str | None = None

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        try:
            super().fdatasync(fd)
        except OSError:
            self.has_failed = True
            raise

    def rot(self, path: Path, position: int, bit: int) -> None:
        """A bit goes bad on the platter. Who runs has the page in its memory; the next process reads it anew."""
        self._rotten.append((path, position, bit))

    def lose_bytes(self, path: Path, start: int, stop: int) -> None:
        """A sector that cannot be read any more, from where an entry begins or to where it ends, reads as zeros. From the next process on."""
        self._unreadable.append((path, start, stop))

    def fsync_dir(self, path: Path) -> None:
        super().fsync_dir(path)
        if path.name == self.cut_behind:
            self._is_off = True
            raise PowerCut

    def end_process(self) -> None:
        super().end_process()
        self.cut_behind = None
        unreadable, self._unreadable = self._unreadable, []
        for path, start, stop in unreadable:
            number = self._disk.names.get(path.parent, {}).get(path.name)
            if number is not None:
                file = self._disk.files[number]
                for content in {id(each): each for each in (file.live, file.durable)}.values():
                    content[start:stop] = bytes(len(content[start:stop]))
        rotten, self._rotten = self._rotten, []
        for path, position, bit in rotten:
            if self.has(path.parent, path.name):
                self.flip(path, position, bit)

    def take_syncs(self) -> int:
        """How often the disk was waited for since the last call."""
        syncs, self.syncs = self.syncs, 0
        return syncs


@dataclass(slots=True)
class Clock:
    """The machine's clocks: what they said at one moment of the world, and how fast they run."""

    world_s: float
    local_s: float
    rate: float
    wall_offset_ms: int
    boot_s: float  # what the monotonic clock said when all wall clocks agreed, but for their offset

    def wall_ms(self, local_s: float) -> int:
        """ms since 1970."""
        return EPOCH_MS + int((local_s - self.boot_s) * 1000) + self.wall_offset_ms

    def drift(self, now_s: float, rate: float) -> None:
        """From now on it runs at *rate*."""
        self.local_s += (now_s - self.world_s) * self.rate
        self.world_s, self.rate = now_s, rate


class Machine:
    """A host with one broker node."""

    def __init__(self, name: str, scheduler: Scheduler, rng: random.Random) -> None:
        self.name, self.scheduler, self.rng = name, scheduler, rng
        self.files = MachineFiles()
        uptime_s = rng.uniform(1.0, 1e6)
        self.clock = Clock(scheduler.now_s, uptime_s, 1.0, rng.randint(-50, 50), uptime_s)
        self.process: Process | None = None
        self.is_paused = False
        self.backlog: deque[tuple[Process, Callable[..., object], tuple[Any, ...]]] = deque()
        self.slow_factor = 1.0
        self.kills_in_jobs = 0  # jobs until the process is killed inside one; 0: it is not
        self.starts = 0
        self.exits: list[int] = []
        # Told by the world: what to do when a process is gone (its exit code, None for a kill), and with errors.
        self.on_gone: Callable[[Machine, int | None], None] = lambda machine, code: None
        self.on_killed_at_work: Callable[[Machine], None] = lambda machine: None
        self.on_unhandled: Callable[[Machine, Exception], None] = lambda machine, error: None

    @property
    def is_up(self) -> bool:
        """Whether a process runs (or is paused) here."""
        return self.process is not None

    def disk_latency_s(self) -> float:
        """How long one sync takes: mostly one or two ms, as on the disks of clouds, sometimes a while."""
        chance = self.rng.random()
        base_s = 5e-4 + 1.5e-3 * chance if chance < 0.95 else 0.004 * chance
        return base_s * self.slow_factor

    # The process -------------------------------------------------------------------------------------------------
    def begin_process(self) -> Process:
        """A new process, which has done nothing yet."""
        assert self.process is None, "one process a machine"
        self.starts += 1
        self.process = Process(self, 100 + self.starts)
        return self.process

    def process_ended(self, process: Process, code: int | None) -> None:
        """It has exited by itself, or was killed (None): memory, descriptors and locks go, files stay."""
        if process is not self.process:
            return
        self.process = None
        process.stop()
        self.files.end_process()
        self.is_paused = False
        self.backlog.clear()
        self.kills_in_jobs = 0
        if code is not None:
            self.exits.append(code)
        self.on_gone(self, code)

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process_ended(self.process, None)

    def killed_at_work(self) -> None:
        """The process died inside an operation on a file, as a fault had planned."""
        self.kill()
        self.on_killed_at_work(self)

    def lose_power(self) -> None:
        """kill, and what was not synced may be gone, or torn."""
        self.kill()
        self.files.crash(self.rng)

    def wipe(self) -> None:
        """The process is killed, and the disk replaced by an empty one."""
        self.kill()
        operations = self.files
        self.files = MachineFiles()
        self.files.capacity_bytes = operations.capacity_bytes

    def pause(self) -> None:
        """SIGSTOP."""
        self.is_paused = self.process is not None

    def resume(self) -> None:
        """SIGCONT: what has piled up happens now, in order."""
        self.is_paused = False
        backlog, self.backlog = self.backlog, deque()
        for process, callback, arguments in backlog:
            self.scheduler.at(self.scheduler.now_s, process.run, callback, *arguments)

    def before_job(self) -> None:
        """The disk thread takes a job: the one in which the process dies, perhaps."""
        if self.kills_in_jobs:
            self.kills_in_jobs -= 1
            if not self.kills_in_jobs:
                self.files.cut_at = self.files.operations + self.rng.randint(1, 6)

    def unhandled(self, process: Process, error: Exception) -> None:
        """An exception that nobody in the product caught."""
        if process is self.process:
            self.on_unhandled(self, error)
