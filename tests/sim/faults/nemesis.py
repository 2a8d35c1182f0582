"""The faults of one seed: which, when, where, and for how long. Nothing is broken anywhere else.

Law: never more than a minority is damaged for good (wiped, rotten, failed to sync) or left behind by retention, and not yet rebuilt. What a disk has synced is never
lost otherwise: a power cut tears only what was not. Every fault that is counted was done. Owner: the world of the seed.
"""

import errno
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.sim.faults.healing import Healing
from tests.sim.faults.scripts import Scripts
from tests.sim.machines.machine import DIRECTORY, Machine
from tests.sim.machines.network import CLIENTS
from tests.sim.machines.world import World

Direction = tuple[str, str]
HOUR_MS = 3_600_000
# What clocks of a majority may do, within the window of idempotency keys (10 minutes): a group that starts anew has nothing but wall clocks
# to believe.
CLOCK_OFFSETS_MS = (-200_000, -4_000, 0, 4_000, 200_000)
# What those of a minority may do: an RTC without a battery, or one that somebody has set to another year.
WRONG_OFFSETS_MS = (-365 * 86_400_000, -HOUR_MS, HOUR_MS, 365 * 86_400_000)
WRONG_CHANCE = 0.3
REFUSALS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EDQUOT, errno.EINTR, errno.EACCES)
_DERIVED = ("consumequeue", "index", "entryindex", "sentkeys")


