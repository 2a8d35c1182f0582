"""A million pending timers over 40 days, in processes of their own: memory, `kill -9`, restart, lists, cancellations, firing."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tern_store.timers.timers import Timers
from tern_wire.link.timer_rows import TIMER_ROWS
from tests.support.campaigns import campaign, cases
from tests.support.files.timer_calls import DAY, HOUR, NOW, due, listed, pairs

ROOT = Path(__file__).resolve().parents[4]
COUNT, BATCH = cases(1_000_000, 100_000), 1_000
MEMORY_MAX_BYTES = 60 << 20


def delivery_times() -> npt.NDArray[np.int64]:
    """When timer n is due: anywhere within 40 days."""
    return NOW + np.random.default_rng(1).integers(1, 40 * DAY, COUNT)


def resident_bytes(peak: str = "VmRSS") -> int:
    """Memory of this process; VmHWM: the most it ever had."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{peak}:"))


def add_all(timers: Timers, times: npt.NDArray[np.int64]) -> None:
    """In batches, ids in the order of adding."""
    for first in range(0, COUNT, BATCH):
        rows = np.zeros(BATCH, TIMER_ROWS)
        rows["deliver_ms"] = times[first : first + BATCH]
        rows["timer_id"] = rows["position"] = np.arange(first, first + BATCH)
        timers.add(rows)


def fill_and_die(directory: str) -> None:
    """Phase 1, a process: add all, save, print what it cost and the marks, go on without saving, die."""
    times = delivery_times()
    timers = Timers.open(Path(directory))
    due(timers, NOW, 1)
    before = resident_bytes()
    add_all(timers, times)
    job = timers.flush()
    marks = timers.marks()
    job.run()
    growth = resident_bytes("VmHWM") - before
    sys.stdout.buffer.write(msgspec.msgpack.encode([growth, marks]))
    sys.stdout.flush()
    timers.add(np.zeros(BATCH, TIMER_ROWS))
    timers.cancel(int(times[5]), 5)
    while len(due(timers, NOW + DAY, 10_000)):
        pass
    timers.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def restore_and_fire(directory: str) -> None:
    """Phase 2, a process with the marks as its input: restore, list, cancel, fire; prints what it found."""
    marks = msgspec.msgpack.decode(sys.stdin.buffer.read())
    times = delivery_times()
    before = resident_bytes()
    timers = Timers.open(Path(directory))
    timers.restore(marks)
    found: dict[str, Any] = {"restored": timers.pending, "growth_bytes": resident_bytes() - before}
    rng = random.Random(2)

    is_alive = np.ones(COUNT, bool)
    for timer_id in rng.sample(range(COUNT), 500):
        assert timers.cancel(int(times[timer_id]), timer_id)
        is_alive[timer_id] = False
    for timer_id in np.flatnonzero(~is_alive)[:50].tolist():
        assert not timers.cancel(int(times[timer_id]), timer_id)

    order = np.argsort(times, kind="stable")
    order = order[is_alive[order]]
    sorted_times = times[order]
    found["listed"] = 0
    for _ in range(20):
        begin_ms = NOW + rng.randrange(40 * DAY)
        end_ms = begin_ms + rng.randrange(2 * HOUR)
        page = pairs(listed(timers, begin_ms, end_ms, 5_000))
        first, stop = np.searchsorted(sorted_times, [begin_ms, end_ms])
        assert page == list(zip(sorted_times[first:stop].tolist(), order[first:stop].tolist(), strict=True))
        found["listed"] += len(page)

    now_ms, fired = NOW, 0
    while timers.pending:
        now_ms += rng.choice([1, 1_000, HOUR // 2, 6 * HOUR, DAY])
        while len(rows := due(timers, now_ms, 5_000)):
            assert (rows["timer_id"] == order[fired : fired + len(rows)]).all(), (
                "the next ones, in order, none cancelled"
            )
            fired += len(rows)
            assert rows["deliver_ms"][-1] <= now_ms, "never early"
        assert fired == np.searchsorted(sorted_times, now_ms, "right"), "and none that is due is left"
    found["fired"] = fired
    print(json.dumps(found))


def process(phase: str, directory: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """One of the functions above, in a process of its own."""
    code = f"from tests.unit.store.timers.test_timers_million import {phase}; {phase}({str(directory)!r})"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, input=given, capture_output=True, check=False)


@campaign
def test_a_million_timers_cost_little_memory_and_survive_a_kill(tmp_path: Path) -> None:
    """At most 60 MB for adding, and for a restart; what the marks say is there after `kill -9`; all of it fires in order."""
    filled = process("fill_and_die", tmp_path)
    assert filled.returncode == -signal.SIGKILL, filled.stderr.decode()
    growth_bytes, marks = msgspec.msgpack.decode(filled.stdout)
    assert growth_bytes <= MEMORY_MAX_BYTES
    fired = process("restore_and_fire", tmp_path, msgspec.msgpack.encode(marks))
    assert fired.returncode == 0, fired.stderr.decode()
    found = json.loads(fired.stdout)
    print(f"growth: {growth_bytes >> 20} MiB adding; {found}")
    assert found["restored"] == COUNT
    assert found["growth_bytes"] <= MEMORY_MAX_BYTES
    assert found["fired"] == COUNT - 500
    assert found["listed"] > COUNT // 100
