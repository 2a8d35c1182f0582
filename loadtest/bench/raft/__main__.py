"""`python -m loadtest.bench.raft`: the cost of the replicated log, three nodes on this machine.

The ceilings of the machine are measured beside it. About a minute and a half, and up to 12 GB of
disk below `.tern/bench/` that are removed afterwards; `--quick` takes 25 s. Nodes are processes
that run RaftNode over a real log, synced, with nothing to apply. The load is inside the leader, as
it was in the prototype whose form `bare.py` repeats. Idle figures are those of real brokers. A
missed bar is shown, never an error.
"""

import argparse
import asyncio
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import own_mesh
from loadtest.bench.process_cpu import cpu_seconds, memory_mb
from loadtest.bench.raft.load import Load, Loaded
from loadtest.bench.raft.processes import DiskProbe, Trio, trio
from loadtest.bench.store.figures import Bar, drop_cache, in_turns, judged, scratch, show_store

_FOLDER = Path(".tern/bench")
KIB = 1 << 10
# Bars of the replicated log. The prototype of the bar reached PROTOTYPE_OF_BARE of the rate of
# `bare.py`, in turns on one machine; loadtest/README.md describes that measurement.
PROTOTYPE_OF_BARE = 1.2
ENTRIES_OF_PROTOTYPE = 0.75
P50_OF_SYNC, P50_BESIDE_MS = 1.5, 0.6
IDLE_CPU_MAX_PERCENT, IDLE_RSS_MAX_MB = 1.0, 80.0


@dataclass(frozen=True, slots=True)
class Lengths:
    """Rounds of each figure and seconds of a round; seconds of the idle measurement."""

    rounds: int
    seconds: float
    idle_s: float


FULL, QUICK = Lengths(7, 1.0, 15.0), Lengths(2, 0.5, 5.0)


def bench_load(folder: Path, lengths: Lengths) -> Iterator[Figure]:
    """Yield large entries, one client, 64 clients: ours and bare in turns, and the disk alone."""
    with (
        trio("loadtest.bench.raft.node", folder / "ours") as ours,
        trio("loadtest.bench.raft.bare", folder / "bare") as bare,
    ):
        probe = DiskProbe(folder / "probe")
        try:
            yield _large(folder, lengths, ours, bare, probe)
            yield _single(folder, lengths, ours, probe)
            yield _many(folder, lengths, ours, bare)
        finally:
            probe.close()


def _large(folder: Path, lengths: Lengths, ours: Trio, bare: Trio, probe: DiskProbe) -> Figure:
    load = Load(size_bytes=512 * KIB, clients=2, seconds=lengths.seconds)
    done: list[Loaded] = []

    def mine() -> float:
        drop_cache(folder)
        done.append(ours.load(load))
        return done[-1].per_s * load.size_bytes / 1e6

    mine_mb, bare_mb, disk_mb = in_turns(
        lengths.rounds,
        mine,
        lambda: bare.load(load).per_s * load.size_bytes / 1e6,
        lambda: probe.mb_per_s(load.size_bytes, lengths.seconds),
    )
    bar = Bar(ratio=round(ENTRIES_OF_PROTOTYPE * PROTOTYPE_OF_BARE, 2))
    disk = statistics.median(mb / other for mb, other in zip(mine_mb, disk_mb, strict=True))
    note = (
        f"{disk:.2f} of three files' {statistics.median(disk_mb):.0f} MB/s each; p50 {_median(done, 'p50_ms'):.1f} ms"
    )
    return _raft(judged("entries_512k", mine_mb, "MB/s", bar, bare=bare_mb, note=note), done)


def _single(folder: Path, lengths: Lengths, ours: Trio, probe: DiskProbe) -> Figure:
    load = Load(size_bytes=KIB, clients=1, seconds=lengths.seconds)
    done: list[Loaded] = []

    def mine() -> float:
        drop_cache(folder)
        done.append(ours.load(load))
        return done[-1].p50_ms

    mine_ms, sync_ms = in_turns(lengths.rounds, mine, lambda: probe.sync_p50_ms(KIB, lengths.seconds / 2))
    # The bar uses the quietest round: on a busy machine the median would measure other processes
    # more than the disk, and be too easy.
    bar = Bar(value=round(P50_OF_SYNC * min(sync_ms) + P50_BESIDE_MS, 2), more_is_better=False)
    note = f"bar: {P50_OF_SYNC} x fdatasync (best round) + {P50_BESIDE_MS} ms; p99 {_median(done, 'p99_ms'):.1f} ms"
    return _raft(judged("one_client_p50", mine_ms, "ms", bar, bare=sync_ms, note=note), done)


