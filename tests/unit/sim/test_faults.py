"""The simulated network and disks do what the faults of tests/sim need of them, and nothing else."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tern_raft.frames import RAFT_CODE
from tests.sim.machines.machine import DIRECTORY, Machine
from tests.sim.machines.network import Network, SimLink
from tests.sim.machines.process import Process
from tests.sim.machines.scheduler import BEGIN_S, Scheduler
from tests.support.files.faulty_files import PowerCut

FRAMES = 200


@dataclass(slots=True)
class Listener:
    """What stands where a node's links would: notes what arrives, and when."""

    scheduler: Scheduler
    ends: list[SimLink] = field(default_factory=list)
    heard: list[tuple[float, int]] = field(default_factory=list)

    def _dialled(self, _peer: str, end: SimLink) -> None:
        self.ends.append(end)

    def _accepted(self, end: SimLink) -> None:
        self.ends.append(end)

    def _on_lost(self, _end: SimLink) -> None: ...

    def _on_frame(self, _end: SimLink, frame: Any) -> None:
        self.heard.append((self.scheduler.now_s - BEGIN_S, int.from_bytes(frame.body, "big")))


class Pair:
    """Two processes and the connection between them, a second old."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.machines = {name: Machine(name, self.scheduler, random.Random(name)) for name in ("n0", "n1")}
        self.network = Network(self.scheduler, random.Random(5), self.machines)
        self.processes: list[Process] = []
        self.listeners: list[Listener] = []
        for machine in self.machines.values():
            self.processes.append(machine.begin_process())
            self.listeners.append(Listener(self.scheduler))
            self.network.listen(self.processes[-1], self.listeners[-1])  # type: ignore[arg-type]
        self.scheduler.run_until(BEGIN_S + 1.0)

    def post(self) -> None:
        """Numbered frames from n0 to n1, one a ms."""
        for number in range(FRAMES):
            self.listeners[0].ends[0].post(RAFT_CODE, [number.to_bytes(2, "big")])
            self.scheduler.run_until(self.scheduler.now_s + 1e-3)


def test_in_fair_weather_frames_arrive_once_and_in_order() -> None:
    """As TCP has it."""
    pair = Pair()
    pair.post()
    pair.scheduler.run_until(BEGIN_S + 10.0)
    assert [number for _, number in pair.listeners[1].heard] == list(range(FRAMES))


def test_some_copies_come_seconds_later() -> None:
    """While frames are duplicated: each is there in its place, and some are there again when all others have arrived."""
    pair = Pair()
    pair.network.weather.duplicate_chance = 1e-9
    pair.post()
    pair.network.weather.duplicate_chance = 0.0
    pair.scheduler.run_until(BEGIN_S + 10.0)
    heard = [number for _, number in pair.listeners[1].heard]
    assert set(heard) == set(range(FRAMES))
    late = [(at_s, number) for at_s, number in pair.listeners[1].heard if at_s > 1.5]
    assert 0 < len(late) < FRAMES / 4
    assert len(heard) == FRAMES + pair.network.counts["stale"]


def test_a_late_copy_does_not_outlive_its_connection() -> None:
    """What was said on a connection that broke is gone, copies too; a cut direction lets none through."""
    for breaks in (True, False):
        pair = Pair()
        pair.network.weather.duplicate_chance = 1e-9
        pair.post()
        pair.scheduler.run_until(pair.scheduler.now_s + 0.01)
        count = len(pair.listeners[1].heard)
        if breaks:
            pair.network.reset("n0", "n1")
        else:
            pair.network.cut(("n0", "n1"))
        pair.scheduler.run_until(BEGIN_S + 10.0)
        assert len(pair.listeners[1].heard) == count


def test_a_sector_that_cannot_be_read_reads_as_zeros_in_the_next_process() -> None:
    """Who runs has it in memory; synced or not, afterwards it is gone for good."""
    machine = Machine("n0", Scheduler(), random.Random(5))
    files, path = machine.files, DIRECTORY / "log"
    files.makedirs(DIRECTORY)
    fd = files.open(path, create=True)
    files.pwrite(fd, b"x" * 1024, 0)
    files.fdatasync(fd)
    files.lose_bytes(path, 512, 1000)
    assert files.peek(path) == b"x" * 1024
    files.end_process()
    assert files.peek(path) == b"x" * 512 + bytes(488) + b"x" * 24
    files.crash(random.Random(5))
    assert files.peek(path)[512:1000] == bytes(488)


def test_the_power_goes_behind_the_sync_of_a_directory() -> None:
    """What the sync made durable is, and nothing happens after it; the next process is left alone."""
    machine = Machine("n0", Scheduler(), random.Random(5))
    files = machine.files
    files.makedirs(DIRECTORY / "state")
    files.cut_behind = "state"
    files.fsync_dir(DIRECTORY)
    fd = files.open(DIRECTORY / "state" / "new", create=True)
    with pytest.raises(PowerCut):
        files.fsync_dir(DIRECTORY / "state")
    with pytest.raises(PowerCut):
        files.pwrite(fd, b"x", 0)
    files.crash(random.Random(5))
    assert files.listdir(DIRECTORY / "state") == ["new"]
    files.end_process()
    files.fsync_dir(DIRECTORY / "state")
