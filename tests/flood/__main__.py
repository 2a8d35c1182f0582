"""`python -m tests.flood`: strangers at every port of a mesh, with the limits of its processes as they are and lowered. `make flood`.

Three brokers, a name server, a proxy, a checker. Idle connections and half-sent requests are held at each port and opened again as they are
closed, by a process of their own; senders that were there before go on. The flood rests every half minute, because a shared machine is up to
twice as fast one minute as the next: sends under it are compared with those before it and in its rests. Progress goes to standard error, a
table to standard output; exit code 1 when a process ended, a node was condemned, the leader changed, or sends fell below half of their calm rate.
"""

import argparse
import http.client
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.support.mesh.mesh import SEGMENT_SIZE_BYTES, Mesh, free_port_base, kept_up
from tests.support.mesh.strangers import hold, lowered_limit, open_descriptors, ports_of

TOPIC = "flood"
SENDERS = 4
CALM_LOOKS = 2
LOOK_S = 5.0
# So many looks at the flood between two rests, and so long until the strangers of before count for nothing.
LOOKS_UNTIL_REST = 5
QUIET_AFTER_S = 2.0
ROOM = 20
RATE_MIN = 0.5
NOTES = ("quarantine", "rebuild")


class Senders:
    """Clients that keep their connections and send one message after the other. Owner of their threads."""

    def __init__(self, port: int) -> None:
        self._port, self._over = port, threading.Event()
        self._done, self._failed = [0] * SENDERS, [0] * SENDERS
        self.failures: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(SENDERS)]
        for thread in self._threads:
            thread.start()

    def counts(self) -> tuple[int, int]:
        """Messages stored, and requests that ended in anything but 201, 429 and 503."""
        return sum(self._done), sum(self._failed)

    def stop(self) -> None:
        """The end."""
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _work(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        while not self._over.is_set():
            try:
                connection.request("POST", f"/v1/topics/{TOPIC}/messages", b"x" * 1024)
                answer = connection.getresponse()
                body = answer.read()
                self._done[number] += answer.status == 201
                if answer.status not in {201, 429, 503}:
                    self._note(number, f"{answer.status} {body[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                self._note(number, repr(error))
                connection.close()

    def _note(self, number: int, what: str) -> None:
        self._failed[number] += 1
        self.failures[what] += 1


@dataclass(slots=True)
class Phase:
    """What was seen during one flood."""

    name: str
    is_lowered: bool
    seconds: float = 0.0
    calm_rate: float = 0.0
    rate: float = 0.0
    slowest_rate: float = 0.0
    failed: int = 0
    opened: int = 0
    held_max: int = 0
    statuses: int = 0
    well: int = 0
    wrong: list[str] = field(default_factory=list)


def facts(mesh: Mesh) -> dict[str, tuple[int, int]]:
    """Pid and restarts of each process."""
    return {process["name"]: (process["pid"], process["restarts"]) for process in mesh.processes()}


@dataclass(slots=True)
class Watch:
    """Senders and `ternmq status`, looked at every few seconds, in the calm as in the flood: a look costs the machine something."""

    mesh: Mesh
    senders: Senders
    rates: list[float] = field(default_factory=list)
    well: int = 0

    def look(self, wait: Callable[[float], object], note: Callable[[], str]) -> None:
        """Once: *wait* lets some time go by; *note* is told with it."""
        (done, _), began_s = self.senders.counts(), time.monotonic()
        wait(LOOK_S)
        is_well = self.mesh.run("status", check=False).returncode == 0
        self.rates.append((self.senders.counts()[0] - done) / (time.monotonic() - began_s))
        self.well += is_well
        used = [open_descriptors(pid) for pid, _ in facts(self.mesh).values() if pid > 1]
        said = "well" if is_well else "NOT WELL"
        print(f"  {self.rates[-1]:6.0f} sends/s, status {said}, descriptors in use {used}{note()}", file=sys.stderr)

    @property
    def rate(self) -> float:
        """The mean."""
        return sum(self.rates) / len(self.rates)


@contextmanager
def resting(holder: BaseProcess) -> Iterator[None]:
    """For a block no stranger comes."""
    assert holder.pid
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        holder.join(QUIET_AFTER_S)
        yield
    finally:
        os.kill(holder.pid, signal.SIGCONT)


def flooded(phase: Phase, mesh: Mesh, senders: Senders, options: argparse.Namespace) -> None:
    """Hold the flood for as long as was asked, and judge."""
    calm, flood = Watch(mesh, senders), Watch(mesh, senders)
    for _ in range(CALM_LOOKS):
        calm.look(time.sleep, lambda: "")
    before, leader, failed = facts(mesh), mesh.leader(), senders.counts()[1]
    ports = [port for process in mesh.processes() for port in ports_of(process)]
    context = multiprocessing.get_context("spawn")
    figures = context.RawArray("q", 2)
    with ExitStack() as stack:
        if phase.is_lowered:
            for name, (pid, _) in before.items():
                limit = stack.enter_context(lowered_limit(pid, ROOM))
                print(f"  {name} may open {limit}", file=sys.stderr)
        holder = context.Process(
            target=hold, args=(ports, options.held, options.per_second, 3 * options.seconds, figures), daemon=True
        )
        holder.start()
        while phase.seconds < options.seconds:
            began_s = time.monotonic()
            flood.look(time.sleep, lambda: f", {figures[0]:,} opened, {figures[1]:,} held at most")
            phase.seconds += time.monotonic() - began_s
            if len(flood.rates) % LOOKS_UNTIL_REST == 0:
                with resting(holder):
                    calm.look(time.sleep, lambda: ", at rest")
        holder.terminate()
        holder.join()
    phase.calm_rate, phase.rate, phase.slowest_rate = calm.rate, flood.rate, min(flood.rates)
    phase.failed = senders.counts()[1] - failed
    phase.opened, phase.held_max = figures[0], figures[1]
    phase.statuses, phase.well = len(flood.rates), flood.well
    if phase.opened < options.per_second * len(ports):
        phase.wrong.append(f"a flood of {phase.opened} connections is none")
    for what, count in senders.failures.items():
        print(f"  {count} times: {what}", file=sys.stderr)
    judge(phase, mesh, before, leader)


def judge(phase: Phase, mesh: Mesh, before: dict[str, tuple[int, int]], leader: str) -> None:
    """What must hold behind a flood."""
    for name, was in before.items():
        if facts(mesh)[name] != was:
            phase.wrong.append(f"{name} ended: pid and restarts were {was}, are {facts(mesh)[name]}")
    for name in mesh.brokers():
        notes = [note for note in NOTES if (mesh.directory / "data" / name / note).exists()]
        if notes:
            phase.wrong.append(f"{name} is condemned: {', '.join(notes)}")
    if mesh.run("status", check=False).returncode:
        phase.wrong.append("`ternmq status` finds something")
    if mesh.leader() != leader:
        phase.wrong.append(f"{leader} led, {mesh.leader()} leads")
    if phase.rate < RATE_MIN * phase.calm_rate:
        phase.wrong.append(f"{phase.rate:.0f} sends/s of {phase.calm_rate:.0f}")
    if phase.failed > SENDERS:
        phase.wrong.append(f"{phase.failed} sends failed")


def show(phases: list[Phase]) -> None:
    """The table."""
    print(
        f"{'limits':<14}{'seconds':>8}{'opened':>9}{'held':>7}{'calm/s':>8}{'flood/s':>9}{'slowest':>9}{'failed':>8}  status"
    )
    for phase in phases:
        print(
            f"{phase.name:<14}{phase.seconds:>8.0f}{phase.opened:>9,}{phase.held_max:>7,}{phase.calm_rate:>8.0f}{phase.rate:>9.0f}"
            f"{phase.slowest_rate:>9.0f}{phase.failed:>8}  {phase.well} of {phase.statuses} well"
        )
        for wrong in phase.wrong:
            print(f"  WRONG: {wrong}")


def main() -> int:
    """Both floods, one mesh."""
    parser = argparse.ArgumentParser(prog="python -m tests.flood", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120, help="of both floods together")
    parser.add_argument("--held", type=int, default=1_100, help="connections at each port")
    parser.add_argument("--per-second", type=int, default=200, help="new connections at each port")
    options = parser.parse_args()
    options.seconds /= 2
    phases = [Phase("as they are", is_lowered=False), Phase(f"used + {ROOM}", is_lowered=True)]
    with tempfile.TemporaryDirectory(prefix="flood-") as folder:
        mesh = Mesh(
            Path(folder) / "tern",
            port_base=free_port_base(random.Random()),
            options=("--segment-size-bytes", str(SEGMENT_SIZE_BYTES), "--checkers", "1"),
        )
        # Processes of the mesh begin with the limit that most systems give.
        resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with kept_up(mesh):
            mesh.create(TOPIC)
            senders = Senders(mesh.port_base)
            for phase in phases:
                print(f"limits {phase.name}: some calm, {options.seconds:.0f} s of flood", file=sys.stderr)
                flooded(phase, mesh, senders, options)
                if phase.wrong:
                    break
            senders.stop()
    show([phase for phase in phases if phase.seconds])
    print(json.dumps({"wrong": [f"{phase.name}: {wrong}" for phase in phases for wrong in phase.wrong]}))
    return 1 if any(phase.wrong for phase in phases) else 0


if __name__ == "__main__":
    sys.exit(main())
