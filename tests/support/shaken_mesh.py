"""Real meshes on a machine that is busy: now and then some of their processes, or all of them, stand still for a while.

A test of a real mesh must hold on a slow machine, where a process does not get a core for a second, a follower hears from its leader too
late and calls an election, and a status is older than the test that asks for it. `make shake-meshes` runs such tests with
`pytest -p tests.support.shaken_mesh`. TERNMQ_SHAKE_SEED chooses who stands still when; what it meets differs from run to run.

The processes are those that inherited TERNMQ_SHAKEN from this one, the supervisor and the command line too. Those that a test has
stopped itself stay stopped.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SEED = os.environ.get("TERNMQ_SHAKE_SEED", "1")
# Longer than a broker's election timeout, so that some of them cost the leader its place; short of what a client waits for an answer.
STANDSTILL_S_MAX = 1.5
PAUSE_S_MAX = 2.0
ALL_SHARE = 0.3
# What has just been started may be the last of its mesh to be ready, by seconds.
NEWBORN_SHARE, NEWBORN_S_MAX, LOOK_S = 0.3, 4.0, 0.1
_MARK = f"{os.getpid()}"


def _shaken() -> list[int]:
    """Every process that descends from this one and runs now."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            is_ours = f"TERNMQ_SHAKEN={_MARK}".encode() in (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if is_ours and state not in "TZX":
                found.append(int(entry.name))
    return sorted(found)


def _signal(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


class _Shaker:
    """Owner of what stands still. *rng* chooses who, when, and for how long."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._seen: set[int] = set()
        # When each process that stands still goes on.
        self._until_s: dict[int, float] = {}
        self._next_s = time.monotonic()

    def turn(self, now_s: float) -> None:
        """Let some go on, and stop some. To be called every LOOK_S."""
        over = [pid for pid, until_s in self._until_s.items() if until_s <= now_s]
        _signal(over, signal.SIGCONT)
        for pid in over:
            del self._until_s[pid]
        there = [pid for pid in _shaken() if pid not in self._until_s]
        born = [pid for pid in there if pid not in self._seen]
        self._seen.update(born)
        for pid in born:
            if self._rng.random() < NEWBORN_SHARE:
                self._stop([pid], now_s + self._rng.uniform(0, NEWBORN_S_MAX))
        if there and now_s >= self._next_s:
            chosen = there if self._rng.random() < ALL_SHARE else [self._rng.choice(there)]
            self._stop(chosen, now_s + self._rng.uniform(0.1, STANDSTILL_S_MAX))
            self._next_s = now_s + self._rng.uniform(0, PAUSE_S_MAX)

    def end(self) -> None:
        """Everything goes on."""
        _signal(list(self._until_s), signal.SIGCONT)

    def _stop(self, pids: list[int], until_s: float) -> None:
        _signal(pids, signal.SIGSTOP)
        self._until_s.update(dict.fromkeys(pids, until_s))


def _shake(over: threading.Event, shaker: _Shaker) -> None:
    while not over.wait(LOOK_S):
        shaker.turn(time.monotonic())
    shaker.end()


@pytest.fixture(scope="session", autouse=True)
def shaken_meshes() -> Iterator[None]:
    """From the first test to the last one, the start of meshes included."""
    os.environ["TERNMQ_SHAKEN"] = _MARK
    over = threading.Event()
    shaker = _Shaker(random.Random(f"{SEED} {os.environ.get('PYTEST_XDIST_WORKER', '')}"))
    thread = threading.Thread(target=_shake, args=(over, shaker), name="shaker")
    thread.start()
    yield
    over.set()
    thread.join()


def pytest_report_header() -> str:
    """Pytest's hook: what replays a failure, as far as chance outside allows it."""
    return f"shaken meshes: TERNMQ_SHAKE_SEED={SEED}"
