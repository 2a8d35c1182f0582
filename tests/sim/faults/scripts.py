"""Faults in the right order: what chance finds too rarely, done step by step, at moments that are looked for in the nodes.

    restart_cut   a process is killed with entries in the page cache; the next one finds them there; then the power goes
    save_cut      the power goes right behind a save of the state, on a machine whose disk is slow
    lost_sector   the last sector of a node's last synced entry cannot be read any more, which looks like a tear; who else has that entry
                  is away, and who lags is back: together they would be a majority

Every step is a fault that a machine may have at any moment; the law of nemesis.py holds for all of them together. Owner: the nemesis.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sim.machines.machine import DIRECTORY, Machine
from tests.support.files.faulty_disk import SECTOR

if TYPE_CHECKING:
    from tests.sim.faults.nemesis import Nemesis
    from tests.sim.machines.broker_node import BrokerNode

# Seconds to wait before the next step; ends early when the moment does not come.
Steps = Iterator[float]
# A disk so slow that there is mostly something in the page cache.
SLOW_FACTORS = (30.0, 100.0)
LOOK_PERIOD_S = 0.003
# For the right to damage a node, and for an entry that is as it must be.
PATIENCE_S, LOOKING_MAX_S = 8.0, 3.0
TIMES = 2


@dataclass(frozen=True, slots=True)
class _Place:
    """Bytes of a file."""

    path: Path
    start: int
    stop: int


class Scripts:
    """Runs the scripts of one seed, on chance of their own: seeds without any are what they were before there were scripts."""

    def __init__(self, nemesis: "Nemesis") -> None:
        self._nemesis, self._world = nemesis, nemesis.world
        self._rng = random.Random(f"scripts {nemesis.world.swarm.seed}")

    def start(self) -> None:
        """Spread them over the chaos phase, which they need a few seconds of."""
        swarm = self._world.swarm
        for name in swarm.scripts:
            for _ in range(TIMES):
                at_s = self._rng.uniform(1.5, swarm.chaos_s - 4.0)
                self._world.scheduler.after(at_s, self._begin, getattr(self, f"_{name}"))

    def _begin(self, script: Callable[[], Steps]) -> None:
        self._go_on(script())

    def _go_on(self, steps: Steps) -> None:
        if self._nemesis.is_over:
            return
        wait_s = next(steps, None)
        if wait_s is not None:
            self._world.scheduler.after(wait_s, self._go_on, steps)

    # Scripts -----------------------------------------------------------------------------------------------------
    def _restart_cut(self) -> Steps:
        world, machine = self._world, self._follower()
        if machine is None:
            return
        name = machine.name
        factor = self._slow(machine, 3.0)
        while (node := world.nodes.get(name)) is None or not _has_unsynced(node):
            if machine.slow_factor != factor:
                return  # it took too long
            yield LOOK_PERIOD_S
        machine.kill()
        machine.slow_factor = 1.0
        world.start(name)
        while name not in world.nodes:
            if not machine.is_up:
                return
            yield LOOK_PERIOD_S
        machine.slow_factor = factor
        yield self._rng.uniform(0.001, 0.1)
        self._nemesis.done("restart_cut", name)
        machine.lose_power()
        self._nemesis.restart_later(name)

    def _save_cut(self) -> Steps:
        machine = self._follower()
        if machine is None:
            return
        self._slow(machine, 6.0)
        machine.files.cut_behind, machine.on_killed_at_work = "state", self._saved
        files, since_s = machine.files, self._world.scheduler.now_s
        while files.cut_behind is not None and self._world.scheduler.now_s < since_s + 6.0:
            yield 0.1
        files.cut_behind = None

    def _saved(self, machine: Machine) -> None:
        self._nemesis.done("save_cut", machine.name)
        machine.lose_power()
        self._nemesis.restart_later(machine.name)

    def _lost_sector(self) -> Steps:
        world, since_s = self._world, self._world.scheduler.now_s
        while True:
            machine, leader = self._follower(), world.leader()
            if machine is not None and leader is not None and self._nemesis.may_damage(machine.name):
                break
            if world.scheduler.now_s > since_s + PATIENCE_S:
                return
            yield 0.1
        name, since_s = machine.name, world.scheduler.now_s
        followers = [other for other in world.names if other not in (leader, name)]
        lagging = self._rng.sample(followers, (len(world.names) - 1) // 2)
        others = [other for other in world.names if other not in (*lagging, name)]
        heal = self._nemesis.cut_off(lagging, [name, *others], 4.0)
        yield self._rng.uniform(0.2, 0.8)
        while (place := self._last_sector(name, leader, lagging)) is None or not self._nemesis.may_damage(name):
            if world.scheduler.now_s > since_s + LOOKING_MAX_S:
                return
            yield LOOK_PERIOD_S
        world.damaged.add(name)
        world.doubted.add(name)
        self._nemesis.done("lost_sector", f"{name} {place.path}:{place.start} to {place.stop}; {others} away")
        machine.files.lose_bytes(place.path, place.start, place.stop)
        machine.kill()
        world.start(name)
        for other in others:
            world.machines[other].kill()
            world.scheduler.after(self._rng.uniform(2.5, 4.5), world.start, other)
        heal()

    # Below -------------------------------------------------------------------------------------------------------
    def _follower(self) -> Machine | None:
        world = self._world
        leader = world.leader()
        up = [machine for machine in world.machines.values() if machine.name in world.nodes and machine.name != leader]
        return self._rng.choice(up) if up else None

    def _slow(self, machine: Machine, seconds: float) -> float:
        machine.slow_factor = factor = self._rng.choice(SLOW_FACTORS)

        def mend() -> None:
            machine.slow_factor = 1.0

        self._nemesis.until(seconds, mend)
        return factor

    def _last_sector(self, name: str, leader: str, lagging: list[str]) -> _Place | None:
        """Of the last entry of *name*, if that is committed and synced there, *lagging* have it not, and it has more than one sector."""
        world = self._world
        nodes = [world.nodes.get(other) for other in (name, leader, *lagging)]
        if None in nodes:
            return None
        node, leading, *behind = (each for each in nodes if each is not None)
        log = node.engine.store.log
        end = log.end_index
        is_safe = log.synced_index == end <= leading.engine.raft.commit_index and leading.engine.raft.is_leader
        if not is_safe or any(other.engine.store.log.end_index >= end for other in behind):
            return None
        begin, stop = log.mark(end - 1).position, log.end_position
        base = stop - 1 - (stop - 1) % log.segment_size_bytes
        start = max(begin, base)
        sector = (stop - 1) // SECTOR * SECTOR
        path = DIRECTORY / "commitlog" / f"{base:020d}"
        files = world.machines[name].files
        if sector <= start or path not in files.paths(path.parent):
            return None
        return _Place(path, sector - base, stop - base)


def _has_unsynced(node: "BrokerNode") -> bool:
    log = node.engine.store.log
    return log.end_index > log.synced_index