def _many(folder: Path, lengths: Lengths, ours: Trio, bare: Trio) -> Figure:
    load = Load(size_bytes=KIB, clients=64, seconds=lengths.seconds, grouped=True)
    done: list[Loaded] = []

    def mine() -> float:
        drop_cache(folder)
        done.append(ours.load(load))
        return done[-1].per_s

    mine_per_s, bare_per_s = in_turns(lengths.rounds, mine, lambda: bare.load(load).per_s)
    group = statistics.median(one.requests / one.entries for one in done[1:])
    entries = statistics.median(one.entries / one.seconds for one in done[1:])
    mb = statistics.median(mine_per_s) * KIB / 1e6
    more = {"entries_per_s": round(entries), "group_size": round(group, 1), "mb_per_s": round(mb, 1)}
    note = f"{entries:,.0f} entries/s of {group:.1f} requests, {mb:.1f} MB/s; p50 {_median(done, 'p50_ms'):.1f} ms"
    figure = _raft(judged("clients_64", mine_per_s, "/s", bare=bare_per_s, note=note), done)
    return replace(figure, more={**figure.more, **more})


def bench_idle(_folder: Path, lengths: Lengths) -> Iterator[Figure]:
    """Yield the CPU and memory of idle brokers of `ternmq up`: the largest of the three each."""
    with own_mesh(_FOLDER) as mesh:
        pids = {name: pid for name, pid in mesh.pids.items() if name.startswith("broker-")}

        async def rest() -> tuple[dict[str, float], float]:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(lengths.idle_s / 3)
            before, began_s = cpu_seconds(pids), loop.time()
            await asyncio.sleep(lengths.idle_s)
            after, took_s = cpu_seconds(pids), loop.time() - began_s
            return {name: (after[name] - before[name]) / took_s * 100 for name in pids}, took_s

        percent, took_s = asyncio.run(rest())
        rss = {name: memory_mb({name: pid})[0] for name, pid in pids.items()}
    cpu_bar, rss_bar = (Bar(value=bar, more_is_better=False) for bar in (IDLE_CPU_MAX_PERCENT, IDLE_RSS_MAX_MB))
    each = " ".join(f"{value:.2f}" for value in percent.values())
    yield _raft(judged("idle_cpu", [max(percent.values())], "%", cpu_bar, note=f"brokers: {each}; {took_s:.0f} s"))
    each = " ".join(f"{value:.1f}" for value in rss.values())
    yield _raft(judged("idle_rss", [max(rss.values())], "MB", rss_bar, note=f"brokers: {each}"))


BENCHES: Mapping[str, Callable[[Path, Lengths], Iterator[Figure]]] = {"load": bench_load, "idle": bench_idle}


def _raft(figure: Figure, done: list[Loaded] | None = None) -> Figure:
    """Return the figure as one of this bench, without the first round, a warm-up."""
    cpu = {"leader_cpu": round(_median(done, "cpu_s"), 3)} if done else {}
    return replace(figure, bench="raft", more={**figure.more, **cpu})


def _median(done: list[Loaded], field: str) -> float:
    return float(statistics.median(getattr(one, field) for one in done[1:]))


def main() -> int:
    """Return exit code 1 when a group did not replicate."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.raft", description=__doc__)
    parser.add_argument("bench", nargs="*", choices=[[], *BENCHES], help="one of %(choices)s (all)")
    parser.add_argument("-o", "--output", type=Path, default=_FOLDER / "raft.json", help="JSON lines (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="short rounds: shows that it works, not how fast")
    options = parser.parse_args()
    lengths = QUICK if options.quick else FULL
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 200)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    if os.getloadavg()[0] > 0.5:
        console.print("[yellow]This machine is not quiet: look at the ratios, and at the best rounds too.[/]")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figures = []
    try:
        with scratch(_FOLDER / f"raft-{os.getpid()}") as folder, options.output.open("w") as file:
            for name in options.bench or list(BENCHES):
                for figure in BENCHES[name](folder, lengths):
                    figures.append(figure)
                    print(figure.line(), flush=True)
                    print(figure.line(), file=file, flush=True)
    except (RuntimeError, OSError) as failure:
        console.print("[red]The bench failed:[/]", str(failure))
        return 1
    show_store(figures, console, "bench-raft")
    console.print(f"JSON lines: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
