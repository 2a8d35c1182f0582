"""A store of millions of messages with two keys each: memory, restarts, and look-ups of keys.

Every step runs in a process of its own, so that its memory is that of a broker which has just
started; imports are not timed.
"""

import os
import random
import signal
import statistics
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from loadtest.bench.figures import Figure
from loadtest.bench.store.entries import EntryMaker, Shape, key_of
from loadtest.bench.store.figures import Bar, drop_cache, in_process, judged, memory_mb, scratch
from loadtest.bench.store.node import BenchNode
from loadtest.bench.store.sizes import Sizes

SHAPE = Shape(queues=8, run=100, has_key=True)


def bench_large(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Yield memory at two sizes of the log, restarts, and look-ups of keys.

    Restarts run with the file cache as it is and emptied, look-ups with it emptied.
    """
    few, many = (size >> 20 for size in sizes.memory_sizes_bytes)
    with scratch(folder / "large") as place:
        memory, per_s = in_process(grow, place, sizes)
        note = f"{memory[0]:.0f} MB at {few:,} MiB, {memory[1]:.0f} MB at {many:,} MiB of log; {per_s:,.0f} messages/s"
        bar = Bar(value=30, more_is_better=False)
        yield judged("memory_growth_with_log", [memory[1] - memory[0]], "MB", bar, note=note)
        yield from _restarts(place, sizes, "restart_clean", Bar(value=2, more_is_better=False))
        kill_while_writing(place, sizes)
        yield from _restarts(place, sizes, "restart_killed", Bar(value=10, more_is_better=False))
        cold_ms = in_process(look_up, place, sizes)
        ranks = statistics.quantiles(cold_ms, n=100)
        note = f"{2 * sizes.large_messages:,} keys, file cache emptied; p99 {ranks[98]:.2f} ms, slowest {max(cold_ms):.2f} ms"
        yield judged("key_lookup_cold", cold_ms, "ms", Bar(value=5, more_is_better=False), note=note)


def _restarts(place: Path, sizes: Sizes, figure: str, bar: Bar) -> Iterator[Figure]:
    for cache in ("warm", "cold"):
        found = []
        for _ in range(sizes.restarts):
            if cache == "cold":
                drop_cache(place)
            found.append(in_process(restart, place, sizes))
        seconds = [spent_s for spent_s, _, _ in found]
        _, applied, memory = found[0]
        note = f"{sizes.large_messages:,} messages, {applied / 1e6:,.0f} MB applied again, {memory:.0f} MB of memory"
        yield judged(f"{figure}_{cache}", seconds, "s", bar, note=note)


def grow(place: Path, sizes: Sizes) -> tuple[list[float], float]:
    """Fill a store and stop it in order.

    Returns MB of memory when the log reaches each size, and messages per second overall.
    """
    maker, memory, left, began_s = EntryMaker(SHAPE), list[float](), list(sizes.memory_sizes_bytes), time.perf_counter()
    with BenchNode(place, sizes.segment_size_bytes, SHAPE) as node:
        while maker.made < sizes.large_messages or left:
            node.apply(node.append(maker.take()))
            node.allocate_ahead()
            node.save_if_due()
            if left and node.log.end_position >= left[0]:
                memory.append(memory_mb())
                left.pop(0)
        node.save()
        return memory, maker.made / (time.perf_counter() - began_s)


def restart(place: Path, sizes: Sizes) -> tuple[float, int, float]:
    """Return seconds until all is applied, bytes of log applied again, and MB of memory."""
    began_s = time.perf_counter()
    with BenchNode(place, sizes.segment_size_bytes) as node:
        spent_s = time.perf_counter() - began_s
        ends = node.state.names.topics_by_id[1].ends
        if sum(ends) < sizes.large_messages or [node.queues.end(1, queue) for queue in range(len(ends))] != ends:
            raise RuntimeError(f"of {sizes.large_messages} messages {sum(ends)} are there after a restart")
        return spent_s, node.unsaved_bytes, memory_mb()


def kill_while_writing(place: Path, sizes: Sizes) -> None:
    """Run a writing process and end it by SIGKILL, `unsaved_size_bytes` behind its last save."""
    child = get_context("spawn").Process(target=write_until_killed, args=(place, sizes))
    child.start()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended with {child.exitcode}")


def write_until_killed(place: Path, sizes: Sizes) -> None:
    """Write until SIGKILL; never returns."""
    with BenchNode(place, sizes.segment_size_bytes) as node:
        maker = EntryMaker(SHAPE)
        maker.made = sum(node.state.names.topics_by_id[1].ends)
        while node.unsaved_bytes < sizes.unsaved_size_bytes:
            node.apply(node.append(maker.take()))
        os.kill(os.getpid(), signal.SIGKILL)


def look_up(place: Path, sizes: Sizes) -> list[float]:
    """Return the milliseconds of each look-up of keys all over the store.

    The file cache is emptied once before.
    """
    rng, found_ms = random.Random(1), []
    with BenchNode(place, sizes.segment_size_bytes) as node:
        drop_cache(place)
        for _ in range(sizes.lookups):
            number = rng.randrange(sizes.large_messages)
            began_s = time.perf_counter()
            records = node.store.find("bench-000", key_of(number))
            found_ms.append((time.perf_counter() - began_s) * 1e3)
            if len(records) != 1:
                raise RuntimeError(f"{len(records)} records have the key of message {number}")
    return found_ms
