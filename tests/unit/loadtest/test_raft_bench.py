"""The raft bench replicates what it says it does: both groups of processes, and the load that they put on themselves."""

import asyncio
import itertools
from pathlib import Path

import pytest

from loadtest.bench.raft.load import Load, run_load
from loadtest.bench.raft.processes import DiskProbe, trio


@pytest.mark.parametrize("module", ["loadtest.bench.raft.bare", "loadtest.bench.raft.node"])
def test_three_processes_replicate_a_load(module: str, tmp_path: Path) -> None:
    """One of the three takes it, whichever that is, and every request of one client is an entry."""
    with trio(module, tmp_path / "group") as group:
        done = group.load(Load(size_bytes=1024, clients=1, seconds=0.1))
        assert done.requests == done.entries > 0
        assert done.p50_ms <= done.p99_ms
        grouped = group.load(Load(size_bytes=1024, clients=8, seconds=0.1, grouped=True))
        assert grouped.requests > grouped.entries > 0


def test_what_waits_for_an_entry_goes_into_the_next_one_together() -> None:
    """Group commit: one entry on its way at a time, nothing lost, nothing twice."""
    sizes: list[int] = []
    busy = 0

    async def submit(payload: bytes) -> None:
        nonlocal busy
        busy += 1
        assert busy == 1
        await asyncio.sleep(0)
        busy -= 1
        sizes.append(len(payload))

    calls = itertools.count()

    def now() -> float:  # 200 calls are the whole load, however slow the machine is
        return next(calls) * 0.0001

    done = asyncio.run(run_load(Load(size_bytes=10, clients=4, seconds=0.02, grouped=True), submit, now))
    assert set(sizes) <= {10, 20, 30, 40}
    assert 0 < done.requests <= sum(sizes) / 10
    assert done.entries < done.requests


def test_the_disk_probe_writes_what_it_times(tmp_path: Path) -> None:
    """Figures above zero, for three files at once and for one alone."""
    probe = DiskProbe(tmp_path / "probe")
    try:
        assert probe.mb_per_s(64 << 10, 0.05) > 0
        assert probe.sync_p50_ms(1024, 0.05) > 0
    finally:
        probe.close()