class Nemesis:
    """Breaks a world until `stop`, then mends it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counts: Counter[str] = Counter()
        self._rng = random.Random(f"nemesis {world.swarm.seed}")
        self._clocks = random.Random(f"clocks {world.swarm.seed}")
        self._healing = Healing(world.scheduler)
        self.is_over = False
        self._scripts = Scripts(self)

    def start(self) -> None:
        """Spread the seed's faults over its chaos phase."""
        swarm, rng = self.world.swarm, self._rng
        for kind in rng.choices(swarm.kinds, swarm.weights, k=swarm.faults):
            # The first second is the group's birth, mostly undisturbed.
            self.world.scheduler.after(rng.uniform(0.6, swarm.chaos_s), self._strike, kind)
        self._scripts.start()
        if self._clocks.random() < WRONG_CHANCE:
            self._clock_wrong()  # from the group's birth on

    def stop(self) -> None:
        """No more faults; what was broken is mended, and every machine runs."""
        self.is_over = True
        self._healing.all()
        for name, machine in self.world.machines.items():
            machine.kills_in_jobs, machine.files.cut_at, machine.files.cut_behind = 0, None, None
            machine.slow_factor = 1.0  # a script that went on after its disk was mended has slowed it again
            self.world.start(name)

    # Below -------------------------------------------------------------------------------------------------------
    def _strike(self, kind: str) -> None:
        if self.is_over:
            return
        before = self.counts[kind]
        getattr(self, f"_{kind}")()
        if kind == "kill_in_disk_job":
            return  # counted when it has come true
        if self.counts[kind] == before:
            # It could not be done (nobody to kill, no right to damage more): something that always can.
            self._reset()

    def done(self, kind: str, text: str) -> None:
        """A fault of *kind* was done."""
        self.counts[kind] += 1
        self.world.say(f"fault {kind}: {text}")

    def until(self, seconds: float, heal: Callable[[], None]) -> None:
        """Call *heal* after so long, or when all faults end."""
        self._healing.after(seconds, heal)

    def _any(self) -> str:
        return self._rng.choice(self.world.names)

    def _up(self) -> Machine | None:
        up = [machine for machine in self.world.machines.values() if machine.is_up]
        return self._rng.choice(up) if up else None

    def _target(self) -> Machine | None:
        """Some machine that runs; the leader more often than others."""
        leader = self.world.leader()
        if leader is not None and self._rng.random() < 0.4:
            return self.world.machines[leader]
        return self._up()

    def may_damage(self, name: str) -> bool:
        """Whether *name* may lose something that it has promised: it is whole, and so is a majority beside it.

        A node that was away for so long that the others have dropped what it lacks has to be rebuilt, too, whether it knows that yet or not.
        """
        out = self.world.damaged | self.world.rebuilding | self.world.left_behind()
        return name not in self.world.damaged and len(out | {name}) <= (len(self.world.names) - 1) // 2

    def restart_later(self, name: str) -> None:
        """Start *name* again after a while."""
        longest_s = 6.0 if self._rng.random() < 0.15 else 1.5
        self.world.scheduler.after(self._rng.uniform(0.05, longest_s), self.world.start, name)

    # Processes and power -----------------------------------------------------------------------------------------
    def _crash(self) -> None:
        machine = self._target()
        if machine is not None:
            self.done("crash", machine.name)
            machine.kill()
            self.restart_later(machine.name)

    def _crash_torn(self) -> None:
        machine = self._target()
        if machine is not None:
            self.done("crash_torn", machine.name)
            machine.lose_power()
            self.restart_later(machine.name)

    def _power_cut(self) -> None:
        self.done("power_cut", "all")
        for machine in self.world.machines.values():
            machine.lose_power()
            self.restart_later(machine.name)

    def _kill_in_disk_job(self) -> None:
        machine = self._target()
        if machine is None:
            return
        if self._rng.random() < 0.7:
            machine.kills_in_jobs = self._rng.randint(1, 3)
        else:  # in the loop, or wherever the next operations on files are
            machine.files.cut_at = machine.files.operations + self._rng.randint(1, 12)
        machine.on_killed_at_work = self._killed_at_work

    def _killed_at_work(self, machine: Machine) -> None:
        self.done("kill_in_disk_job", machine.name)
        self.restart_later(machine.name)

    def _pause(self) -> None:
        machine = self._target()
        if machine is not None and not machine.is_paused:
            self.done("pause", machine.name)
            machine.pause()
            process = machine.process
            self.until(
                self._rng.choice((0.1, 0.7, 2.0, 4.0)) * self._rng.uniform(0.5, 1.0),
                lambda: machine.resume() if machine.process is process else None,
            )

    # Network -----------------------------------------------------------------------------------------------------
    def _cut(self, kind: str, text: str, directions: list[Direction], seconds: float = 0.0) -> None:
        breaks = self._rng.random() < 0.3
        heal = self.world.network.cut(*directions, breaks=breaks)
        self.done(kind, f"{text}{', reset' if breaks else ''}")
        self.until(seconds or self._rng.choice((0.3, 1.5, 4.0)) * self._rng.uniform(0.5, 1.0), heal)

    def cut_off(self, one: list[str], two: list[str], seconds: float) -> Callable[[], None]:
        """Cut *one* from *two* for so long at most; call what is returned to heal it before."""
        heal = self.world.network.cut(*self._between(one, two))
        self.until(seconds, heal)
        return heal

    def _between(self, one: list[str], two: list[str]) -> list[Direction]:
        return [pair for a in one for b in two for pair in ((a, b), (b, a))]

    def _clients_side(self) -> list[str]:
        """Clients reach everybody, or are cut off from some nodes too."""
        return [CLIENTS] if self._rng.random() < 0.4 else []

    def _partition(self) -> None:
        names = self.world.names[:]
        self._rng.shuffle(names)
        size = self._rng.randint(1, len(names) - 1)
        one, two = names[:size], names[size:]
        self._cut("partition", f"{one} from {two}", self._between(one, two + self._clients_side()))

    def _one_way(self) -> None:
        sender, receiver = self._rng.sample([*self.world.names, CLIENTS], 2)
        self._cut("one_way", f"{sender} to {receiver}", [(sender, receiver)])

    def _bridge(self) -> None:
        """Two halves that only one node sees."""
        names = self.world.names[:]
        self._rng.shuffle(names)
        middle = len(names) // 2
        one, two = names[:middle], names[middle + 1 :]
        self._cut("bridge", f"{one} and {two} over {names[middle]}", self._between(one, two))

    def _isolate_leader(self) -> None:
        leader = self.world.leader()
        if leader is not None:
            others = [name for name in self.world.names if name != leader]
            self._cut("isolate_leader", leader, self._between([leader], others + self._clients_side()))

    def _flap(self) -> None:
        one, two = self._rng.sample(self.world.names, 2)
        times, period_s = self._rng.randint(3, 8), self._rng.uniform(0.05, 0.5)
        self.done("flap", f"{one} and {two}, {times} times")

        def flap(left: int) -> None:
            if left and not self.is_over:
                heal = self.world.network.cut((one, two), (two, one), breaks=self._rng.random() < 0.5)
                self.until(period_s, heal)
                self.world.scheduler.after(2 * period_s, flap, left - 1)

        flap(times)

    def _reset(self) -> None:
        pairs = [sorted(pair) for pair in self.world.network.connections]
        if pairs:
            one, two = self._rng.choice(sorted(pairs))
            self.done("reset", f"{one} and {two}")
            self.world.network.reset(one, two)

    def _weather(self, kind: str, field: str, value: float) -> None:
        weather = self.world.network.weather
        usual = getattr(weather, field)
        if value > usual:
            self.done(kind, f"{value:g}")
            setattr(weather, field, value)
            self.until(self._rng.uniform(0.5, 3.0), lambda: setattr(weather, field, usual))

    def _delay(self) -> None:
        self._weather("delay", "jitter_s", self._rng.choice((0.02, 0.08, 0.3)))

    def _loss(self) -> None:
        self._weather("loss", "loss_chance", self._rng.choice((0.02, 0.1, 0.4)))

    def _duplicate(self) -> None:
        self._weather("duplicate", "duplicate_chance", self._rng.choice((0.02, 0.2, 0.5)))

    def _reorder(self) -> None:
        self._weather("reorder", "reorder_chance", self._rng.choice((0.1, 0.5)))

    # Clocks and disks --------------------------------------------------------------------------------------------
    def _clock_wrong(self) -> None:
        """Some machine's clock is no clock, if a majority's still are."""
        machine = self.world.machines[self._clocks.choice(self.world.names)]
        wrong = {name for name, other in self.world.machines.items() if other.clock.wall_offset_ms in WRONG_OFFSETS_MS}
        if len(wrong | {machine.name}) <= (len(self.world.names) - 1) // 2:
            machine.clock.wall_offset_ms = self._clocks.choice(WRONG_OFFSETS_MS)
            self.done("clock_wrong", f"{machine.name} is {machine.clock.wall_offset_ms} ms off")

    def _clock_jump(self) -> None:
        if self._clocks.random() < WRONG_CHANCE:
            self._clock_wrong()
        machine, offset_ms = self.world.machines[self._any()], self._rng.choice(CLOCK_OFFSETS_MS)
        self.done("clock_jump", f"{machine.name} is {offset_ms} ms off")
        machine.clock.wall_offset_ms = offset_ms

    def _clock_drift(self) -> None:
        machine, rate = self.world.machines[self._any()], self._rng.choice((0.9, 0.98, 1.02, 1.1))
        self.done("clock_drift", f"{machine.name} runs at {rate}")
        machine.clock.drift(self.world.scheduler.now_s, rate)
        self.until(self._rng.uniform(2.0, 10.0), lambda: machine.clock.drift(self.world.scheduler.now_s, 1.0))

    def _slow_disk(self) -> None:
        machine, factor = self.world.machines[self._any()], self._rng.choice((4.0, 30.0, 300.0))
        self.done("slow_disk", f"{machine.name} by {factor:g}")
        machine.slow_factor = factor

        def mend() -> None:
            machine.slow_factor = 1.0

        self.until(self._rng.uniform(0.3, 3.0), mend)

    def _disk_full(self) -> None:
        machine = self.world.machines[self._any()]
        files = machine.files
        if files.capacity_bytes is not None:
            return
        files.capacity_bytes = files.used_bytes + self._rng.choice((0, 0, 2000, 40_000))
        self.done("disk_full", machine.name)

        def mend() -> None:
            files.capacity_bytes = None
            machine.files.capacity_bytes = None

        self.until(self._rng.uniform(0.5, 4.0), mend)

    def _short_of_room(self) -> None:
        """Disks so full that the oldest segments are to go, and soon sends are refused; on all machines, for a while."""
        machines = [machine for machine in self.world.machines.values() if machine.files.capacity_bytes is None]
        for machine in machines:
            machine.files.capacity_bytes = int(machine.files.used_bytes / self._rng.uniform(0.8, 0.92))
        if not machines:
            return
        self.done("short_of_room", ", ".join(machine.name for machine in machines))

        def mend() -> None:
            for machine in machines:
                machine.files.capacity_bytes = None

        self.until(self._rng.uniform(2.0, 6.0), mend)

    def _refuse(self) -> None:
        """The kernel refuses what would be a new descriptor, page or name: nothing is lost."""
        machine = self.world.machines[self._any()]
        files = machine.files
        if files.is_refusing:
            return
        share, errors = (
            self._rng.choice((0.05, 0.5, 1.0)),
            self._rng.sample(REFUSALS, self._rng.randint(1, len(REFUSALS))),
        )
        rng = random.Random(self._rng.random())
        if errno.EMFILE in errors and rng.random() < 0.5:
            # The usual way to run short: what is open stays open, and another one is refused.
            files.open_files_max = files.open_count() + rng.randint(0, 4)
            self.done("refuse", f"{machine.name}, more than {files.open_files_max} open files")
        else:
            files.refuse(rng, share, errors)
            self.done("refuse", f"{machine.name}, {share:.0%}")
        self.until(self._rng.uniform(0.3, 3.0), files.relent)

    def _worn(self) -> None:
        """A piece of a file cannot be read any more; whoever meets it mends it from the others, or makes it anew."""
        machine = self.world.machines[self._any()]
        path = self._choose_file(machine) if self.may_damage(machine.name) else None
        used = len(machine.files.peek(path).rstrip(b"\0")) if path is not None else 0
        if path is None or not used or path.name == "votes":
            return
        start = self._rng.randrange(used) // 512 * 512
        self.world.damaged.add(machine.name)
        self.done("worn", f"{machine.name} {path}:{start} of {used}")
        machine.files.wear(path, start, start + 512)

    def _fsync_error(self) -> None:
        machine = self._up()
        if machine is not None and self.may_damage(machine.name):
            self.world.damaged.add(machine.name)
            self.world.awaits_failure.add(machine.name)
            self.done("fsync_error", machine.name)
            machine.files.fail_next("fdatasync", errno.EIO, after=self._rng.choice((0, 0, 1, 3)))

    def _bit_rot(self) -> None:
        machine = self.world.machines[self._any()]
        if not self.may_damage(machine.name):
            return
        path = self._choose_file(machine)
        if path is None:
            return
        content = machine.files.peek(path)
        used = len(content.rstrip(b"\0"))
        if not used:
            return
        # The last of it is what a lagging follower lacks.
        first = 0 if self._rng.random() < 0.6 else max(0, used - 400)
        place, bit = self._rng.randrange(first, used), self._rng.randrange(8)
        self.world.damaged.add(machine.name)
        self.done("bit_rot", f"{machine.name} {path}:{place}.{bit} of {used}")
        machine.files.rot(path, place, bit)
        if self._rng.random() < 0.5:
            machine.kill()
            self.restart_later(machine.name)
        if not machine.is_up:
            machine.files.end_process()

    def _choose_file(self, machine: Machine) -> Path | None:
        paths = machine.files.paths(DIRECTORY)
        kinds = {
            "log": [path for path in paths if path.parent.name == "commitlog" and path.name.isdecimal()],
            "state": [path for path in paths if path.parent.name == "state"],
            "votes": [path for path in paths if path.name == "votes"],
            "other": [path for path in paths if path.parts[2] in _DERIVED],
        }
        found = kinds[self._rng.choice(("log", "log", "log", "state", "votes", "other"))]
        return self._rng.choice(found) if found else None

    def _wipe(self) -> None:
        machine = self.world.machines[self._any()]
        if self.may_damage(machine.name):
            self.world.damaged.add(machine.name)
            self.done("wipe", machine.name)
            machine.wipe()
            self.restart_later(machine.name)

    def _transfer(self) -> None:
        leader = self.world.leader()
        node = self.world.nodes.get(leader or "")
        transfer = getattr(node.engine.raft, "transfer", None) if node is not None else None
        if node is not None and transfer is not None:
            other = self._rng.choice([name for name in self.world.names if name != leader])
            self.done("transfer", f"{leader} to {other}")
            node.process.run(transfer, other)


__all__ = ["Nemesis"]
